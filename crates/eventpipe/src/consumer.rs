//! Who takes a session's records from the drain: the encoder of a stream, or a program that reads its own events.

use alloc::boxed::Box;

use eventpipe_ring::{Record, ThreadInfo};

use crate::encoder::SessionEncoder;
use crate::event::Event;
use crate::listener::Ear;
#[cfg(feature = "netperf")]
use crate::netperf::NetPerfEncoder;

#[derive(Debug)]
pub(crate) enum Consumer {
    Stream(Box<SessionEncoder>),
    #[cfg(feature = "netperf")]
    NetPerf(Box<NetPerfEncoder>),
    Listener(Box<Ear>),
}

impl Consumer {
    pub(crate) fn bit(&self) -> u32 {
        match self {
            Consumer::Stream(encoder) => encoder.bit,
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(encoder) => encoder.bit,
            Consumer::Listener(ear) => ear.bit,
        }
    }

    /// See [`SessionEncoder::record`].
    #[inline]
    pub(crate) fn record(
        &mut self,
        run: u64,
        thread: ThreadInfo,
        event: &'static Event,
        record: &Record<'_>,
        time_ns: u64,
        sorted: bool,
    ) {
        match self {
            Consumer::Stream(encoder) => {
                encoder.record(run, thread, event, record, time_ns, sorted)
            }
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(encoder) => encoder.record(thread, event, record, time_ns),
            Consumer::Listener(ear) => ear.record(thread, event, record, time_ns),
        }
    }

    /// See [`SessionEncoder::lost`].
    pub(crate) fn lost(&mut self, run: u64, thread: ThreadInfo, count: u64) {
        match self {
            Consumer::Stream(encoder) => encoder.lost(run, thread, count),
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(encoder) => encoder.lost(count),
            Consumer::Listener(ear) => ear.lost(count),
        }
    }

    /// See [`SessionEncoder::thread_ended`].
    pub(crate) fn thread_ended(&mut self, thread: ThreadInfo) {
        if let Consumer::Stream(encoder) = self {
            encoder.thread_ended(thread);
        }
    }

    /// See [`SessionEncoder::boundary`].
    pub(crate) fn boundary(&mut self, time_ns: u64) {
        match self {
            Consumer::Stream(encoder) => encoder.boundary(time_ns),
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(encoder) => encoder.boundary(time_ns),
            Consumer::Listener(ear) => ear.boundary(time_ns),
        }
    }

    /// See [`SessionEncoder::has_pending`].
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Consumer::Stream(encoder) => encoder.has_pending(),
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(_) => false,
            Consumer::Listener(_) => false,
        }
    }

    /// See [`SessionEncoder::finish`].
    pub(crate) fn finish(self, time_ns: u64, before_the_end: impl FnOnce()) {
        match self {
            Consumer::Stream(encoder) => encoder.finish(time_ns, before_the_end),
            #[cfg(feature = "netperf")]
            Consumer::NetPerf(encoder) => encoder.finish(time_ns, before_the_end),
            Consumer::Listener(ear) => ear.finish(time_ns, before_the_end),
        }
    }
}
