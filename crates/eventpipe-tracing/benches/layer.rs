//! What an event and a span of `tracing` cost their thread: with nobody listening, and with a session; beside the formatting layer of
//! `tracing-subscriber`, which writes into nothing.
//!
//! `cargo bench -p eventpipe-tracing --bench layer`
//!
//! Time of the thread (user and system), so other work on the machine counts only where it takes the caches. Each line is measured in short
//! bursts that fit the buffer; a burst that lost events is an error. Lines run in turn, round by round; the median and the best are shown.

use std::hint::black_box;
use std::io;

use eventpipe::{Level, Listener, ProviderRequest, SessionRequest};
use rustix::time::{ClockId, clock_gettime};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::subscriber::NoSubscriber;
use tracing::{debug, info, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt, prelude::*, registry};

const ROUNDS: usize = 31;
const BURST: u32 = 2_000;

/// A thing that a program does with `tracing`.
#[derive(Clone, Copy)]
struct Deed {
    name: &'static str,
    run: fn(),
}

/// The callsites are the same for every subscriber.
const DEEDS: [Deed; 4] = [
    Deed {
        name: "event of 3 fields",
        run: || info!(target: "bench", number = black_box(7), ratio = black_box(0.5), "a message"),
    },
    Deed {
        name: "event of 3 fields, DEBUG",
        run: || debug!(target: "bench", number = black_box(7), ratio = black_box(0.5), "a message"),
    },
    Deed {
        name: "span with a field: made, closed",
        run: || drop(info_span!(target: "bench", "span", number = black_box(7))),
    },
    Deed {
        name: "span with a field: made, entered, left, closed",
        run: || info_span!(target: "bench", "span", number = black_box(7)).in_scope(|| ()),
    },
];

/// Which subscriber, and whether a session listens.
struct Setting {
    name: &'static str,
    subscriber: fn() -> Dispatch,
    listens: bool,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        name: "no subscriber",
        subscriber: || Dispatch::new(NoSubscriber::new()),
        listens: false,
    },
    Setting {
        name: "layer, nobody listens",
        subscriber: || Dispatch::new(registry().with(eventpipe_tracing::layer())),
        listens: false,
    },
    Setting {
        name: "layer, a session",
        subscriber: || Dispatch::new(registry().with(eventpipe_tracing::layer())),
        listens: true,
    },
    Setting {
        name: "fmt up to INFO",
        subscriber: || Dispatch::new(registry().with(printing())),
        listens: false,
    },
    Setting {
        name: "fmt up to INFO and layer, nobody listens",
        subscriber: || {
            let both = registry().with(printing()).with(eventpipe_tracing::layer());
            Dispatch::new(both)
        },
        listens: false,
    },
];

fn printing<S>() -> impl Layer<S> + Send + Sync
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let layer = fmt::layer().with_ansi(false).with_writer(io::sink);
    layer.with_filter(LevelFilter::INFO)
}

fn now_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn listen() -> Listener {
    SessionRequest::new()
        .provider(
            ProviderRequest::new("bench")
                .keywords(0)
                .level(Level::Informational),
        )
        .stacks(false)
        .listen()
        .expect("the session starts")
}

/// Nanoseconds of a deed.
fn burst(setting: &Setting, deed: &Deed) -> f64 {
    // A thread of its own, which has no span from before.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // `tracing` keeps one answer for each callsite, of all subscribers that there are: this is the only one.
            with_default(&(setting.subscriber)(), || {
                let listener = setting.listens.then(listen);
                // The first ones find out what there is to know of the callsite.
                (0..BURST).for_each(|_| (deed.run)());
                std::thread::sleep(std::time::Duration::from_millis(10));
                let begin = now_ns();
                (0..BURST).for_each(|_| (deed.run)());
                let taken = now_ns() - begin;
                if let Some(listener) = listener {
                    listener.session().stop();
                    assert_eq!(listener.session().statistics().lost, 0, "not a figure");
                }
                taken
            })
        });
        thread.join().expect("no panic") / f64::from(BURST)
    })
}

fn main() {
    println!("{:<42} {:<48} {:>8} {:>8}", "", "", "median", "best");
    for deed in DEEDS {
        let mut figures = SETTINGS.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (setting, figures) in SETTINGS.iter().zip(&mut figures) {
                figures.push(burst(setting, &deed));
            }
        }
        for (setting, figures) in SETTINGS.iter().zip(&mut figures) {
            figures.sort_by(f64::total_cmp);
            let (median, best) = (figures[ROUNDS / 2], figures[0]);
            println!(
                "{:<42} {:<48} {median:>8.1} {best:>8.1}  ns",
                setting.name, deed.name
            );
        }
    }
}
