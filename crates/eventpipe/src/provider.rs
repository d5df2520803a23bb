//! Providers: named groups of events, and what they are told about sessions.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::callback::{Callback, ProviderChange};
use crate::control;
use crate::definition::{Definition, Level};
use crate::event::Event;

/// A named group of events. Lives for ever, like its [`Event`]s.
pub struct Provider {
    name: &'static str,
    /// Events known from the start; those defined at run time are in the registry only.
    events: &'static [&'static Event],
    registered: AtomicBool,
    /// Union of what the sessions ask for, for [`Provider::is_enabled`].
    keywords: AtomicU64,
    /// Highest level that a session asks for, plus one; 0 = no session.
    level: AtomicU8,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Provider {
    /// A provider with these events, for a `static`. It registers itself when one of its events is first used.
    pub const fn new(name: &'static str, events: &'static [&'static Event]) -> Self {
        Provider {
            name,
            events,
            registered: AtomicBool::new(false),
            keywords: AtomicU64::new(0),
            level: AtomicU8::new(0),
        }
    }

    /// A provider made at run time. It and its events are never given back.
    ///
    /// ```
    /// use eventpipe::{Definition, FieldDescription, FieldKind, Provider};
    ///
    /// let provider = Provider::builder("Demo-Plugins")
    ///     .on_change(|change| println!("{} {:?}", change.keywords, change.arguments))
    ///     .register();
    /// let loaded = provider.define(
    ///     Definition::new("Loaded").id(1).fields(&[FieldDescription { name: "Name", kind: FieldKind::String }]),
    /// );
    /// loaded.write(("zip",));
    /// ```
    pub fn builder(name: impl Into<String>) -> ProviderBuilder {
        ProviderBuilder {
            name: name.into(),
            callback: None,
        }
    }

    /// The provider of this name that registered first, if one is registered.
    pub fn find(name: &str) -> Option<&'static Provider> {
        control::find(name)
    }

    /// Name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the provider known to sessions, those that run and those to come. Does nothing when it is already known. Events of
    /// a provider register it by themselves; a program that wants its callback called before calls this.
    pub fn register(&'static self) {
        if !self.is_registered() {
            control::register(self, None);
        }
    }

    /// Registers the provider with a callback, or gives a registered one a (new) callback. It is called once for each session
    /// that runs and asks for the provider, and from then on for each change. It runs on the thread that makes the change,
    /// with no lock of the engine held; one call at a time, in the order of the changes.
    pub fn on_change(
        &'static self,
        callback: impl Fn(&ProviderChange<'_>) + Send + Sync + 'static,
    ) {
        control::register(self, Some(Arc::new(Callback::new(Box::new(callback)))));
    }

    /// Takes the provider away: its events are off and cannot be enabled until it is registered again, its callback is not
    /// called again and has returned, unless the caller is that callback itself.
    pub fn unregister(&'static self) {
        control::unregister(self);
    }

    /// Adds an event at run time. It is on at once if a running session wants it. The event is never given back.
    pub fn define(&'static self, definition: Definition) -> &'static Event {
        let event = Box::leak(Box::new(Event::new(self, definition)));
        control::define(self, event);
        event
    }

    /// Whether some session asks for events of this level with one of these keywords; for programs that prepare costly data.
    /// Two relaxed loads. Single events know exactly: [`Event::is_enabled`].
    pub fn is_enabled(&self, level: Level, keywords: u64) -> bool {
        (level as u8) < self.level.load(Ordering::Relaxed)
            && (keywords == 0 || self.keywords.load(Ordering::Relaxed) & keywords != 0)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    pub(crate) fn set_union(&self, union: Option<(u64, u32)>) {
        let (keywords, level) = match union {
            None => (0, 0),
            Some((keywords, level)) => (keywords, u8::try_from(level.min(5)).unwrap_or(5) + 1),
        };
        self.keywords.store(keywords, Ordering::Relaxed);
        self.level.store(level, Ordering::Relaxed);
    }

    pub(crate) fn events(&self) -> &'static [&'static Event] {
        self.events
    }
}

/// Makes a [`Provider`] at run time.
#[derive(Debug)]
pub struct ProviderBuilder {
    name: String,
    callback: Option<Arc<Callback>>,
}

impl ProviderBuilder {
    /// See [`Provider::on_change`].
    #[must_use]
    pub fn on_change(
        mut self,
        callback: impl Fn(&ProviderChange<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.callback = Some(Arc::new(Callback::new(Box::new(callback))));
        self
    }

    /// Makes the provider known to sessions.
    pub fn register(self) -> &'static Provider {
        let provider = Box::leak(Box::new(Provider::new(
            Box::leak(self.name.into_boxed_str()),
            &[],
        )));
        control::register(provider, self.callback);
        provider
    }
}
