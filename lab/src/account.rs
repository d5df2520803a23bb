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
