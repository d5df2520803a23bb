//! `lab instructions`: one path of the engine or of the reader a known number of times, for callgrind to count.
//!
//! Only what runs inside `measured` is counted (`--toggle-collect`), on the thread that runs it, so the drain and the start of the
//! program do not disturb. Instructions per event are the same in every run to a fraction of one; nanoseconds are not. `.ci/instructions` compares
//! them with lab/instructions.txt.

use std::cell::RefCell;
use std::hint::black_box;

use anyhow::{Result, ensure};
use eventpipe::measure::ManualDrain;
use eventpipe::{Format, Level, ProviderRequest, SessionRequest};
use eventpipe_ring::{EventKey, Ring};

use crate::read;

eventpipe::provider! {
    /// The measured events.
    pub mod events = "EventPipeLabInstructions";

    /// Eight bytes.
    #[event(id = 1)]
    fn number(value: u64);

    /// A counted piece.
    #[event(id = 2)]
    fn bytes(data: &[u8]);

    /// A text, widened to UTF-16.
    #[event(id = 3)]
    fn text(text: &str);
}

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The path.
    #[arg(value_enum)]
    path: Path,
    /// How often.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Path {
    /// Nobody listens.
    Disabled,
    /// 8 bytes.
    Event8,
    /// 100 bytes.
    Event100,
    /// A text of 49 characters: 100 bytes.
    EventText,
    /// 100 bytes with a stack.
    EventStack,
    /// No block is free.
    Dropped,
    /// No block is free for a text of 10,000 characters with a stack: neither is looked at.
    DroppedText,
    /// Draining: an event of 8 bytes, from the buffer to the blocks of a stream.
    Drain8,
    /// The same, with a text of 100 characters.
    DrainText,
    /// The same, with a text of 100 characters and its stack.
    DrainStack,
    /// The same, with two kinds of event by turns.
    DrainTurns,
    /// The same as the first, for eight sessions that all want it.
    #[value(name = "drain-8-sessions")]
    Drain8Sessions,
    /// Draining in version 6: a text of 100 characters.
    DrainTextV6,
    /// Reading: an event of 205 bytes looked at.
    ReadWalk,
    /// The same, its text found.
    ReadValues,
    /// The same, its text made UTF-8.
    ReadText,
}

/// Runs the path.
///
/// # Errors
/// The session does not start, or events were lost that had room.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (path, count) = (arguments.path, arguments.count);
    match path {
        Path::Dropped => return dropped(count),
        Path::DroppedText => return dropped_text(count),
        Path::ReadWalk | Path::ReadValues | Path::ReadText => return reading(path, count),
        Path::Drain8
        | Path::DrainText
        | Path::DrainStack
        | Path::DrainTurns
        | Path::Drain8Sessions
        | Path::DrainTextV6 => return draining(path, count),
        _ => {}
    }
    let session = (path != Path::Disabled)
        .then(|| {
            all_events()
                .stacks(path == Path::EventStack)
                .start_callback(|_| {})
        })
        .transpose()
        .map_err(|error| not_started(&error))?;
    let data = [7_u8; 98];
    let text = "x".repeat(49);
    let write = |number: u64| match path {
        Path::Disabled | Path::Event8 => events::number(number),
        Path::EventText => events::text(&text),
        _ => events::bytes(&data),
    };
    // The first event of a thread finds its place in the buffer.
    write(0);
    match path {
        Path::Disabled | Path::Event8 => measured(count, events::number),
        Path::EventText => measured(count, |_| events::text(black_box(&text))),
        _ => measured(count, |_| events::bytes(black_box(&data))),
    }
    if let Some(session) = session {
        session.stop();
        let figures = session.statistics();
        ensure!(
            (figures.delivered, figures.lost) == (count + 1, 0),
            "{figures:?} of {}",
            count + 1
        );
    }
    Ok(())
}

fn dropped(count: u64) -> Result<()> {
    static RING: Ring = Ring::new();
    static KEY: EventKey = EventKey::new(1);
    ensure!(RING.start(256 << 10).is_ok(), "no memory for the ring");
    let payload = [7_u8; 100];
    let write = |_| RING.write_plain(&KEY, black_box(&payload));
    (0..20_000).for_each(write);
    let before = RING.statistics().lost;
    measured(count, write);
    ensure!(
        RING.statistics().lost - before == count,
        "an event found room"
    );
    Ok(())
}

fn dropped_text(count: u64) -> Result<()> {
    let mut drain = manual_drain()?;
    let session = all_events()
        .stacks(true)
        .start_callback(|_| {})
        .map_err(|error| not_started(&error))?;
    let text = "x".repeat(10_000);
    let write = |_| events::text(black_box(&text));
    // Until the large blocks are full; then small events until the others are.
    (0..20_000).for_each(write);
    (0..2_000_000).for_each(events::number);
    measured(count, write);
    ensure!(drain.stop(&session), "the stream is not complete");
    let figures = session.statistics();
    let (delivered, lost) = (figures.delivered, figures.lost);
    ensure!(
        delivered + lost == 2_020_000 + count && lost > count + 20_000,
        "{figures:?}: an event found room"
    );
    Ok(())
}

fn manual_drain() -> Result<ManualDrain> {
    ManualDrain::new().ok_or_else(|| anyhow::anyhow!("somebody drains already"))
}

fn all_events() -> SessionRequest {
    SessionRequest::new()
        .provider(ProviderRequest::new("EventPipeLabInstructions").level(Level::Verbose))
}

fn not_started(error: &eventpipe::SessionError) -> anyhow::Error {
    anyhow::anyhow!("starting the session: {}", error.text())
}

fn draining(path: Path, count: u64) -> Result<()> {
    let drain = RefCell::new(manual_drain()?);
    let format = match path {
        Path::DrainTextV6 => Format::V6,
        _ => Format::V4,
    };
    let wanted_by = match path {
        Path::Drain8Sessions => 8,
        _ => 1,
    };
    let start = |_| {
        all_events()
            .format(format)
            .stacks(path == Path::DrainStack)
            .start_callback(|_| {})
            .map_err(|error| not_started(&error))
    };
    let sessions = (0..wanted_by).map(start).collect::<Result<Vec<_>>>()?;
    let text = "x".repeat(100);
    let write = |number: u64| match path {
        Path::Drain8 | Path::Drain8Sessions => events::number(number),
        Path::DrainTurns if number & 1 == 1 => events::number(number),
        _ => events::text(&text),
    };
    // The first ones are described, and find memory that is new.
    let first = count.min(1000);
    (0..first).for_each(write);
    drain.borrow_mut().run();
    (0..count).for_each(write);
    let mut given = 0;
    measured_once(|| given = drain.borrow_mut().run());
    ensure!(given == count, "{given} events of {count} were drained");
    for session in &sessions {
        ensure!(
            drain.borrow_mut().stop(session),
            "the stream is not complete"
        );
        let figures = session.statistics();
        ensure!(
            (figures.delivered, figures.lost) == (first + count, 0),
            "{figures:?} of {}",
            first + count
        );
    }
    Ok(())
}

fn reading(path: Path, count: u64) -> Result<()> {
    let mut trace = Vec::new();
    let events = read::generate(read::Mix::Text, count * 250, &mut trace)?;
    ensure!(events >= count, "the trace has {events} events only");
    let reader = RefCell::new(nettrace::Reader::new(&trace[..])?);
    let text = RefCell::new(Vec::new());
    measured(count, |_| {
        let mut reader = reader.borrow_mut();
        let Ok(Some(event)) = reader.next_event() else {
            return;
        };
        let seen = match path {
            Path::ReadWalk => event.timestamp() as u64,
            Path::ReadValues => read::values(&event),
            _ => read::values_as_text(&event, &mut text.borrow_mut()),
        };
        black_box(seen);
    });
    let given = reader.borrow().statistics().events;
    ensure!(given == count, "{given} events of {count} were read");
    Ok(())
}

/// What is counted where one call does everything.
#[inline(never)]
fn measured_once(run: impl FnOnce()) {
    run();
}

/// What is counted: `count` calls.
#[inline(never)]
fn measured(count: u64, write: impl Fn(u64)) {
    for number in 0..count {
        write(black_box(number));
    }
}
