//! What is given up, step by step, when a process does not know the command that could say all of it.

use crate::Error;
use crate::codec::{
    BufferingMode, CollectTracing, CollectVersion, DEFAULT_RUNDOWN_KEYWORD, SessionKind,
};

/// What a session does differently from what was asked, because the process's version cannot do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Events are dropped when the buffer is full, instead of blocking the threads that write them.
    Blocking,
    /// All events of the providers come, filtered by keyword and level only.
    EventFilter,
    /// The rundown is the usual one, not the one of the keyword.
    RundownKeyword,
    /// Events carry stacks.
    StackWalk,
    /// There is a rundown.
    Rundown,
}

impl core::fmt::Display for Fallback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Fallback::Blocking => {
                "events are dropped when the buffer is full: blocking needs .NET 11"
            }
            Fallback::EventFilter => {
                "event ids are not filtered in the process: that needs .NET 10"
            }
            Fallback::RundownKeyword => "the usual rundown is sent: a rundown keyword needs .NET 9",
            Fallback::StackWalk => "events carry stacks: leaving them out needs .NET 9",
            Fallback::Rundown => "there is a rundown: leaving it out needs .NET Core 3.1",
        })
    }
}

/// What may be given up. Everything that is, is named by [`Session::fallbacks`](super::Session::fallbacks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// [`Fallback::Blocking`]: events may be lost that would not have been.
    pub blocking: bool,
    /// [`Fallback::EventFilter`].
    pub event_filter: bool,
    /// [`Fallback::RundownKeyword`].
    pub rundown_keyword: bool,
    /// [`Fallback::StackWalk`].
    pub stack_walk: bool,
    /// [`Fallback::Rundown`].
    pub rundown: bool,
}

impl Fallbacks {
    /// Exactly what is asked, or an error.
    pub const NONE: Fallbacks = Fallbacks {
        blocking: false,
        event_filter: false,
        rundown_keyword: false,
        stack_walk: false,
        rundown: false,
    };
    /// Whatever gives more data than asked, and nothing that loses any.
    pub const LOSSLESS: Fallbacks = Fallbacks {
        blocking: false,
        event_filter: true,
        rundown_keyword: true,
        stack_walk: true,
        rundown: true,
    };
    /// Everything.
    pub const ALL: Fallbacks = Fallbacks {
        blocking: true,
        ..Fallbacks::LOSSLESS
    };
}

/// The request by its lowest command, without duplicate ids.
pub(super) fn prepared(request: &CollectTracing) -> CollectTracing {
    let mut request = request.clone();
    for provider in &mut request.providers {
        provider.event_filter = provider
            .event_filter
            .as_ref()
            .map(|filter| filter.deduplicated());
    }
    request.version = request.lowest_version();
    request
}

/// Gives up what made the command necessary that the process does not know; nothing, where an older command says the same.
pub(super) fn step_down(
    request: &mut CollectTracing,
    allowed: Fallbacks,
) -> Result<Option<Fallback>, Error> {
    let command = request.version.command();
    let unsupported = |what| Err(Error::Unsupported { what, command });
    let fallback = match request.version {
        CollectVersion::V6 if request.buffering_mode == BufferingMode::Block => {
            if !allowed.blocking {
                return unsupported("blocking when the buffer is full");
            }
            request.buffering_mode = BufferingMode::Drop;
            Fallback::Blocking
        }
        CollectVersion::V5 | CollectVersion::V6 => {
            if request.session == SessionKind::UserEvents {
                return unsupported("a user_events session");
            }
            if !allowed.event_filter {
                return unsupported("filtering by event id");
            }
            for provider in &mut request.providers {
                provider.event_filter = None;
            }
            Fallback::EventFilter
        }
        CollectVersion::V4 => {
            if !allowed.rundown_keyword {
                return unsupported("a rundown keyword");
            }
            request.rundown_keyword = DEFAULT_RUNDOWN_KEYWORD;
            Fallback::RundownKeyword
        }
        CollectVersion::V3 => {
            if !allowed.stack_walk {
                return unsupported("a session without stacks");
            }
            request.stack_walk = true;
            Fallback::StackWalk
        }
        CollectVersion::V2 => {
            let without = request.rundown_keyword == 0;
            if without && !allowed.rundown {
                return unsupported("a session without rundown");
            }
            request.rundown_keyword = DEFAULT_RUNDOWN_KEYWORD;
            request.version = CollectVersion::V1;
            return Ok(without.then_some(Fallback::Rundown));
        }
        CollectVersion::V1 => return unsupported("a session"),
    };
    request.version = request.lowest_version();
    Ok(Some(fallback))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{EventFilter, ProviderConfig};
    use std::vec;

    #[test]
    fn each_step_gives_up_one_thing_and_names_it() {
        let mut provider = ProviderConfig::new("P", 1, 4);
        provider.event_filter = Some(EventFilter::Only(vec![3, 1, 3]));
        let mut request = CollectTracing::new([provider]);
        request.buffering_mode = BufferingMode::Block;
        request.rundown_keyword = 8;
        request.stack_walk = false;
        let mut request = prepared(&request);
        assert_eq!(
            request.providers[0].event_filter,
            Some(EventFilter::Only(vec![1, 3]))
        );
        let mut seen = vec![];
        let mut versions = vec![request.version];
        while request.version != CollectVersion::V1 {
            seen.extend(step_down(&mut request, Fallbacks::ALL).unwrap());
            versions.push(request.version);
        }
        use CollectVersion::{V1, V2, V3, V4, V5, V6};
        assert_eq!(versions, [V6, V5, V4, V3, V2, V1]);
        assert_eq!(
            seen,
            [
                Fallback::Blocking,
                Fallback::EventFilter,
                Fallback::RundownKeyword,
                Fallback::StackWalk
            ],
            "with the usual rundown, which the oldest command begins too"
        );
        assert!(step_down(&mut request, Fallbacks::ALL).is_err());
    }

    /// Each thing that may be given up, alone.
    #[test]
    fn nothing_is_given_up_without_leave() {
        let all = Fallbacks::ALL;
        type Ask = fn(&mut CollectTracing);
        let cases: [(Ask, Fallbacks, Fallback); 5] = [
            (
                |request| request.buffering_mode = BufferingMode::Block,
                Fallbacks::LOSSLESS,
                Fallback::Blocking,
            ),
            (
                |request| request.providers[0].event_filter = Some(EventFilter::Only(vec![1])),
                Fallbacks {
                    event_filter: false,
                    ..all
                },
                Fallback::EventFilter,
            ),
            (
                |request| request.rundown_keyword = 8,
                Fallbacks {
                    rundown_keyword: false,
                    ..all
                },
                Fallback::RundownKeyword,
            ),
            (
                |request| request.stack_walk = false,
                Fallbacks {
                    stack_walk: false,
                    ..all
                },
                Fallback::StackWalk,
            ),
            (
                |request| request.rundown_keyword = 0,
                Fallbacks {
                    rundown: false,
                    ..all
                },
                Fallback::Rundown,
            ),
        ];
        for (ask, without, given_up) in cases {
            let mut request = CollectTracing::new([ProviderConfig::new("P", 1, 4)]);
            ask(&mut request);
            let request = prepared(&request);
            let mut asked = request.clone();
            for allowed in [Fallbacks::NONE, without] {
                let error = step_down(&mut asked, allowed).unwrap_err();
                assert!(error.is_unsupported(), "{error}");
                assert_eq!(asked, request, "{given_up:?}");
            }
            assert_eq!(step_down(&mut asked, all).unwrap(), Some(given_up));
            assert!(asked.version < request.version, "{given_up:?}");
        }
        // Nothing older can write to tracepoints.
        let mut request = CollectTracing::new([ProviderConfig::new("P", 1, 4)]);
        request.session = SessionKind::UserEvents;
        let mut request = prepared(&request);
        let error = step_down(&mut request, all).unwrap_err();
        assert!(error.is_unsupported() && request.session == SessionKind::UserEvents);
    }
}
