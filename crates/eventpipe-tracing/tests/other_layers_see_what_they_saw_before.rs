//! Promise: the layer switches nothing off and nothing on for others, whoever traces; and nothing that is filtered for others is missing here.

mod common;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use common::{end, hear, listen};
use eventpipe::Level;
use tracing::subscriber::with_default;
use tracing::{Subscriber, debug, info, info_span, warn};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry};

/// `tracing` keeps one answer of all subscribers for each callsite: one test at a time, so that a test is about its own.
static ALONE: Mutex<()> = Mutex::new(());

/// What is printed.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn layer<S>(&self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> registry::LookupSpan<'a>,
    {
        let paper = self.clone();
        fmt::layer()
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(move || paper.clone())
    }

    fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().expect("unpoisoned"));
        String::from_utf8(bytes).expect("text")
    }
}

/// One event at each of three levels in a span, from the same callsites each time.
fn work() {
    info_span!(target: "t_others", "span").in_scope(|| {
        warn!(target: "t_others", "w");
        info!(target: "t_others", "i");
        debug!(target: "t_others", "d");
    });
}

/// The lines of [`work`] that a layer up to INFO prints.
const UP_TO_INFO: &str = " WARN span: w\n INFO span: i\n";

fn up_to(level: Level) -> Vec<String> {
    let listener = listen("t_others", 0, level);
    work();
    end(&listener).into_iter().map(|heard| heard.line).collect()
}

/// Before, between, during and after sessions of each kind.
fn check(paper: &Paper, expected: &str) {
    for _ in 0..2 {
        work();
        assert_eq!(paper.take(), expected);
        assert_eq!(up_to(Level::Error), [""; 0]);
        assert_eq!(paper.take(), expected);
        assert_eq!(up_to(Level::Informational).len(), 4);
        assert_eq!(paper.take(), expected);
        let all = up_to(Level::Verbose);
        assert_eq!(all.len(), 5, "{all:?}");
        assert_eq!(paper.take(), expected);
        assert_eq!(hear("t_others_not", work).len(), 0);
        assert_eq!(paper.take(), expected);
    }
}

#[test]
fn beside_a_layer_with_a_filter_of_its_own_in_either_order() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let paper = Paper::default();
    let outside = registry()
        .with(eventpipe_tracing::layer())
        .with(paper.layer().with_filter(LevelFilter::INFO));
    with_default(outside, || check(&paper, UP_TO_INFO));
    let inside = registry()
        .with(paper.layer().with_filter(EnvFilter::new("t_others=info")))
        .with(eventpipe_tracing::layer());
    with_default(inside, || check(&paper, UP_TO_INFO));
}

#[test]
fn beside_a_layer_without_a_filter() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let paper = Paper::default();
    let subscriber = registry()
        .with(paper.layer())
        .with(eventpipe_tracing::layer());
    with_default(subscriber, || {
        check(&paper, &(UP_TO_INFO.to_owned() + "DEBUG span: d\n"));
    });
}

#[test]
fn in_a_box_and_behind_another_filter() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let boxed: Box<dyn Layer<registry::Registry> + Send + Sync> =
        Box::new(eventpipe_tracing::layer().with_filter(LevelFilter::INFO));
    with_default(registry().with(vec![boxed]), || {
        assert_eq!(up_to(Level::Verbose).len(), 4);
        assert_eq!(up_to(Level::Warning).len(), 1);
        assert_eq!(up_to(Level::Verbose).len(), 4);
    });
    // A filter of the whole subscriber is one for this layer too.
    let global = registry()
        .with(LevelFilter::WARN)
        .with(eventpipe_tracing::layer());
    with_default(global, || assert_eq!(up_to(Level::Verbose).len(), 1));
}

#[test]
fn sessions_of_one_thread_leave_the_subscriber_of_another_thread_alone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let paper = Paper::default();
    let subscriber = registry()
        .with(eventpipe_tracing::layer())
        .with(paper.layer().with_filter(LevelFilter::INFO));
    let (go, gone) = mpsc::channel::<mpsc::Sender<()>>();
    std::thread::scope(|scope| {
        let paper = &paper;
        scope.spawn(move || {
            with_default(subscriber, || {
                for done in gone {
                    work();
                    done.send(()).expect("somebody waits");
                }
            });
        });
        // This thread has no subscriber, and there is none for the whole program.
        let work_there = || {
            let (done, wait) = mpsc::channel();
            go.send(done).expect("the thread is there");
            wait.recv().expect("it works");
        };
        for _ in 0..3 {
            work_there();
            assert_eq!(paper.take(), UP_TO_INFO);
            let listener = listen("t_others", 0, Level::Verbose);
            work_there();
            assert_eq!(end(&listener).len(), 5);
            assert_eq!(paper.take(), UP_TO_INFO);
        }
        drop(go);
    });
}

#[test]
fn subscribers_of_several_threads_are_all_asked() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // One that has come and gone, and one without the layer.
    with_default(registry().with(eventpipe_tracing::layer()), work);
    let paper = Paper::default();
    let plain = registry().with(paper.layer().with_filter(LevelFilter::INFO));
    with_default(plain, || {
        work();
        assert_eq!(paper.take(), UP_TO_INFO);
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| {
                    with_default(registry().with(eventpipe_tracing::layer()), || {
                        work();
                        start.wait();
                        start.wait();
                        work();
                        start.wait();
                    });
                })
            });
            start.wait();
            let listener = listen("t_others", 0, Level::Verbose);
            start.wait();
            start.wait();
            assert_eq!(end(&listener).len(), 2 * 5);
            work();
            assert_eq!(paper.take(), UP_TO_INFO);
            for thread in threads {
                thread.join().expect("no panic");
            }
        });
    });
}

#[test]
fn a_callsite_that_nobody_wants_is_asked_no_more() {
    /// Counts how often it is asked, and wants nothing.
    struct Counts(Arc<AtomicUsize>);
    impl<S: Subscriber> tracing_subscriber::layer::Filter<S> for Counts {
        fn enabled(&self, _: &tracing::Metadata<'_>, _: &Context<'_, S>) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
        fn callsite_enabled(
            &self,
            _: &'static tracing::Metadata<'static>,
        ) -> tracing::subscriber::Interest {
            tracing::subscriber::Interest::never()
        }
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = Arc::new(AtomicUsize::new(0));
    let nothing = fmt::layer().with_filter(Counts(asked.clone()));
    let subscriber = registry().with(nothing).with(eventpipe_tracing::layer());
    with_default(subscriber, || {
        let once = || info!(target: "t_unwanted", "x");
        // Uses it until it is not asked about; how often it was. After a thousand vain questions another thread sees to it: when, is the
        // system's business.
        let settle = || {
            let hung = Instant::now() + Duration::from_secs(120);
            (0..).take_while(|_| Instant::now() < hung).find(|_| {
                let before = asked.load(Ordering::Relaxed);
                once();
                asked.load(Ordering::Relaxed) == before
            })
        };
        assert!(
            settle().is_some_and(|times| times > 0),
            "the first use is asked about"
        );
        assert_eq!(hear("t_unwanted", once).len(), 1);
        assert!(
            settle().is_some(),
            "after the session it is asked each time"
        );
        assert_eq!(hear("t_unwanted", once).len(), 1);
    });
}

#[test]
fn an_answer_from_before_the_session_that_is_kept_after_its_start_loses_nothing() {
    /// Wants nothing, and takes its time to say so for the first time.
    struct Slow {
        asked: mpsc::Sender<()>,
        go: Mutex<Option<mpsc::Receiver<()>>>,
    }
    impl<S: Subscriber> tracing_subscriber::layer::Filter<S> for Slow {
        fn enabled(&self, _: &tracing::Metadata<'_>, _: &Context<'_, S>) -> bool {
            false
        }
        fn callsite_enabled(
            &self,
            metadata: &'static tracing::Metadata<'static>,
        ) -> tracing::subscriber::Interest {
            let go = self
                .go
                .lock()
                .expect("unpoisoned")
                .take_if(|_| metadata.target() == "t_slow");
            if let Some(go) = go {
                self.asked.send(()).expect("the test waits");
                go.recv().expect("the session starts");
            }
            tracing::subscriber::Interest::never()
        }
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (asked, was_asked) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let slow = Slow {
        asked,
        go: Mutex::new(Some(wait)),
    };
    // The outer layer is asked first.
    let subscriber = registry()
        .with(fmt::layer().with_filter(slow))
        .with(eventpipe_tracing::layer());
    let user = std::thread::spawn(|| {
        with_default(subscriber, || {
            let once = || info!(target: "t_slow", "x");
            once();
            once();
        });
    });
    was_asked.recv().expect("the first use is asked about");
    let listener = listen("t_slow", 0, Level::Informational);
    go.send(()).expect("it waits");
    user.join().expect("no panic");
    // The second one, at least.
    assert!(!end(&listener).is_empty());
}
