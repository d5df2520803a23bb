//! Spans and events of the crate `tracing`, to be traced with EventPipe: a [`Layer`] with which anybody may attach to the running program, choose
//! crates and levels, and record what they do, with typed values, activities and call stacks. Tools are `eventpipe`, dotnet-trace,
//! PerfView and whatever else speaks the protocol.
//!
//! ```
//! use tracing_subscriber::prelude::*;
//!
//! fn main() {
//!     eventpipe::start(); // opens the diagnostics port
//!     tracing_subscriber::registry()
//!         .with(eventpipe_tracing::layer())
//!         .init();
//!
//!     let span = tracing::info_span!("request", path = "/").entered();
//!     tracing::info!(status = 200, "answered"); // a load and a branch while nobody listens
//!     drop(span);
//! }
//! ```
//!
//! While it runs, from another terminal (`cargo run -p eventpipe-tracing --example traced` is a program to try it with):
//!
//! ```text
//! eventpipe collect -p PID --providers my_crate,hyper                    up to INFO
//! eventpipe collect -p PID --providers my_crate:0:Verbose                and DEBUG
//! eventpipe collect -p PID --providers my_crate:1:Verbose                and TRACE
//! eventpipe collect -p PID --providers my_crate:ffffffffffffffff:Verbose and how threads enter and leave spans
//! dotnet-trace collect -p PID --providers my_crate:0:5
//! ```
//!
//! # What becomes of what
//!
//! | in `tracing` | in the trace |
//! |---|---|
//! | first part of the target, by default the crate's name | provider. It need not exist when the session starts |
//! | the rest of the target and the name of the span or event, else its line | name: `http::server::request`, `http::server:42` for line 42 there, `main:42` at the crate's root |
//! | ERROR, WARN, INFO, DEBUG | level Error (2), Warning (3), Informational (4), Verbose (5) |
//! | TRACE | level Verbose and the keyword [`TRACE`] |
//! | a span is made, and closed | events with the opcodes Start and Stop, whose activity is the span's and whose related activity, at the start, is that of the span around it |
//! | an event | an event with the activity of its span |
//! | `Span::record` | an event with the opcode Extension and the values that were recorded, at once |
//! | `Span::follows_from` | an event with the opcode Receive, the other span as related activity |
//! | a thread enters a span, and leaves it | nothing; with the keyword [`SWITCHES`] events with the opcodes Resume and Suspend |
//! | `i64`, `u64`, `f64`, `bool`, text, bytes, and what is recorded as one of these | a field of that type |
//! | all other values: `?debug`, `%display`, errors with their causes, 128-bit integers | a field of text |
//! | a field without a value (`Empty`, `None`) | no field |
//!
//! **Activities.** A span begins when it is made and ends when it is closed, because that is its life: one that is asynchronous is entered and left
//! at each poll, and pairs of that would say nothing of how long the work took. While a thread is inside of a span, the span's activity is
//! [the thread's current one](eventpipe::activity), so events that are declared by [`eventpipe::provider!`] carry it too. Where a span is made
//! outside of all others, the thread's current activity, if there is one, is its parent. The ids have the form of those of .NET's EventSource, so
//! TraceEvent and PerfView pair and nest them. (A span without a parent TraceEvent takes for a part of whatever is open on its thread.)
//!
//! **Types.** `tracing` tells the types of values only when they are recorded. A callsite becomes another event, of the same name and with an id of its
//! own, for each list of fields and types that it comes with, up to eight; after that what is new comes with all fields, as text. Ids are
//! given in the order of use, so they differ from run to run: filter by names.
//!
//! **Sizes.** Values that would make an event larger than 64 KiB are cut; a cut text ends with `…`. A NUL in a text becomes U+FFFD, as everywhere in this
//! project.
//!
//! **Values that misbehave.** Where `Debug` or `Display` of a value panics, the field says so and the program goes on: it ran well until somebody
//! attached. (The panic's message is printed as usual, and with `panic = "abort"` nothing can be done.) Where they record spans and events themselves, those come
//! before.
//!
//! **Stacks** begin with some frames of this crate, of `tracing` and of `tracing-subscriber`.
//!
//! # What it costs
//!
//! While nobody wants a callsite, what `tracing` costs without a subscriber: the answer is kept by the callsite. When a session starts or stops, a thread
//! asks all callsites anew ([`rebuild_interest_cache`](tracing_core::callsite::rebuild_interest_cache)), and the session's start waits for it, at most five seconds.
//! BENCHMARKING.md of the repository has figures. Memory is bounded by the number of callsites, the depth of spans, and 4 KiB for each thread.
//!
//! # Beside other layers
//!
//! The layer has a filter of its own: what it does not want others still get, and the other way round. A filter of the *whole* subscriber
//! (`registry().with(EnvFilter::…)`, the level of `tracing_subscriber::fmt()`) is one for this layer too, so give the printing layer its own:
//!
//! ```
//! use tracing_subscriber::{EnvFilter, fmt, prelude::*};
//!
//! tracing_subscriber::registry()
//!     .with(fmt::layer().with_filter(EnvFilter::from_default_env()))
//!     .with(eventpipe_tracing::layer())
//!     .init();
//! ```
//!
//! Cargo features of `tracing` that leave levels out when the program is built (`release_max_level_info`) leave them out here too.
//!
//! # Records of the crate `log`
//!
//! They come through the feature `tracing-log` of `tracing-subscriber`, which is on by default: events of the provider `log`, with the fields `message`, `log.target`,
//! `log.module_path`, `log.file` and `log.line`.
//!
//! # What is not seen
//!
//! * A span that was made before the session wanted it, and spans of crates that no session asks for. What happens inside carries the activity of
//!   the next span around.
//! * Metrics: counters are the crate `eventpipe-metrics`.

#![forbid(unsafe_code)]

/// The examples of the README compile. They stand here because this crate has all that they need.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod activity;
mod interest;
mod site;
mod values;

use std::fmt;

use eventpipe::Guid;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Dispatch, Event, Metadata};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use crate::site::Operation;

/// Keyword of spans and events of the level TRACE, whose level is [`Verbose`](eventpipe::Level::Verbose) as that of DEBUG is. Other
/// spans and events have no keyword, so that a session which names the provider and no keywords gets them.
pub const TRACE: u64 = 0x1;

/// Keyword of the events that tell when a thread enters a span and when it leaves it.
pub const SWITCHES: u64 = 0x2;

/// Keyword of events, with [`layer_with_keywords`].
pub const EVENTS: u64 = 0x4;

/// Keyword of the starts, stops and values of spans, with [`layer_with_keywords`].
pub const SPANS: u64 = 0x8;

/// The layer. The program calls [`eventpipe::start`] besides; the order does not matter.
///
/// It may be used in several subscribers, boxed, and with further filters.
pub fn layer<S>() -> impl Layer<S> + fmt::Debug + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    // A filter of its own, so that what nobody traces is off for this layer alone.
    Bridge.with_filter(Wanted)
}

/// The layer, for programs of which somebody wants spans or events alone: spans have the keyword [`SPANS`] and events [`EVENTS`], those of the
/// level TRACE excepted. A session has to name them, as in `my_crate:8`: with the provider's name alone it gets nothing.
///
/// That is a choice for the whole program: a callsite keeps the keywords that it had when it was first used.
pub fn layer_with_keywords<S>() -> impl Layer<S> + fmt::Debug + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    site::use_keywords();
    layer()
}

#[derive(Debug)]
struct Bridge;

#[derive(Debug)]
struct Wanted;

impl<S> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        // A callsite that has not been asked is that of records of the crate `log`: the layer sees it with the first of them.
        site::find(&metadata.callsite()).is_none_or(interest::is_enabled)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        interest::of(site::of(metadata))
    }
}

impl<S> Layer<S> for Bridge
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        interest::add_subscriber(subscriber);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let explicit = (!event.is_contextual()).then(|| {
            let parent = event
                .parent()
                .and_then(|parent| activity_of(parent, &context));
            parent.unwrap_or(Guid::ZERO)
        });
        site::of(event.metadata()).write(|visitor| event.record(visitor), explicit.as_ref());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let site = site::of(attributes.metadata());
        let (Some(events), Some(span)) = (site.span(), context.span(id)) else {
            return;
        };
        let parent = if attributes.is_contextual() {
            eventpipe::activity::current()
        } else {
            let parent = attributes.parent();
            parent.and_then(|parent| activity_of(parent, &context))
        };
        let id = activity::create();
        span.extensions_mut().replace(Operation { events, id });
        events.start(|visitor| attributes.record(visitor), &id, parent.as_ref());
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(Operation { events, id }) = operation(span, &context) {
            events.record(|visitor| values.record(visitor), &id);
        }
    }

    fn on_follows_from(&self, span: &Id, follows: &Id, context: Context<'_, S>) {
        let followed = activity_of(follows, &context);
        if let (Some(span), Some(followed)) = (operation(span, &context), followed) {
            span.events.follows(&span.id, &followed);
        }
    }

    fn on_enter(&self, span: &Id, context: Context<'_, S>) {
        if let Some(operation) = operation(span, &context) {
            activity::enter(span, operation);
            operation.events.resume(&operation.id);
        }
    }

    fn on_exit(&self, span: &Id, _: Context<'_, S>) {
        if let Some(operation) = activity::exit(span) {
            operation.events.suspend(&operation.id);
        }
    }

    fn on_close(&self, span: Id, context: Context<'_, S>) {
        if let Some(Operation { events, id }) = operation(&span, &context) {
            events.stop(&id);
        }
    }
}

fn operation<S>(span: &Id, context: &Context<'_, S>) -> Option<Operation>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let span = context.span(span)?;
    let extensions = span.extensions();
    extensions.get::<Operation>().copied()
}

fn activity_of<S>(span: &Id, context: &Context<'_, S>) -> Option<Guid>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    operation(span, context).map(|operation| operation.id)
}
