//! Promise: records of the crate `log` arrive as events of the provider `log`, if the subscriber takes them.

mod common;

use common::{end, hear, listen};
use eventpipe::Level;
use tracing_subscriber::prelude::*;

#[test]
fn with_their_target_and_place() {
    // Sees to it that records come to the subscriber.
    tracing_subscriber::registry()
        .with(eventpipe_tracing::layer())
        .init();
    let line_of_the_first = line!() + 2;
    let write = || {
        log::error!("broken {}", 1);
        log::info!(target: "elsewhere", "works");
        log::debug!("detail");
        log::trace!("finest");
    };
    write();
    for _ in 0..2 {
        let heard = hear("log", write);
        let lines: Vec<_> = heard
            .iter()
            .map(|heard| (heard.level, &*heard.line))
            .collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        let (level, line) = lines[0];
        assert_eq!(level, 2);
        assert!(
            line.starts_with(r#"log event message="broken 1" log.target="records_of_log_arrive" log.module_path="records_of_log_arrive" log.file="#),
            "{line}"
        );
        let place = format!("records_of_log_arrive.rs\" log.line={line_of_the_first}u");
        assert!(line.ends_with(&place), "{line}");
        assert!(
            lines[1]
                .1
                .contains(r#"message="works" log.target="elsewhere""#)
        );
        assert_eq!(heard[3].keywords, eventpipe_tracing::TRACE);
        let listener = listen("log", 0, Level::Informational);
        write();
        assert_eq!(end(&listener).len(), 2);
    }
}
