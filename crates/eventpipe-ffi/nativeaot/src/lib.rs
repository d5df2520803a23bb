//! EventPipe for .NET NativeAOT: a static library that takes the place of the runtime's own at link time.
//!
//! A NativeAOT program is linked from static libraries, and one of them, `libeventpipe-enabled.a`, is the event tracing
//! engine with its diagnostics server. This crate defines the same symbols (89 of them) on this project's engine. The same
//! application and the same runtime then trace through it; docs/nativeaot.md is the recipe.
//!
//! The way of an event from managed code: `EventPipeInternal_WriteEventData` ([`event_source`]) → [`eventpipe::Event`] →
//! ring. From the runtime itself: `FireEtwGCEnd_V1` and the like ([`raise`]) → the same. The way of a command: the engine's
//! server → [`eventpipe::Provider`]'s callback → the EventSource's callback, or the garbage collector's two words of
//! state ([`runtime`]).
//!
//! What stays of the runtime's own archive: the walk of the garbage-collected heap (three objects of it, optional), since it depends on
//! how that very version lays out its objects. Without them heap dumps are empty; everything else is here.
//!
//! For Linux on x86-64, .NET 10 and 11.
//!
//! Invariants:
//! * N1: nothing here unwinds: the library is built with `panic=abort`.
//! * N2: the functions that the runtime calls while the world is stopped or from a collector thread ([`raise`], [`native`]) take no
//!   lock, call no foreign code but the C library, and allocate nothing but a thread's first slot.
//! * N3: handles given to the runtime are `&'static` references that are never freed.

#![no_std]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "a static library: whoever reads this reads the source"
)]
#![allow(
    unsafe_code,
    reason = "this crate is the border to C and C++ code: every argument comes from there"
)]

extern crate alloc;

mod activity;
mod event_source;
mod life_cycle;
mod listening;
mod modules;
mod native;
mod native_events;
mod raise;
mod runtime;
mod sampler;
#[cfg(feature = "standalone")]
mod standalone;
mod text;
