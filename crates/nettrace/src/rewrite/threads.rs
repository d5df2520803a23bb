//! Threads in the target, and the numbers of their events.
//!
//! Invariant: the number given to an event is that of the event before it in the same thread plus one, plus what was
//! lost in between. So the target shows the losses of the source, whatever becomes of its threads' names.

use std::vec::Vec;

use hashbrown::HashMap;

use crate::{ThreadRow, TraceWriter, WriteError, WriteFormat};

/// The operating system's number of a thread, and its process.
pub(super) type Names = (u64, Option<u64>);

#[derive(Debug)]
pub(super) struct Threads {
    format: WriteFormat,
    process_id: Option<u64>,
    /// By source and the source's name for the thread: number of the system up to V5, index in V6.
    threads: HashMap<(u32, u64), Thread>,
    /// V6 sources: rows in force.
    rows: HashMap<(u32, u64), Names>,
    /// V4: who has, or had, a thread number as a name.
    holders: HashMap<u64, Holder>,
    /// How many events were tried, as the target numbers them.
    counters: Vec<u32>,
    /// V6: places of threads that ended.
    free_counters: Vec<usize>,
    next_index: u64,
    renamed: u64,
    last: Option<((u32, u64), Thread)>,
    /// Threads of the piece before that did not appear in this one yet.
    carried: HashMap<(u32, u64), Carried>,
}

/// What a piece has to know of a thread that the piece before had.
#[derive(Clone, Debug)]
struct Carried {
    thread_id: u64,
    /// The source's number of its last event: what is between it and the next one was lost.
    last: u32,
    row: Option<ThreadRow>,
}

/// Who has a thread number of V4 as a name. The count goes on from one to the next, for a reader knows the name alone.
#[derive(Clone, Copy, Debug)]
struct Holder {
    process_id: Option<u64>,
    /// The source that used it last.
    source: u32,
    users: u32,
    counter: usize,
}

/// A thread of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    /// Its name in the target.
    pub(super) target: u64,
    thread_id: u64,
    /// The source's number of its last event.
    last: u32,
    /// Where ours is.
    counter: usize,
}

impl Threads {
    pub(super) fn new(format: WriteFormat, process_id: Option<u64>) -> Threads {
        Threads {
            format,
            process_id,
            threads: HashMap::new(),
            rows: HashMap::new(),
            holders: HashMap::new(),
            counters: Vec::new(),
            free_counters: Vec::new(),
            next_index: 1,
            renamed: 0,
            last: None,
            carried: HashMap::new(),
        }
    }

    /// The source's names of all threads; for one source.
    pub(super) fn known(&self) -> impl Iterator<Item = u64> {
        let names = self.threads.keys().chain(self.carried.keys());
        names.map(|&(_, name)| name)
    }

    /// Goes on behind another piece of the same source, with numbers from 1.
    pub(super) fn continue_from(&mut self, before: &Threads, mut rows: HashMap<u64, ThreadRow>) {
        self.rows = before.rows.clone();
        self.carried = before.carried.clone();
        for (&key, thread) in &before.threads {
            let carried = Carried {
                thread_id: thread.thread_id,
                last: thread.last,
                row: rows.remove(&key.1),
            };
            self.carried.insert(key, carried);
        }
    }

    /// Threads of V4 that bear another name than the system gave them.
    pub(super) fn renamed(&self) -> u64 {
        self.renamed
    }

    /// What the row of an index says.
    pub(super) fn names_of(&self, source: u32, name: u64) -> Names {
        self.rows
            .get(&(source, name))
            .copied()
            .unwrap_or((name, self.process_id))
    }

    /// The thread that a source names so. It is made known to the target on first sight.
    #[inline]
    pub(super) fn capture(
        &mut self,
        source: u32,
        name: u64,
        names: Names,
        writer: &mut TraceWriter,
    ) -> Result<Thread, WriteError> {
        let key = (source, name);
        match self.threads.get(&key) {
            Some(&thread) if thread.thread_id == names.0 => Ok(thread),
            // A source that is read by time does not tell when it gives an index to another thread.
            Some(_) => {
                self.leave(source, name);
                self.add(key, names, None, writer)
            }
            None => self.add(key, names, None, writer),
        }
    }

    fn add(
        &mut self,
        key: (u32, u64),
        (thread_id, process_id): Names,
        row: Option<&ThreadRow>,
        writer: &mut TraceWriter,
    ) -> Result<Thread, WriteError> {
        let mut thread = Thread {
            target: thread_id,
            thread_id,
            last: 0,
            counter: self.counters.len(),
        };
        // A row says that the source gave the name to a thread just now.
        let carried = self.carried.remove(&key);
        let carried = carried.filter(|carried| row.is_none() && carried.thread_id == thread_id);
        if let Some(carried) = &carried {
            thread.last = carried.last;
        }
        let row = row.or(carried.as_ref().and_then(|carried| carried.row.as_ref()));
        match self.format {
            WriteFormat::V4 => match self.holders.get_mut(&thread_id) {
                // Free again; or the same thread in another piece of one recording, or in another session.
                Some(holder)
                    if holder.users == 0
                        || holder.process_id == process_id && holder.source != key.0 =>
                {
                    holder.process_id = process_id;
                    holder.source = key.0;
                    holder.users = holder.users.wrapping_add(1);
                    thread.counter = holder.counter;
                }
                Some(_) => {
                    // Numbers of threads have 32 bits at most; these are out of their way.
                    self.renamed = self.renamed.wrapping_add(1);
                    thread.target = self.next_index | 1 << 62;
                    self.next_index = self.next_index.wrapping_add(1);
                    self.hold(key.0, process_id, &thread);
                }
                None => self.hold(key.0, process_id, &thread),
            },
            WriteFormat::V6 => {
                thread.target = self.next_index;
                self.next_index = self.next_index.wrapping_add(1);
                let names = ThreadRow {
                    thread_id: Some(thread_id),
                    process_id,
                    ..ThreadRow::default()
                };
                writer.define_thread(thread.target, row.unwrap_or(&names))?;
                match self.free_counters.pop() {
                    Some(place) => thread.counter = place,
                    None => self.counters.push(0),
                }
                if let Some(counter) = self.counters.get_mut(thread.counter) {
                    *counter = 0;
                }
            }
        }
        self.threads.insert(key, thread);
        Ok(thread)
    }

    /// V4: the first thread of this name.
    fn hold(&mut self, source: u32, process_id: Option<u64>, thread: &Thread) {
        let holder = Holder {
            process_id,
            source,
            users: 1,
            counter: thread.counter,
        };
        self.holders.insert(thread.target, holder);
        self.counters.push(0);
    }

    /// Counts events that were tried; gives how many there were so far.
    fn count(counters: &mut [u32], thread: &Thread, more: u32) -> u32 {
        let Some(given) = counters.get_mut(thread.counter) else {
            return more;
        };
        *given = given.wrapping_add(more);
        *given
    }

    /// V6: the index of the thread that an event is about.
    pub(super) fn subject(
        &mut self,
        source: u32,
        name: u64,
        names: Names,
        writer: &mut TraceWriter,
    ) -> Result<u64, WriteError> {
        let key = (source, name);
        match self.last {
            Some((last, thread)) if last == key => Ok(thread.target),
            _ => {
                let thread = self.capture(source, name, names, writer)?;
                self.last = Some((key, thread));
                Ok(thread.target)
            }
        }
    }

    /// The number of an event. `number` 0 stands for a source that has none.
    #[inline]
    pub(super) fn number(&mut self, source: u32, name: u64, number: u32) -> u32 {
        let Some(thread) = self.threads.get_mut(&(source, name)) else {
            return number;
        };
        let step = if number == 0 { 1 } else { thread.step(number) };
        thread.last = number;
        Threads::count(&mut self.counters, thread, step)
    }

    /// An event is left out. What was lost before it is kept unless it is outside of the times asked for.
    pub(super) fn skip(&mut self, source: u32, name: u64, number: u32, keeps_losses: bool) {
        let Some(thread) = self.threads.get_mut(&(source, name)) else {
            return;
        };
        if keeps_losses {
            let lost = thread.step(number).wrapping_sub(1);
            Threads::count(&mut self.counters, thread, lost);
        }
        thread.last = number;
    }

    /// The thread tried to write so many events; the number to say so in the target.
    pub(super) fn tried(&mut self, source: u32, name: u64, number: u32, keeps_losses: bool) -> u32 {
        let Some(thread) = self.threads.get_mut(&(source, name)) else {
            return 0;
        };
        let mut missing = number.wrapping_sub(thread.last);
        if missing as i32 > 0 {
            thread.last = number;
        }
        if missing as i32 <= 0 || !keeps_losses {
            missing = 0;
        }
        Threads::count(&mut self.counters, thread, missing)
    }

    /// At the end of a source that was read by time: how many events a thread tried, also one that has none in it.
    pub(super) fn tried_in_all(
        &mut self,
        (source, name): (u32, u64),
        names: Names,
        number: u32,
        keeps_losses: bool,
        writer: &mut TraceWriter,
    ) -> Result<(), WriteError> {
        let known = self.threads.get(&(source, name));
        // Another thread has got the index since.
        let is_past = known.is_some_and(|thread| thread.thread_id != names.0);
        if number == 0 || is_past {
            return Ok(());
        }
        self.capture(source, name, names, writer)?;
        self.tried(source, name, number, keeps_losses);
        Ok(())
    }

    /// V6: a source's index gets a row.
    pub(super) fn define(
        &mut self,
        source: u32,
        index: u64,
        row: &ThreadRow,
        writer: &mut TraceWriter,
    ) -> Result<(), WriteError> {
        let names = (
            row.thread_id.unwrap_or(0),
            row.process_id.or(self.process_id),
        );
        self.rows.insert((source, index), names);
        if self.threads.contains_key(&(source, index)) {
            self.leave(source, index);
        }
        self.add((source, index), names, Some(row), writer)
            .map(|_| ())
    }

    /// V6: a thread of the source ended.
    pub(super) fn remove(
        &mut self,
        source: u32,
        index: u64,
        number: u32,
        writer: &mut TraceWriter,
    ) {
        // It may have lost events since the piece before, and not appear in this one otherwise.
        if let Some(carried) = self.carried.get(&(source, index))
            && carried.last != number
        {
            let names = self.names_of(source, index);
            let _ = self.add((source, index), names, None, writer);
        }
        let given = self.tried(source, index, number, true);
        if let Some(thread) = self.leave(source, index) {
            writer.remove_thread(thread.target, given);
        }
    }

    fn leave(&mut self, source: u32, name: u64) -> Option<Thread> {
        self.last = None;
        self.rows.remove(&(source, name));
        self.carried.remove(&(source, name));
        let thread = self.threads.remove(&(source, name))?;
        match self.format {
            WriteFormat::V4 => {
                if let Some(holder) = self.holders.get_mut(&thread.target) {
                    holder.users = holder.users.saturating_sub(1);
                }
            }
            WriteFormat::V6 => self.free_counters.push(thread.counter),
        }
        Some(thread)
    }

    /// V6: the source forgets all indexes.
    pub(super) fn forget_all(&mut self) {
        let all: Vec<(u32, u64)> = self.threads.keys().copied().collect();
        for (source, name) in all {
            self.leave(source, name);
        }
        self.rows.clear();
        self.carried.clear();
    }

    /// Every thread and how many events it tried, for a sequence point.
    pub(super) fn all(&self) -> Vec<(u64, u32)> {
        let mut all: Vec<(u64, u32)> = self
            .threads
            .values()
            .filter_map(|thread| Some((thread.target, *self.counters.get(thread.counter)?)))
            .filter(|&(_, given)| given > 0)
            .collect();
        all.sort_unstable();
        // Threads of several sources that are one.
        all.dedup();
        all
    }
}

impl Thread {
    /// How many events were tried from the last one to this one.
    fn step(&self, number: u32) -> u32 {
        match number.wrapping_sub(self.last) {
            // Back, mostly at 1: another thread with the same name, or a writer that counts in each block anew.
            step if step as i32 <= 0 => 1,
            step => step,
        }
    }
}
