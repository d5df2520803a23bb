//! Events: the only part of the engine that runs on the threads of the traced program.

use core::fmt;
#[cfg(feature = "stacks")]
use core::mem::MaybeUninit;
use core::sync::atomic::{Ordering, compiler_fence};

use eventpipe_ring::{EventKey, Payload, RecordOptions};
use nettrace::Guid;

use crate::activity;
use crate::argument::{Arguments, Encoded};
use crate::definition::Definition;
use crate::engine::RING;
use crate::provider::Provider;

/// The mask of an event whose provider has not been registered: all ones, so that the one test on the fast path finds it
/// enabled and the slow path registers it.
const UNREGISTERED: u64 = u64::MAX;

/// The deepest stack that is taken (engine.md 2); deeper ones lose their outermost frames. The format has no mark for that: a stack of so
/// many frames was cut, or is exactly so deep.
#[cfg(feature = "stacks")]
pub(crate) const MAX_FRAMES: usize = 100;

/// An event that a program can write. It lives for ever: a `static` made by [`provider!`](crate::provider), or memory that is
/// never given back, because writers may reach it at any time.
pub struct Event {
    key: EventKey,
    provider: &'static Provider,
    definition: Definition,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("provider", &self.provider.name())
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// What an event carries beside its payload; all of it optional.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventOptions<'a> {
    /// The activity; the thread's current one if none is given.
    pub activity_id: Option<&'a Guid>,
    /// The activity that this one came from.
    pub related_activity_id: Option<&'a Guid>,
    /// Addresses of a call stack, innermost first, in place of the caller's own.
    pub stack: Option<&'a [usize]>,
    /// The thread that the event is about, if it is not the one that writes it.
    pub thread_id: Option<u64>,
}

/// Bytes that already lie as the event's fields describe them.
#[derive(Debug)]
struct Pieces<'a>(&'a [&'a [u8]]);

impl Payload for Pieces<'_> {
    fn len(&self) -> usize {
        self.0
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.len()))
    }

    fn copy_to(&self, mut out: &mut [u8]) {
        for piece in self.0 {
            let Some((place, rest)) = core::mem::take(&mut out).split_at_mut_checked(piece.len())
            else {
                return;
            };
            place.copy_from_slice(piece);
            out = rest;
        }
    }
}

impl EventOptions<'_> {
    const NONE: Self = EventOptions {
        activity_id: None,
        related_activity_id: None,
        stack: None,
        thread_id: None,
    };

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.activity_id.is_none()
            && self.related_activity_id.is_none()
            && self.stack.is_none()
            && self.thread_id.is_none()
    }
}

impl Event {
    /// An event of a provider, for a `static`. The provider must list it.
    pub const fn new(provider: &'static Provider, definition: Definition) -> Self {
        Event {
            key: EventKey::new(UNREGISTERED),
            provider,
            definition,
        }
    }

    /// Whether any session wants the event: one relaxed load. Ask before computing costly arguments.
    #[inline(always)]
    pub fn is_enabled(&'static self) -> bool {
        let mask = self.key.mask.load(Ordering::Relaxed);
        mask != 0 && (mask != UNREGISTERED || self.is_enabled_once_registered())
    }

    #[cold]
    fn is_enabled_once_registered(&'static self) -> bool {
        self.provider.register();
        // Still unregistered when an event was written inside the registration itself: by an allocator, for example.
        self.provider.is_registered() && self.key.mask.load(Ordering::Relaxed) != 0
    }

    /// Writes the event if it is enabled. The arguments must be of the kinds of the definition's fields; if they are not,
    /// the event is not written (and the program stops there in a debug build).
    #[inline]
    pub fn write<A: Arguments>(&'static self, arguments: A) {
        if self.is_enabled() {
            let fits = self.definition.accepts(A::KINDS);
            debug_assert!(fits, "arguments that do not fit the definition of {self:?}");
            if fits {
                self.put(&Encoded(arguments), None);
            }
        }
    }

    /// [`write`](Self::write) for code made by [`provider!`](crate::provider), where arguments and fields come from one list.
    #[doc(hidden)]
    #[inline]
    pub fn write_matching<A: Arguments>(&'static self, arguments: A) {
        if self.is_enabled() {
            self.put(&Encoded(arguments), None);
        }
    }

    /// [`write`](Self::write) with activity ids, a stack or another thread.
    #[inline]
    pub fn write_with<A: Arguments>(&'static self, arguments: A, options: &EventOptions<'_>) {
        if self.is_enabled() {
            let fits = self.definition.accepts(A::KINDS);
            debug_assert!(fits, "arguments that do not fit the definition of {self:?}");
            if fits {
                self.put(&Encoded(arguments), Some(options));
            }
        }
    }

    /// Writes the event with a payload that is already encoded, given in pieces. Readers decode it by the definition's fields,
    /// so it is the caller's duty that they match.
    #[inline]
    pub fn write_payload(&'static self, pieces: &[&[u8]], options: &EventOptions<'_>) {
        if self.is_enabled() {
            self.put(&Pieces(pieces), Some(options));
        }
    }

    /// [`write_payload`](Self::write_payload) for payloads that encode themselves; see [`Payload`] for what they must not do.
    #[inline(always)]
    pub fn write_encoded<P: Payload>(&'static self, payload: &P, options: &EventOptions<'_>) {
        if self.is_enabled() {
            self.put(payload, Some(options));
        }
    }

    /// The same for an event with something in its options, in less code: without the fast path of those that have nothing.
    pub fn write_encoded_with<P: Payload>(&'static self, payload: &P, options: &EventOptions<'_>) {
        if self.is_enabled() {
            self.put_with(payload, options);
            // See `put`.
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// The definition, as it was given; [`metadata`](Self::metadata) has what it says.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What a trace says of the event: provider, id, name, keywords, version, level, opcode, fields. With the crate `nettrace` it decodes
    /// payloads, as the example at [`Listener`](crate::Listener) does. The id of the row is 0, and events whose
    /// definition is [encoded](Definition::encoded) have no fields here.
    pub fn metadata(&self) -> nettrace::Metadata {
        self.definition.metadata_of(self.provider.name())
    }

    /// The provider.
    pub fn provider(&self) -> &'static Provider {
        self.provider
    }

    pub(crate) fn key(&self) -> &EventKey {
        &self.key
    }

    // Not inlined: then the first frames of a walk are those of `put_with` and this function, and the next is that of its caller. Without
    // walks it is inlined: who is built small then has one function from the border to the buffer.
    #[cfg_attr(feature = "stacks", inline(never))]
    #[cfg_attr(not(feature = "stacks"), inline(always))]
    fn put<P: Payload>(&'static self, payload: &P, options: Option<&EventOptions<'_>>) {
        let is_plain = options.is_none_or(EventOptions::is_empty)
            && !self.wants_stack()
            && activity::is_none();
        if is_plain {
            RING.write_plain(&self.key, payload);
        } else if !cfg!(feature = "stacks") || !RING.lose_for_want_of_a_block(&self.key) {
            self.put_with(payload, options.unwrap_or(&EventOptions::NONE));
            // So that it was no tail call, which would have left its caller's frame in our place.
            compiler_fence(Ordering::SeqCst);
        }
    }

    #[cfg(not(feature = "stacks"))]
    #[inline(always)]
    fn wants_stack(&self) -> bool {
        false
    }

    #[cfg(feature = "stacks")]
    #[inline(always)]
    fn wants_stack(&self) -> bool {
        let mask = self.key.mask.load(Ordering::Relaxed);
        self.key.stack_mask.load(Ordering::Relaxed) & mask != 0
    }

    #[inline(never)]
    fn put_with<P: Payload>(&'static self, payload: &P, options: &EventOptions<'_>) {
        let current;
        let activity = match options.activity_id {
            Some(id) => Some(&id.0),
            None => {
                current = activity::current();
                current.as_ref().map(|id| &id.0)
            }
        };
        let record = RecordOptions {
            activity,
            related: options.related_activity_id.map(|id| &id.0),
            frames: options.stack.unwrap_or_default(),
            event_thread: options.thread_id,
        };
        if !self.wants_stack() || options.stack.is_some() {
            RING.write(&self.key, payload, &record);
        } else {
            #[cfg(feature = "stacks")]
            self.put_with_stack(payload, &record);
        }
    }

    #[cfg(feature = "stacks")]
    #[inline(always)]
    fn put_with_stack<P: Payload>(&'static self, payload: &P, record: &RecordOptions<'_>) {
        let mut place = [MaybeUninit::uninit(); OWN_FRAMES + MAX_FRAMES];
        let frames = eventpipe_sampler::walk(&mut place);
        let frames = frames.get(OWN_FRAMES..).unwrap_or_default();
        RING.write(&self.key, payload, &RecordOptions { frames, ..*record });
    }
}

/// Frames of this module that a walk from `put_with` begins with.
#[cfg(feature = "stacks")]
const OWN_FRAMES: usize = 2;
