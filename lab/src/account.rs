//! An exact account of a trace whose events carry their thread's number and a running number as first arguments: `lab emit`, and
//! the event Sequenced of the stress program.
//!
//! The format numbers a thread's events for itself, lost ones included. So on each thread the format's number less the running
//! number is the same for every event, whatever was lost in between: that is attempted = delivered + lost at every single event.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// What a trace holds of one provider.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// By thread number.
    pub threads: BTreeMap<u32, ThreadAccount>,
    /// Threads of which the trace has no event, by the operating system's id: how many were lost.
    pub silent: BTreeMap<u64, u64>,
    /// Whether the trace has its end tag.
    pub is_complete: bool,
    /// Why it could not be read to the end.
    pub error: Option<nettrace::Error>,
}

/// One thread's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadAccount {
    /// The operating system's ids of the thread that wrote it; more than one is an error of whoever wrote the trace.
    pub os_threads: BTreeSet<u64>,
    /// Events delivered.
    pub delivered: u64,
    /// The largest running number, counted from 0.
    pub last: u64,
    /// Running numbers that were not larger than the one before.
    pub disorder: u64,
    /// Events whose number in the format is not the running number plus one.
    pub misnumbered: u64,
    /// Events lost, as the trace tells.
    pub lost: u64,
    /// How many of these were lost before the first one that was delivered: TraceEvent does not count those.
    pub lost_at_start: u64,
}

impl Account {
    /// Reads a trace to its end or to its first error.
    pub fn of(trace: impl Read, provider: &str) -> Account {
        Account::with(trace, provider, |_, _, _| ())
    }

    /// The same, and shows each event of the provider with its thread number and running number.
    pub fn with(
        trace: impl Read,
        provider: &str,
        mut each: impl FnMut(u32, u64, &nettrace::Event<'_>),
    ) -> Account {
        let mut account = Account::default();
        let mut reader = match nettrace::Reader::new(trace) {
            Ok(reader) => reader,
            Err(error) => {
                account.error = Some(error);
                return account;
            }
        };
        loop {
            match reader.next_event() {
                Ok(Some(event)) if event.metadata().provider == provider => {
                    if let Some((thread, number)) = numbers(event.payload()) {
                        account
                            .threads
                            .entry(thread)
                            .or_default()
                            .note(number, &event);
                        each(thread, number, &event);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    account.error = Some(error);
                    break;
                }
            }
        }
        account.is_complete = reader.is_complete();
        for losses in reader.losses().threads() {
            let own = |thread: &&mut ThreadAccount| thread.os_threads.contains(&losses.thread_id);
            let lost = losses.gaps + losses.at_start;
            if let Some(thread) = account.threads.values_mut().find(own) {
                thread.lost += lost;
                thread.lost_at_start += losses.at_start;
            } else if lost > 0 {
                account.silent.insert(losses.thread_id, lost);
            }
        }
        account
    }

    /// Events delivered, over all threads.
    pub fn delivered(&self) -> u64 {
        self.threads.values().map(|thread| thread.delivered).sum()
    }

    /// Events lost, over all threads.
    pub fn lost(&self) -> u64 {
        let silent: u64 = self.silent.values().sum();
        silent + self.threads.values().map(|thread| thread.lost).sum::<u64>()
    }

    /// Events lost before a thread's first delivered one.
    pub fn lost_at_start(&self) -> u64 {
        let silent: u64 = self.silent.values().sum();
        let others = self.threads.values().map(|thread| thread.lost_at_start);
        silent + others.sum::<u64>()
    }

    /// Whether the trace has no fault but to end too early, as that of a process or recorder that was killed.
    pub fn is_readable_prefix(&self) -> bool {
        use nettrace::ErrorKind::{HeaderTruncated, Truncated, TruncatedBlock};
        self.error
            .is_none_or(|error| matches!(error.kind, HeaderTruncated | Truncated | TruncatedBlock))
    }

    /// What is wrong with order and numbers; empty when nothing is.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (number, thread) in &self.threads {
            if thread.os_threads.len() != 1 {
                faults.push(format!(
                    "thread {number}: written by {:?}",
                    thread.os_threads
                ));
            }
            if thread.disorder > 0 {
                faults.push(format!("thread {number}: {} out of order", thread.disorder));
            }
            if thread.misnumbered > 0 {
                faults.push(format!(
                    "thread {number}: {} misnumbered",
                    thread.misnumbered
                ));
            }
            // Losses behind the last event come on top.
            if thread.delivered + thread.lost < thread.last + 1 {
                faults.push(format!(
                    "thread {number}: {} delivered and {} lost of at least {}",
                    thread.delivered,
                    thread.lost,
                    thread.last + 1
                ));
            }
        }
        faults
    }
}

impl ThreadAccount {
    fn note(&mut self, number: u64, event: &nettrace::Event<'_>) {
        self.disorder += u64::from(self.delivered > 0 && number <= self.last);
        self.misnumbered += u64::from(u64::from(event.sequence_number()) != number + 1);
        self.delivered += 1;
        self.last = number;
        self.os_threads.insert(event.thread_id());
    }
}

fn numbers(payload: &[u8]) -> Option<(u32, u64)> {
    let (thread, rest) = payload.split_first_chunk::<4>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*thread), u64::from_le_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nettrace::{
        EventRecord, FormatVersion, Metadata, SystemTime, TraceInfo, TraceWriter, WriteFormat,
    };

    /// A trace of events, each with the system's id of its thread, its number in the format, its thread's number and its running
    /// number; and with threads that have tried so many at the end.
    fn trace(events: &[(u64, u32, u32, u64)], tried: &[(u64, u32)]) -> Vec<u8> {
        let info = TraceInfo {
            format: FormatVersion::V4,
            start: SystemTime::from_unix_ns(0),
            sync_ticks: 0,
            ticks_per_second: 1_000_000_000,
            pointer_size: 8,
            process_id: Some(7),
            processor_count: Some(1),
            sampling_period_ns: Some(0),
            pairs: Vec::new(),
        };
        let mut writer = TraceWriter::new(WriteFormat::V4, &info);
        let metadata = Metadata {
            id: 1,
            provider: "P".into(),
            name: "E".into(),
            event_id: 1,
            ..Metadata::default()
        };
        writer.define_event(&metadata).expect("it is small");
        for &(os_thread, sequence_number, thread, number) in events {
            let mut payload = thread.to_le_bytes().to_vec();
            payload.extend(number.to_le_bytes());
            let event = EventRecord {
                metadata_id: 1,
                sequence_number,
                thread_id: os_thread,
                capture_thread_id: os_thread,
                payload: &payload,
                ..EventRecord::default()
            };
            writer.event(&event).expect("it is small");
        }
        writer.sequence_point(1, 0, tried.iter().copied());
        writer.finish();
        std::mem::take(writer.output())
    }

    fn faults(events: &[(u64, u32, u32, u64)]) -> Vec<String> {
        Account::of(&trace(events, &[])[..], "P").faults()
    }

    #[test]
    fn losses_are_no_fault_and_belong_to_their_thread() {
        let events = [
            (500, 1, 0, 0),
            (501, 3, 1, 2),
            (500, 2, 0, 1),
            (500, 5, 0, 4),
        ];
        let account = Account::of(&trace(&events, &[(500, 6), (501, 3), (502, 7)])[..], "P");
        assert_eq!(account.faults(), [""; 0]);
        assert!(account.is_complete && account.error.is_none());
        let lost = |thread: u32| {
            (
                account.threads[&thread].lost,
                account.threads[&thread].lost_at_start,
            )
        };
        assert_eq!((lost(0), lost(1)), ((3, 0), (2, 2)));
        assert_eq!(account.silent, BTreeMap::from([(502, 7)]));
        assert_eq!(
            (account.delivered(), account.lost(), account.lost_at_start()),
            (4, 12, 9)
        );
    }

    #[test]
    fn each_fault_is_found() {
        let alone = |text: &str| vec![text.to_owned()];
        // The same number twice, and a smaller one.
        let twice = [(500, 1, 0, 0), (500, 2, 0, 1), (500, 2, 0, 1)];
        assert_eq!(faults(&twice), alone("thread 0: 1 out of order"));
        let back = [(500, 1, 0, 0), (500, 2, 0, 1), (500, 1, 0, 0)];
        assert_eq!(faults(&back), alone("thread 0: 1 out of order"));
        // The format has counted an event that was not written.
        let misnumbered = [(500, 1, 0, 0), (500, 3, 0, 1)];
        assert_eq!(faults(&misnumbered), alone("thread 0: 1 misnumbered"));
        // And has not counted some that were.
        let uncounted = [(500, 1, 0, 0), (500, 2, 0, 5)];
        assert_eq!(
            faults(&uncounted),
            [
                "thread 0: 1 misnumbered",
                "thread 0: 2 delivered and 0 lost of at least 6"
            ]
        );
        let strange = [(500, 1, 0, 0), (501, 2, 0, 1)];
        assert_eq!(faults(&strange), alone("thread 0: written by {500, 501}"));
    }

    #[test]
    fn a_trace_that_is_cut_is_a_prefix_and_one_that_is_changed_is_not() {
        let whole = trace(&[(500, 1, 0, 0), (500, 2, 0, 1)], &[]);
        for length in [3, 40, whole.len() - 1] {
            let account = Account::of(&whole[..length], "P");
            assert!(
                !account.is_complete && account.is_readable_prefix(),
                "{length}"
            );
        }
        let account = Account::of(&[0x55; 100][..], "P");
        assert!(!account.is_complete && !account.is_readable_prefix());
    }
}
