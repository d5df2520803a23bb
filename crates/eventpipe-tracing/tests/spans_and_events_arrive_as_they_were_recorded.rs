//! Promise: what a program records with `tracing` arrives: names, levels, values with their types, activities. What cannot be shown as it is
//! becomes text, and nothing that a value does while it is formatted hurts the program.

mod common;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Once;
use std::task::{Context, Poll, Waker};

use common::{Heard, end, hear, lines, listen};
use eventpipe::{Guid, Level, activity};
use tracing::field::Empty;
use tracing::{Instrument, debug, error, event, info, info_span, instrument, trace, warn};
use tracing_subscriber::prelude::*;

/// The program's subscriber; each test has a provider of its own.
fn subscribe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::registry()
            .with(eventpipe_tracing::layer())
            .init();
    });
}

/// The text that follows the name and its line in the source.
fn fields(heard: &Heard) -> &str {
    heard.line.split_once(' ').map_or("", |(_, fields)| fields)
}

#[test]
fn values_keep_their_types() {
    #[derive(Debug)]
    struct Cause;
    impl fmt::Display for Cause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the disk is full")
        }
    }
    impl Error for Cause {}
    #[derive(Debug)]
    struct Failed;
    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("not saved")
        }
    }
    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Cause)
        }
    }
    subscribe();
    let heard = hear("t_types", || {
        info!(target: "t_types", a = 1, b = -2i8, c = u64::MAX, d = 3usize, "numbers {}", 1);
        info!(target: "t_types", a = 1.5f32, b = f64::MAX, c = true, d = false);
        info!(target: "t_types", a = i128::MIN, b = u128::MAX);
        info!(target: "t_types", a = "Grüße", b = %"日本", c = ?"🦀", d = String::from("x\0y"));
        info!(target: "t_types", a = &b"\x00\xff"[..], b = &b""[..]);
        info!(target: "t_types", a = &Failed as &dyn Error);
        info!(target: "t_types", r#type = 1, a.b = 2, "c d" = 3);
        info!(target: "t_types", a = Empty, b = 1);
        let boxed: Box<dyn Error + Send + Sync> = "boxed".into();
        info!(target: "t_types", a = &*boxed as &(dyn Error + 'static), b = std::num::Wrapping(3u8), c = std::num::NonZeroU16::MAX);
        event!(target: "t_types", tracing::Level::INFO, {});
    });
    assert_eq!(
        heard.iter().map(fields).collect::<Vec<_>>(),
        [
            r#"message="numbers 1" a=1i b=-2i c=18446744073709551615u d=3u"#,
            "a=1.5 b=1.7976931348623157e308 c=true d=false",
            r#"a="-170141183460469231731687303715884105728" b="340282366920938463463374607431768211455""#,
            "a=\"Grüße\" b=\"日本\" c=\"\\\"🦀\\\"\" d=\"x\u{FFFD}y\"",
            "a=[00, ff] b=[]",
            r#"a="not saved: the disk is full""#,
            "type=1i a.b=2i c d=3i",
            "b=1i",
            r#"a="boxed" b=3u c=65535u"#,
            "",
        ]
    );
}

#[test]
fn names_tell_the_rest_of_the_target_and_levels_are_those_of_the_format() {
    subscribe();
    let heard = hear("t_names", || {
        error!(target: "t_names", "root");
        warn!(target: "t_names::net::http", "deep");
        info!(name: "login", target: "t_names::net", "named");
        debug!(name: "tick", target: "t_names", "named at the root");
        trace!(target: "t_names", "finest");
        drop(info_span!(target: "t_names::net", "request"));
        drop(info_span!(target: "t_names", "all"));
        error!(target: "t_names_of_another", "not asked for");
    });
    let file = "spans_and_events_arrive_as_they_were_recorded";
    let without_line = |heard: &Heard| {
        let (name, _) = heard.line.split_once(' ').unwrap_or((&heard.line, ""));
        match name.rsplit_once(':') {
            Some((name, line)) if line.parse::<u32>().is_ok() => name.to_owned(),
            _ => name.to_owned(),
        }
    };
    let all: Vec<_> = heard
        .iter()
        .map(|heard| (without_line(heard), heard.level, heard.keywords))
        .collect();
    let expected = [
        (file, 2, 0),
        ("net::http", 3, 0),
        ("net::login", 4, 0),
        ("tick", 5, 0),
        (file, 5, eventpipe_tracing::TRACE),
        ("net::request/Start", 4, 0),
        ("net::request/Stop", 4, 0),
        ("all/Start", 4, 0),
        ("all/Stop", 4, 0),
    ];
    assert_eq!(
        all,
        expected.map(|(name, level, keywords)| (name.to_owned(), level, keywords))
    );
}

#[test]
fn a_session_chooses_levels_and_keywords() {
    fn work() {
        error!(target: "t_choice", "e");
        info!(target: "t_choice", "i");
        debug!(target: "t_choice", "d");
        trace!(target: "t_choice", "t");
        info_span!(target: "t_choice", "s").in_scope(|| ());
    }
    subscribe();
    let heard = |keywords, level| {
        let listener = listen("t_choice", keywords, level);
        work();
        let heard = end(&listener);
        let short = heard.iter().map(|heard| {
            let message = heard.line.split_once("message=").map(|(_, text)| text);
            message.unwrap_or(&heard.line).replace('"', "")
        });
        short.collect::<Vec<_>>()
    };
    assert_eq!(heard(0, Level::Error), ["e"]);
    let plain = ["e", "i", "s/Start", "s/Stop"];
    assert_eq!(heard(0, Level::Informational), plain);
    assert_eq!(
        heard(0, Level::Verbose),
        ["e", "i", "d", "s/Start", "s/Stop"]
    );
    let finest = ["e", "i", "d", "t", "s/Start", "s/Stop"];
    assert_eq!(heard(eventpipe_tracing::TRACE, Level::Verbose), finest);
    let switches = ["e", "i", "s/Start", "s/Resume", "s/Suspend", "s/Stop"];
    let keyword = eventpipe_tracing::SWITCHES;
    assert_eq!(heard(keyword, Level::Informational), switches);
    work();
    assert_eq!(heard(0, Level::Critical), [""; 0]);
}

#[test]
fn a_callsite_has_as_many_versions_as_lists_of_types_up_to_eight() {
    subscribe();
    fn write(a: Option<&dyn tracing::Value>, b: Option<u64>, c: Option<&str>) {
        info!(target: "t_versions", a, b, c);
    }
    let heard = hear("t_versions", || {
        write(None, None, None);
        write(Some(&1u64), Some(2), Some("three"));
        write(Some(&1i64), Some(2), Some("three"));
        write(Some(&1u64), Some(5), Some("six"));
        write(None, Some(2), None);
        write(Some(&true), None, None);
        write(Some(&0.5), None, None);
        write(Some(&"text"), None, None);
        write(Some(&1u64), None, None);
        write(Some(&1i64), None, None);
        // The ninth and tenth.
        write(None, None, Some("x"));
        write(Some(&0.5), Some(1), None);
        // Those that are there stay typed.
        write(Some(&7i64), None, None);
        write(None, None, None);
    });
    let all: Vec<_> = heard
        .iter()
        .map(|heard| (heard.event_id - 1, fields(heard)))
        .collect();
    assert_eq!(
        all,
        [
            (0, ""),
            (1, r#"a=1u b=2u c="three""#),
            (2, r#"a=1i b=2u c="three""#),
            (1, r#"a=1u b=5u c="six""#),
            (3, "b=2u"),
            (4, "a=true"),
            (5, "a=0.5"),
            (6, r#"a="text""#),
            (7, "a=1u"),
            (8, "a=1i"),
            (9, r#"a="" b="" c="x""#),
            (9, r#"a="0.5" b="1" c="""#),
            (8, "a=7i"),
            (0, ""),
        ]
    );
}

#[test]
fn long_values_are_cut_and_the_event_arrives() {
    subscribe();
    let long = "ü".repeat(100_000);
    let heard = hear("t_long", || {
        info!(target: "t_long", a = 1, long, b = 2u64, again = ?long, c = true);
        info!(target: "t_long", bytes = &[7u8; 100_000][..], text = "behind", c = 3);
    });
    let [text, bytes] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert!(text.payload <= 65_536 && text.payload > 65_000);
    assert!(fields(text).starts_with("a=1i long=\"üüü"));
    assert!(fields(text).ends_with("ü…\" b=2u again=\"…\" c=true"));
    assert!(bytes.payload <= 65_536 && bytes.payload > 65_000);
    assert!(fields(bytes).ends_with("07] text=\"…\" c=3i"));
}

#[test]
fn what_formatting_does_hurts_nobody() {
    struct Panics;
    impl fmt::Debug for Panics {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("half")?;
            // As a panic, without its noise.
            std::panic::resume_unwind(Box::new("a value of the test's"))
        }
    }
    struct Fails;
    impl fmt::Display for Fails {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    struct Writes(u32);
    impl fmt::Debug for Writes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0 > 0 {
                let span = info_span!(target: "t_hurt", "inner", depth = self.0).entered();
                info!(target: "t_hurt", deeper = ?Writes(self.0 - 1));
                drop(span);
            }
            write!(f, "W{}", self.0)
        }
    }
    subscribe();
    let heard = hear("t_hurt", || {
        info!(target: "t_hurt", a = 1, b = ?Panics, c = 2);
        info!(target: "t_hurt", a = %Fails, b = 1);
        info!(target: "t_hurt", a = "before", b = ?Writes(2), c = "behind");
    });
    let all: Vec<_> = heard
        .iter()
        .filter(|heard| !heard.line.contains("/Resume") && !heard.line.contains("/Suspend"))
        .map(|heard| match heard.line.starts_with("inner") {
            true => &*heard.line,
            false => fields(heard),
        })
        .collect();
    assert_eq!(
        all,
        [
            r#"a=1i b="<formatting panicked>" c=2i"#,
            r#"a="<formatting failed>" b=1i"#,
            "inner/Start depth=2u",
            "inner/Start depth=1u",
            r#"deeper="W0""#,
            "inner/Stop",
            r#"deeper="W1""#,
            "inner/Stop",
            r#"a="before" b="W2" c="behind""#,
        ]
    );
}

#[test]
fn a_session_may_be_started_while_a_value_is_formatted() {
    struct Listens;
    impl fmt::Debug for Listens {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let heard = hear("t_within", || info!(target: "t_within", "heard"));
            f.write_str(fields(&heard[0]))
        }
    }
    subscribe();
    let heard = hear("t_around", || info!(target: "t_around", a = ?Listens));
    assert_eq!(fields(&heard[0]), r#"a="message=\"heard\"""#);
}

/// Events without those of entering and leaving.
fn without_switches(provider: &str, work: impl FnOnce()) -> Vec<Heard> {
    let listener = listen(provider, eventpipe_tracing::TRACE, Level::Verbose);
    work();
    end(&listener)
}

#[test]
fn spans_are_activities_and_what_happens_inside_carries_them() {
    #[instrument(target = "t_spans", fields(later))]
    fn inner(number: u64) {
        info!(target: "t_spans", "in inner");
        tracing::Span::current().record("later", 7);
    }
    subscribe();
    let outside = activity::create();
    activity::set_current(outside);
    let heard = without_switches("t_spans", || {
        let outer = info_span!(target: "t_spans", "outer", kind = "test");
        info!(target: "t_spans", "before");
        outer.in_scope(|| {
            inner(5);
            info!(target: "t_spans", "in outer");
            info!(target: "t_spans", parent: None, "alone");
            drop(info_span!(target: "t_spans", parent: None, "root"));
        });
        info!(target: "t_spans", parent: &outer, "by hand");
        let friend = info_span!(target: "t_spans", parent: &outer, "friend");
        friend.follows_from(&outer);
        drop(outer);
        drop(friend);
        info!(target: "t_spans", "after");
    });
    activity::set_current(Guid::ZERO);
    let shortened: Vec<_> = heard
        .iter()
        .map(|heard| match heard.line.split_once("message=") {
            Some((_, message)) => message.replace('"', ""),
            None => heard.line.clone(),
        })
        .collect();
    let id = |line: &str| {
        heard[shortened
            .iter()
            .position(|known| known == line)
            .expect(line)]
        .id
    };
    let (outer, inner) = (id("outer/Start kind=\"test\""), id("inner/Start number=5u"));
    let (root, friend) = (id("root/Start"), id("friend/Start"));
    let none = Guid::ZERO;
    let all: Vec<_> = shortened
        .iter()
        .zip(&heard)
        .map(|(line, heard)| (&**line, heard.id, heard.related))
        .collect();
    assert_eq!(
        all,
        [
            ("outer/Start kind=\"test\"", outer, outside),
            ("before", outside, none),
            ("inner/Start number=5u", inner, outer),
            ("in inner", inner, none),
            ("inner/Extension later=7i", inner, none),
            ("inner/Stop", inner, none),
            ("in outer", outer, none),
            ("alone", none, none),
            ("root/Start", root, none),
            ("root/Stop", root, none),
            ("by hand", outer, none),
            ("friend/Start", friend, outer),
            ("friend/Receive", friend, outer),
            ("friend/Stop", friend, none),
            ("outer/Stop", outer, none),
            ("after", outside, none),
        ]
    );
}

#[test]
fn spans_may_be_left_in_any_order() {
    subscribe();
    let outside = activity::create();
    activity::set_current(outside);
    let heard = hear("t_order", || {
        let [a, b, c] = ["a", "b", "c"].map(|name| info_span!(target: "t_order", "span", name));
        let id = |span: &tracing::Span| span.in_scope(activity::current);
        let ids = [&a, &b, &c].map(id);
        let first = a.enter();
        let second = b.enter();
        let third = c.enter();
        let again = a.enter();
        drop(second);
        assert_eq!(activity::current(), ids[0]);
        drop(first);
        assert_eq!(activity::current(), ids[2], "the last entry is left first");
        drop(again);
        assert_eq!(activity::current(), ids[2]);
        drop(third);
        assert_eq!(activity::current(), Some(outside));
    });
    activity::set_current(Guid::ZERO);
    let count = |opcode| {
        lines(&heard)
            .iter()
            .filter(|line| line.contains(opcode))
            .count()
    };
    assert_eq!((count("/Resume"), count("/Suspend")), (7, 7));
}

#[test]
fn spans_move_between_threads_and_end_on_any() {
    subscribe();
    let heard = without_switches("t_moves", || {
        let span = info_span!(target: "t_moves", "work");
        let here = span.enter();
        info!(target: "t_moves", "here");
        let there = span.clone();
        std::thread::spawn(move || {
            info!(target: "t_moves", "outside");
            there.in_scope(|| info!(target: "t_moves", "there"));
            info!(target: "t_moves", "outside again");
            // Left and closed by the end of the thread's own data.
            thread_local! {
                static HELD: std::cell::RefCell<Option<tracing::span::EnteredSpan>> =
                    const { std::cell::RefCell::new(None) };
            }
            HELD.with(|held| *held.borrow_mut() = Some(there.entered()));
        })
        .join()
        .expect("no panic");
        drop(here);
        std::thread::spawn(move || drop(span))
            .join()
            .expect("no panic");
    });
    let id = heard[0].id;
    assert_ne!(id, Guid::ZERO);
    let all: Vec<_> = heard
        .iter()
        .map(|heard| (fields(heard), heard.id == id))
        .collect();
    assert_eq!(
        all,
        [
            ("", true),
            (r#"message="here""#, true),
            (r#"message="outside""#, false),
            (r#"message="there""#, true),
            (r#"message="outside again""#, false),
            ("", true),
        ]
    );
    assert_eq!(heard[5].line, "work/Stop");
    assert_ne!(heard[5].thread, heard[0].thread);
}

#[test]
fn a_future_has_its_activity_whenever_it_is_polled() {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
    }
    async fn task(number: u64) {
        info!(target: "t_async", "begins");
        Yield(false).await;
        info!(target: "t_async", "goes on");
        let _ = number;
    }
    subscribe();
    let heard = hear("t_async", || {
        let span = |number| info_span!(target: "t_async", "task", number);
        let mut one = pin!(task(1).instrument(span(1)));
        let mut two = pin!(task(2).instrument(span(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(one.as_mut().poll(&mut context).is_pending());
        assert!(two.as_mut().poll(&mut context).is_pending());
        info!(target: "t_async", "between");
        assert!(two.as_mut().poll(&mut context).is_ready());
        assert!(one.as_mut().poll(&mut context).is_ready());
    });
    let (one, two) = (heard[0].id, heard[1].id);
    assert_ne!(one, two);
    let of = |id: Guid| -> Vec<_> {
        let own = heard.iter().filter(|heard| heard.id == id);
        own.map(|heard| match fields(heard) {
            "" => &*heard.line,
            fields => fields,
        })
        .collect()
    };
    for (id, number) in [(one, "number=1i"), (two, "number=2i")] {
        let own = of(id);
        assert_eq!(
            own[..8],
            [
                number,
                "task/Resume",
                r#"message="begins""#,
                "task/Suspend",
                "task/Resume",
                r#"message="goes on""#,
                "task/Suspend",
                // The future is dropped inside of its span.
                "task/Resume",
            ]
        );
        assert_eq!(own[8..], ["task/Suspend", "task/Stop"]);
    }
    assert_eq!(of(Guid::ZERO), [r#"message="between""#]);
}

#[test]
fn a_span_from_before_the_session_is_none_for_it() {
    subscribe();
    let span = info_span!(target: "t_before", "old");
    let mut kept = None;
    let heard = without_switches("t_before", || {
        span.in_scope(|| info!(target: "t_before", "inside of what nobody saw"));
        kept = Some(info_span!(target: "t_before", "kept"));
    });
    assert_eq!(lines(&heard).len(), 2);
    assert_eq!(heard[0].id, Guid::ZERO);
    // One that ends after its session does so silently, or for another session.
    let kept = kept.expect("set");
    kept.in_scope(|| ());
    let later = without_switches("t_before", || drop(kept));
    assert_eq!(lines(&later), ["kept/Stop"]);
    assert_eq!(later[0].id, heard[1].id);
    drop(span);
}
