//! Threads in the target, and the numbers of their events.
//!
//! Invariant: the number given to an event is that of the event before it in the same thread plus one, plus what was
//! lost in between. So the target shows the losses of the source, whatever becomes of its threads' names.

use std::vec::Vec;

use hashbrown::{HashMap, HashSet};

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
    /// V4: thread numbers in use as names.
    taken: HashSet<u64>,
    /// V4: numbers given under names that threads of the past had.
    past: HashMap<u64, u32>,
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

/// A thread of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    /// Its name in the target.
    pub(super) target: u64,
    thread_id: u64,
    /// The source's number of its last event.
    last: u32,
    /// Ours.
    given: u32,
}

impl Threads {
    pub(super) fn new(format: WriteFormat, process_id: Option<u64>) -> Threads {
        Threads {
            format,
            process_id,
            threads: HashMap::new(),
            rows: HashMap::new(),
            taken: HashSet::new(),
            past: HashMap::new(),
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
            given: 0,
        };
        // A row says that the source gave the name to a thread just now.
        let carried = self.carried.remove(&key);
        let carried = carried.filter(|carried| row.is_none() && carried.thread_id == thread_id);
        if let Some(carried) = &carried {
            thread.last = carried.last;
        }
        let row = row.or(carried.as_ref().and_then(|carried| carried.row.as_ref()));
        match self.format {
            WriteFormat::V4 => {
                if !self.taken.insert(thread_id) {
                    // Numbers of threads have 32 bits at most; these are out of their way.
                    self.renamed = self.renamed.wrapping_add(1);
                    thread.target = self.next_index | 1 << 62;
                    self.next_index = self.next_index.wrapping_add(1);
                    self.taken.insert(thread.target);
                }
                thread.given = self.past.get(&thread.target).copied().unwrap_or(0);
            }
            WriteFormat::V6 => {
                thread.target = self.next_index;
                self.next_index = self.next_index.wrapping_add(1);
                let names = ThreadRow {
                    thread_id: Some(thread_id),
                    process_id,
                    ..ThreadRow::default()
                };
                writer.define_thread(thread.target, row.unwrap_or(&names))?;
            }
        }
        self.threads.insert(key, thread);
        Ok(thread)
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
        thread.given = thread.given.wrapping_add(step);
        thread.last = number;
        thread.given
    }

    /// An event is left out. What was lost before it is kept unless it is outside of the times asked for.
    pub(super) fn skip(&mut self, source: u32, name: u64, number: u32, keeps_losses: bool) {
        let Some(thread) = self.threads.get_mut(&(source, name)) else {
            return;
        };
        if keeps_losses {
            thread.given = thread
                .given
                .wrapping_add(thread.step(number))
                .wrapping_sub(1);
        }
        thread.last = number;
    }

    /// The thread tried to write so many events; the number to say so in the target.
    pub(super) fn tried(&mut self, source: u32, name: u64, number: u32, keeps_losses: bool) -> u32 {
        let Some(thread) = self.threads.get_mut(&(source, name)) else {
            return 0;
        };
        let missing = number.wrapping_sub(thread.last);
        if missing as i32 > 0 {
            if keeps_losses {
                thread.given = thread.given.wrapping_add(missing);
            }
            thread.last = number;
        }
        thread.given
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
        if self.format == WriteFormat::V4 {
            self.taken.remove(&thread.target);
            self.past.insert(thread.target, thread.given);
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
            .map(|thread| (thread.target, thread.given))
            .filter(|&(_, given)| given > 0)
            .collect();
        all.sort_unstable();
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
