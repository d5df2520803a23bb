//! Which events a session wants (engine.md 1.6, 4.4). Filters are folded into the events' masks when something changes,
//! so that they cost nothing per event.

use alloc::string::String;
use alloc::vec::Vec;

use eventpipe_os::order::heap_sort;

use crate::definition::{Definition, Level};

/// What a session asks of the providers of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRequest {
    /// Name of the provider, compared exactly; `*` means every provider.
    pub name: String,
    /// An event with keywords is wanted when it has one of these.
    pub keywords: u64,
    /// An event is wanted up to this level; 0 means all levels.
    pub level: u32,
    /// Handed to the providers' callbacks: `key=value;key=value`.
    pub arguments: Option<String>,
    /// Restricts the events further by their ids.
    pub event_ids: Option<EventIds>,
}

/// A list of event ids, taken or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventIds {
    /// Sorted, without duplicates.
    ids: Vec<u32>,
    wanted: bool,
}

impl EventIds {
    /// Only these ids.
    pub fn only(ids: &[u32]) -> Self {
        EventIds::new(ids, true)
    }

    /// All but these ids.
    pub fn all_but(ids: &[u32]) -> Self {
        EventIds::new(ids, false)
    }

    fn new(ids: &[u32], wanted: bool) -> Self {
        let mut ids = ids.to_vec();
        heap_sort(&mut ids, |a, b| a < b);
        ids.dedup();
        EventIds { ids, wanted }
    }

    fn accepts(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok() == self.wanted
    }
}

impl ProviderRequest {
    /// Everything that the providers called `name` have.
    pub fn new(name: impl Into<String>) -> Self {
        ProviderRequest {
            name: name.into(),
            keywords: u64::MAX,
            level: 5,
            arguments: None,
            event_ids: None,
        }
    }

    /// Asks for events with one of these keywords, and for events without any.
    #[must_use]
    pub fn keywords(mut self, keywords: u64) -> Self {
        self.keywords = keywords;
        self
    }

    /// Asks for events up to this level.
    #[must_use]
    pub fn level(mut self, level: Level) -> Self {
        self.level = u32::from(level as u8);
        self
    }

    /// Text for the providers' callbacks, by convention `key=value;key=value`.
    #[must_use]
    pub fn arguments(mut self, arguments: impl Into<String>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }

    /// Asks for events by their ids only.
    #[must_use]
    pub fn event_ids(mut self, event_ids: EventIds) -> Self {
        self.event_ids = Some(event_ids);
        self
    }

    fn is_catch_all(&self) -> bool {
        self.name == "*"
    }

    fn wants(&self, event: &Definition) -> bool {
        let keyword = event.keywords == 0 || self.keywords & event.keywords != 0;
        let level = self.level == 0
            || event.level == Level::LogAlways
            || self.level >= u32::from(event.level as u8);
        let id = self
            .event_ids
            .as_ref()
            .is_none_or(|ids| ids.accepts(event.id));
        keyword && level && id
    }
}

/// All that a session asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    requests: Vec<ProviderRequest>,
}

/// What a session asks of one provider, for the provider's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted<'a> {
    pub(crate) keywords: u64,
    pub(crate) level: u32,
    pub(crate) arguments: Option<&'a str>,
}

impl Filter {
    pub(crate) fn new(requests: Vec<ProviderRequest>) -> Self {
        Filter { requests }
    }

    /// The first request of this name (of two with one name the first wins, as in .NET), and the first catch-all.
    fn of(&self, provider: &str) -> (Option<&ProviderRequest>, Option<&ProviderRequest>) {
        (
            self.requests
                .iter()
                .find(|request| request.name == provider),
            self.requests.iter().find(|request| request.is_catch_all()),
        )
    }

    /// What the session asks of this provider, none when it does not ask for it at all.
    pub(crate) fn wanted(&self, provider: &str) -> Option<Wanted<'_>> {
        let (named, any) = self.of(provider);
        let arguments = named.and_then(|request| request.arguments.as_deref());
        let mut wanted: Option<Wanted<'_>> = None;
        for request in [named, any].into_iter().flatten() {
            let level = all_levels_as_verbose(request.level);
            wanted = Some(match wanted {
                None => Wanted {
                    keywords: request.keywords,
                    level,
                    arguments,
                },
                Some(other) => Wanted {
                    keywords: other.keywords | request.keywords,
                    level: other.level.max(level),
                    arguments,
                },
            });
        }
        wanted
    }

    /// Whether the session wants this event of this provider.
    pub(crate) fn wants(&self, provider: &str, event: &Definition) -> bool {
        let (named, any) = self.of(provider);
        [named, any]
            .into_iter()
            .flatten()
            .any(|request| request.wants(event))
    }
}

/// Level 0 of a session means all levels, so in a union it counts as the highest.
fn all_levels_as_verbose(level: u32) -> u32 {
    if level == 0 { 5 } else { level.min(5) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn event(keywords: u64, level: Level, id: u32) -> Definition {
        Definition::new("E").keywords(keywords).level(level).id(id)
    }

    fn wants(request: ProviderRequest, event: &Definition) -> bool {
        Filter::new(vec![request]).wants("P", event)
    }

    #[test]
    fn an_event_without_keywords_is_wanted_by_every_session_of_its_provider() {
        let none = event(0, Level::Informational, 1);
        assert!(wants(ProviderRequest::new("P").keywords(0), &none));
        assert!(wants(ProviderRequest::new("P").keywords(0x10), &none));
        assert!(!wants(ProviderRequest::new("Q"), &none));
        assert!(
            !wants(ProviderRequest::new("p"), &none),
            "names are compared exactly"
        );
    }

    #[test]
    fn an_event_with_keywords_needs_one_of_them() {
        let some = event(0x6, Level::Informational, 1);
        assert!(!wants(ProviderRequest::new("P").keywords(0), &some));
        assert!(!wants(ProviderRequest::new("P").keywords(0x9), &some));
        assert!(wants(ProviderRequest::new("P").keywords(0x2), &some));
    }

    #[test]
    fn session_bits_alone_are_no_keywords() {
        let reserved = event(0x0000_F000_0000_0000, Level::Informational, 1);
        assert!(wants(ProviderRequest::new("P").keywords(0), &reserved));
        let all = event(u64::MAX, Level::Informational, 1);
        assert!(!wants(ProviderRequest::new("P").keywords(0), &all));
    }

    #[test]
    fn levels_go_up_to_the_one_asked_for_and_zero_means_all() {
        for (asked, level, expected) in [
            (4, Level::Informational, true),
            (4, Level::Verbose, false),
            (1, Level::LogAlways, true),
            (1, Level::Error, false),
            (0, Level::Verbose, true),
            (u32::MAX, Level::Verbose, true),
        ] {
            let mut request = ProviderRequest::new("P");
            request.level = asked;
            assert_eq!(
                wants(request, &event(0, level, 1)),
                expected,
                "{asked} {level:?}"
            );
        }
    }

    #[test]
    fn event_ids_restrict_after_keyword_and_level() {
        let only = |ids: &[u32]| ProviderRequest::new("P").event_ids(EventIds::only(ids));
        let all_but = |ids: &[u32]| ProviderRequest::new("P").event_ids(EventIds::all_but(ids));
        let two = event(0, Level::Error, 2);
        assert!(wants(only(&[3, 2, 2]), &two));
        assert!(!wants(only(&[3]), &two));
        assert!(!wants(only(&[]), &two));
        assert!(wants(all_but(&[]), &two));
        assert!(!wants(all_but(&[2]), &two));
        assert!(!wants(only(&[2]).keywords(1), &event(2, Level::Error, 2)));
    }

    #[test]
    fn the_first_request_of_a_name_wins_and_a_catch_all_adds() {
        let filter = Filter::new(vec![
            ProviderRequest::new("P")
                .level(Level::Error)
                .keywords(1)
                .arguments("a=b"),
            ProviderRequest::new("P").level(Level::Verbose),
        ]);
        assert_eq!(
            filter.wanted("P"),
            Some(Wanted {
                keywords: 1,
                level: 2,
                arguments: Some("a=b")
            })
        );
        assert!(!filter.wants("P", &event(0, Level::Verbose, 1)));
        let filter = Filter::new(vec![
            ProviderRequest::new("P")
                .level(Level::Error)
                .keywords(1)
                .arguments("a=b"),
            ProviderRequest::new("*"),
        ]);
        assert_eq!(
            filter.wanted("P"),
            Some(Wanted {
                keywords: u64::MAX,
                level: 5,
                arguments: Some("a=b")
            })
        );
        assert!(filter.wants("P", &event(8, Level::Verbose, 1)));
        assert_eq!(
            filter.wanted("Z").map(|wanted| wanted.arguments),
            Some(None)
        );
        assert_eq!(
            Filter::new(vec![ProviderRequest::new("P")]).wanted("Z"),
            None
        );
    }
}
