//! A thread that reads ahead: while the reader works on one buffer, the next ones are being filled.
//!
//! Buffers go round: empty ones to the thread, full ones back, and the reader uses those as its own instead of copying
//! out of them. Each has room in front for the part of a block that lay at the end of the one before.
//! Invariant: what a single read gave is handed over at once, so a live stream is not delayed; and the thread ends at
//! the source's end or first error, when the source comes back to the reader.

use std::io::{self, Read};
use std::panic;
use std::string::String;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};
use std::vec;
use std::vec::Vec;

/// How a thread reads ahead of a [`crate::Reader`]; see [`crate::Reader::with_read_ahead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// The thread is made after so many bytes: a shorter trace is read without. 2 MiB unless changed.
    pub after: u64,
    /// How many bytes it asks the source for at a time. 512 KiB unless changed; a quarter more is taken for each
    /// buffer, for blocks that lie across two.
    pub buffer_size: usize,
    /// Buffers beside the one that the reader works on. 3 unless changed.
    pub buffers: usize,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            after: 2 << 20,
            buffer_size: 512 << 10,
            buffers: 3,
        }
    }
}

/// The thread's stack: it calls the source, and nothing else.
const STACK: usize = 256 << 10;

/// The reader's side. When it is dropped no other read begins and the thread ends. If it is in a read just then, it ends
/// when that returns, and nobody waits for it: a pipe may be silent for ever.
#[derive(Debug)]
pub(crate) struct Ahead<R> {
    empty: Option<SyncSender<Vec<u8>>>,
    /// Never locked: for readers that are shared between threads.
    full: Mutex<Receiver<Message<R>>>,
    thread: Option<JoinHandle<()>>,
    gate: Arc<Gate>,
    /// Where the thread's bytes begin in a buffer.
    pub(crate) head: usize,
    /// Length of a buffer.
    length: usize,
}

/// Stands before each read.
#[derive(Debug, Default)]
struct Gate {
    /// No read may begin.
    is_closed: AtomicBool,
    /// Held during a read.
    reading: Mutex<()>,
}

/// What the thread says.
#[derive(Debug)]
pub(crate) enum Message<R> {
    /// A buffer, and where the bytes in it end.
    Bytes(Vec<u8>, usize),
    /// Nothing more comes, or an error did. The thread ends.
    Ended(R, Option<io::ErrorKind>),
}

impl<R: Read + Send + 'static> Ahead<R> {
    /// Makes the thread; gives the source back if there can be none.
    pub(crate) fn start(source: R, how: ReadAhead) -> Result<Ahead<R>, R> {
        let size = how.buffer_size.max(1);
        let head = size / 4;
        let buffers = how.buffers.max(1);
        // There is room for all that can be in them, so nobody waits for room.
        let (empty, to_fill) = sync_channel::<Vec<u8>>(buffers);
        let (filled, full) = sync_channel(buffers.saturating_add(1));
        let (hand_over, take_over) = sync_channel::<R>(1);
        let gate = Arc::new(Gate::default());
        let its_gate = Arc::clone(&gate);
        let thread = Builder::new()
            .name(String::from("nettrace-ahead"))
            .stack_size(STACK)
            .spawn(move || {
                if let Ok(source) = take_over.recv() {
                    fill(source, head, &its_gate, &to_fill, &filled);
                }
            });
        let Ok(thread) = thread else {
            return Err(source);
        };
        hand_over.send(source).map_err(|failed| failed.0)?;
        let ahead = Ahead {
            empty: Some(empty),
            gate,
            full: Mutex::new(full),
            thread: Some(thread),
            head,
            length: head.saturating_add(size),
        };
        for _ in 0..buffers {
            ahead.give_back(Vec::new());
        }
        Ok(ahead)
    }
}

/// What the thread does.
fn fill<R: Read>(
    mut source: R,
    head: usize,
    gate: &Gate,
    empty: &Receiver<Vec<u8>>,
    full: &SyncSender<Message<R>>,
) {
    while let Ok(mut bytes) = empty.recv() {
        let room = bytes.get_mut(head..).unwrap_or_default();
        let reading = gate.reading.lock();
        let read = loop {
            if gate.is_closed.load(Ordering::SeqCst) {
                return;
            }
            match source.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        drop(reading);
        let error = match read {
            Ok(0) => None,
            Ok(count) => {
                let end = head.saturating_add(count).min(bytes.len());
                if full.send(Message::Bytes(bytes, end)).is_err() {
                    return;
                }
                continue;
            }
            Err(error) => Some(error.kind()),
        };
        // Without a reader the source is dropped here.
        drop(full.send(Message::Ended(source, error)));
        return;
    }
}

impl<R> Ahead<R> {
    /// Waits for what comes next; `None` when there is no thread any more. If the source panicked, this does too.
    pub(crate) fn next(&mut self) -> Option<Message<R>> {
        let full = self.full.get_mut().unwrap_or_else(PoisonError::into_inner);
        let message = full.recv().ok();
        if let None | Some(Message::Ended(..)) = message
            && let Some(Err(panicked)) = self.thread.take().map(JoinHandle::join)
        {
            panic::resume_unwind(panicked);
        }
        message
    }

    /// For each buffer taken one is given back, which may be any.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        if buffer.len() < self.length {
            buffer = vec![0; self.length];
        } else if buffer.len() > self.length {
            // It held a large block.
            buffer.truncate(self.length);
            buffer.shrink_to_fit();
        }
        // At the end there is nobody to take it.
        drop(self.empty.as_ref().map(|empty| empty.try_send(buffer)));
    }
}

impl<R> Drop for Ahead<R> {
    fn drop(&mut self) {
        self.gate.is_closed.store(true, Ordering::SeqCst);
        self.empty = None;
        let is_reading = matches!(self.gate.reading.try_lock(), Err(TryLockError::WouldBlock));
        if !is_reading && let Some(thread) = self.thread.take() {
            // If it panicked, that came too late to be told to anybody.
            drop(thread.join());
        }
    }
}
