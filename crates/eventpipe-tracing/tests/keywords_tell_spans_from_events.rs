//! Promise: where the program says so, a session may have spans alone, or events.

mod common;

use common::{end, lines, listen};
use eventpipe::{Guid, Level};
use tracing::{event, info_span};
use tracing_subscriber::prelude::*;

#[test]
fn a_session_has_either_alone() {
    tracing_subscriber::registry()
        .with(eventpipe_tracing::layer_with_keywords())
        .init();
    let heard = |keywords| {
        let listener = listen("t_either", keywords, Level::Verbose);
        info_span!(target: "t_either", "span").in_scope(|| {
            event!(name: "event", target: "t_either", tracing::Level::INFO, {});
            event!(name: "finest", target: "t_either", tracing::Level::TRACE, {});
        });
        end(&listener)
    };
    use eventpipe_tracing::{EVENTS, SPANS, SWITCHES, TRACE};
    assert_eq!(lines(&heard(0)), [""; 0]);
    assert_eq!(lines(&heard(SPANS)), ["span/Start", "span/Stop"]);
    let events = heard(EVENTS);
    assert_eq!(lines(&events), ["event"]);
    // Nobody asks for the span.
    assert_eq!(events[0].id, Guid::ZERO);
    assert_eq!(lines(&heard(TRACE)), ["finest"]);
    assert_eq!(lines(&heard(SWITCHES)), ["span/Resume", "span/Suspend"]);
    let all = heard(EVENTS | SPANS);
    assert_eq!(lines(&all), ["span/Start", "event", "span/Stop"]);
    assert_eq!(all[1].id, all[0].id);
}
