//! The stacks of a trace with their names: what `report topn` and `convert` are made of.

use crate::cli::Selection;
use crate::exit_code::{ExitCode, Failure};
use crate::filter::Filter;
use crate::human;
use crate::input;
use crate::meanwhile::Meanwhile;
use crate::native_names;
use crate::terminal::note;
use nettrace::{Error, ReaderOptions};
use nettrace_analysis::stacks::{CodeNames, Measure, Samples};
use std::path::Path;

/// Stacks, and what goes wrong with them.
pub(crate) struct Profile {
    pub(crate) samples: Samples,
    pub(crate) names: CodeNames,
    /// What ended the reading too early.
    pub(crate) damage: Option<Error>,
}

/// What is asked of a trace.
pub(crate) struct Wanted<'a> {
    pub(crate) selection: &'a Selection,
    /// Without the time outside of managed code.
    pub(crate) only_managed: bool,
    /// As [`Samples::in_order`] keeps it.
    pub(crate) in_order: bool,
}

/// Reads a trace through: thread time if it has samples and no kind of event is asked for, else events.
pub(crate) fn gather(file: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Profile> {
    let selection = wanted.selection;
    if human::is_backwards(selection.from, selection.to) {
        let text = "--from is later than --to";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let reader = input::open(file, ReaderOptions::default())?;
    let meanwhile = Meanwhile::reading();
    let info = reader.info().clone();
    let mut filter = Filter::new(selection, &info);
    let mut names = CodeNames::new();
    let asks_for_events = !(selection.event.is_empty()
        && selection.provider.is_empty()
        && selection.conditions.is_empty());
    let empty = |measure| match wanted.in_order {
        true => Samples::new(measure).in_order(),
        false => Samples::new(measure),
    };
    let (mut time, mut events) = (empty(Measure::ThreadTime), empty(Measure::Events));
    // Stacks of one thread are given by time, whatever the order of blocks.
    let mut ordered = reader.dispatch_order();
    let damage = loop {
        let event = match ordered.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        names.add(&event);
        if !filter.passes(&event) {
            continue;
        }
        if !asks_for_events {
            time.add(&info, &event);
        }
        if !time.has_sampler() && (asks_for_events || !event.stack().is_empty()) {
            events.add(&info, &event);
        }
    };
    drop(meanwhile);
    input::tell_of_more(file, ordered.reader());
    let name = input::name_of(file);
    filter.tell_of_absent(&name, ordered.reader().all_metadata());
    let mut samples = if time.has_sampler() { time } else { events };
    if wanted.only_managed {
        if samples.measure() == Measure::Events && !samples.is_empty() {
            let text = "--managed needs thread time: there is none where events are counted";
            return Err(Failure::new(ExitCode::Arguments, text).into());
        }
        samples.leave_out_external();
    }
    native_names::look_up(&samples, &mut names);
    if !samples.is_empty() && names.is_empty() {
        note(format_args!(
            "{name}: names no functions: it has no rundown, which comes at the end of a recording"
        ));
    }
    Ok(Profile {
        samples,
        names,
        damage,
    })
}
