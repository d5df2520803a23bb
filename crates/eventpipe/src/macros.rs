//! [`provider!`](crate::provider): providers and events as a module of plain functions.

/// Declares a provider and its events as a module.
///
/// ```
/// eventpipe::provider! {
///     /// Requests of a server.
///     pub mod requests = "Demo-Requests";
///
///     /// A request came in.
///     #[event(id = 1, level = Informational, keywords = 0x1, opcode = Start)]
///     fn request_start(id: u64, path: &str);
///
///     /// Something was odd.
///     #[event(id = 2, level = Warning, name = "Oddity", stack = false, version = 1)]
///     fn odd(what: &str);
/// }
///
/// requests::request_start(7, "/index.html"); // writes the event if a session wants it
/// if requests::request_start::is_enabled() {} // to be asked before costly work: one relaxed load
/// requests::request_start::EVENT.definition(); // the event itself
/// requests::PROVIDER.on_change(|change| println!("{}", change.is_enabled));
/// ```
///
/// An event is a function without a body and without `pub`: it is as visible as the module. Doc comments stand before `#[event(…)]`,
/// whose keys are those of [`Definition`](crate::Definition):
///
/// | key | value | without it |
/// |---|---|---|
/// | `id` | a number from 1, of which each event of the provider needs its own | the program does not compile |
/// | `level` | `LogAlways`, `Critical`, `Error`, `Warning`, `Informational`, `Verbose` | `Informational` |
/// | `keywords` | bits that a session chooses by | 0: every session of the provider gets the event |
/// | `opcode` | `Info`, `Start`, `Stop`, … ([`Opcode`](crate::Opcode)) | `Info` |
/// | `version` | a number, to be raised when the arguments change | 0 |
/// | `stack` | `false`: no call stack in any session | `true` |
/// | `name` | the name that readers show | the function's in Pascal case: `RequestStart` |
///
/// There may be up to sixteen arguments, of the types that implement [`Argument`](crate::Argument): `bool`, `char`, integers of up to 64 bits,
/// `f32`, `f64`, [`Guid`](crate::Guid), `&str` and `&[u8]`. Readers show them by their names.
///
/// Two events with one id do not compile:
///
/// ```compile_fail
/// eventpipe::provider! {
///     mod requests = "Demo-Requests";
///     #[event(id = 1)]
///     fn request_start(id: u64);
///     #[event(id = 1)]
///     fn request_stop(id: u64);
/// }
/// ```
#[macro_export]
macro_rules! provider {
    (
        $(#[doc = $provider_doc:expr])*
        $visibility:vis mod $module:ident = $provider:literal;
        $(
            $(#[doc = $event_doc:expr])*
            #[event($($key:ident = $value:expr),* $(,)?)]
            fn $event:ident($($argument:ident: $type:ty),* $(,)?);
        )*
    ) => {
        $(#[doc = $provider_doc])*
        $visibility mod $module {
            #[allow(unused_imports, reason = "types of arguments may come from outside")]
            use super::*;

            /// The provider.
            pub static PROVIDER: $crate::Provider =
                $crate::Provider::new($provider, &[$(&$event::EVENT),*]);

            const IDS: &[u32] = &[$($event::DEFINITION.event_id()),*];

            $(
                $(#[doc = $event_doc])*
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "an event has the fields that it has")]
                pub fn $event($($argument: $type),*) {
                    $event::EVENT.write_matching(($($argument,)*));
                }

                $(#[doc = $event_doc])*
                pub mod $event {
                    #[allow(unused_imports, reason = "types of arguments may come from outside")]
                    use super::*;

                    /// The event.
                    pub static EVENT: $crate::Event = $crate::Event::new(&PROVIDER, DEFINITION);

                    const _: () = assert!(
                        $crate::support::occurs_once(super::IDS, DEFINITION.event_id()),
                        concat!("the event `", stringify!($event), "` needs an id of its own, from 1: #[event(id = ...)]")
                    );

                    const NAME: &str = $crate::support::plain(stringify!($event));
                    const NAME_BYTES: [u8; $crate::support::pascal_length(NAME)] =
                        $crate::support::pascal_case(NAME);

                    pub(super) const DEFINITION: $crate::Definition = {
                        #[allow(unused_imports, reason = "not every event names a level and an opcode")]
                        use $crate::support::keys::*;
                        $crate::Definition::new($crate::support::text(&NAME_BYTES))
                            .fields(&[$($crate::FieldDescription {
                                name: $crate::support::plain(stringify!($argument)),
                                kind: <$type as $crate::Argument>::KIND,
                            }),*])
                            $(.$key($value))*
                    };

                    /// Whether any session wants the event: one relaxed load.
                    #[inline]
                    pub fn is_enabled() -> bool {
                        EVENT.is_enabled()
                    }
                }
            )*
        }
    };
}

/// What the macro's expansion needs; not for use by hand.
pub mod support {
    /// The names that [`provider!`](crate::provider) knows for levels and opcodes.
    #[expect(
        non_upper_case_globals,
        reason = "they are written as the format's documents write them"
    )]
    #[expect(missing_docs, reason = "the names are those of the format's documents")]
    pub mod keys {
        pub use crate::definition::Level::*;
        use crate::definition::Opcode;

        pub const Info: Opcode = Opcode::INFO;
        pub const Start: Opcode = Opcode::START;
        pub const Stop: Opcode = Opcode::STOP;
        pub const DataCollectionStart: Opcode = Opcode::DATA_COLLECTION_START;
        pub const DataCollectionStop: Opcode = Opcode::DATA_COLLECTION_STOP;
        pub const Extension: Opcode = Opcode::EXTENSION;
        pub const Reply: Opcode = Opcode::REPLY;
        pub const Resume: Opcode = Opcode::RESUME;
        pub const Suspend: Opcode = Opcode::SUSPEND;
        pub const Send: Opcode = Opcode::SEND;
        pub const Receive: Opcode = Opcode::RECEIVE;
    }

    /// Whether a number other than 0 stands in `ids` once.
    pub const fn occurs_once(ids: &[u32], id: u32) -> bool {
        let (mut at, mut times) = (0, 0);
        while at < ids.len() {
            if ids[at] == id {
                times += 1;
            }
            at += 1;
        }
        id != 0 && times == 1
    }

    /// The name of an identifier that may be raw: `r#type` → `type`.
    pub const fn plain(identifier: &str) -> &str {
        match identifier.as_bytes() {
            [b'r', b'#', ..] => identifier.split_at(2).1,
            _ => identifier,
        }
    }

    /// Bytes of [`pascal_case`].
    pub const fn pascal_length(snake: &str) -> usize {
        let bytes = snake.as_bytes();
        let mut length = 0;
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] != b'_' {
                length += 1;
            }
            at += 1;
        }
        length
    }

    /// `request_start` → `RequestStart`, at compile time.
    pub const fn pascal_case<const N: usize>(snake: &str) -> [u8; N] {
        let bytes = snake.as_bytes();
        let mut out = [0; N];
        let (mut at, mut length, mut first) = (0, 0, true);
        while at < bytes.len() {
            if bytes[at] == b'_' {
                first = true;
            } else {
                out[length] = if first {
                    bytes[at].to_ascii_uppercase()
                } else {
                    bytes[at]
                };
                length += 1;
                first = false;
            }
            at += 1;
        }
        out
    }

    /// Bytes as a string, at compile time.
    pub const fn text(bytes: &'static [u8]) -> &'static str {
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}
