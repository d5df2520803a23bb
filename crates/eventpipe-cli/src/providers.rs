//! The provider grammar of the command line: `Name[:KeywordsHex[:Level[:Arguments]]]`, joined by
//! commas, exactly as `dotnet-trace` documents it, and without its ambiguities.
//!
//! ```text
//! list       = provider { "," provider }
//! provider   = name [ ":" [ keywords ] [ ":" [ level ] [ ":" arguments ] ] ]
//! name       = the provider's own, as it is, or "*" for every provider: then the default is all keywords, Verbose
//! keywords   = hexadecimal digits, "0x" optional; default 0
//! level      = LogAlways | Critical | Error | Warning | Informational | Verbose (any case), or a
//!              number (above 5 it is taken as 5); default Informational
//! arguments  = key "=" value { ";" key "=" value }      the first "=" splits
//! ```
//!
//! Inside double quotes `,` `;` `=` `:` are plain characters, and `\n` `\r` `\t` `\\` stand for
//! line feed, carriage return, tab and backslash. The quotes themselves are not part of the value.
//! `\"` is read as `"`: the protocol has no way to carry a double quote inside a value, and a shell
//! that left the backslash in meant the quote.

use std::fmt;

/// One provider as it will be requested, and by which option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provider {
    /// The provider's name.
    pub(crate) name: String,
    /// The keyword bits.
    pub(crate) keywords: u64,
    /// Whether somebody chose them, also none; 0 is the default otherwise.
    pub(crate) has_keywords: bool,
    /// The level, 0 to 5.
    pub(crate) level: u8,
    /// The filter arguments in the order given.
    pub(crate) arguments: Vec<(String, String)>,
    /// The option or profile that asked for it; shown in the table.
    pub(crate) enabled_by: String,
}

/// The provider of the .NET runtime itself.
pub(crate) const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";

/// The name that stands for every provider.
pub(crate) const ALL: &str = "*";

/// Level names by number.
pub(crate) const LEVELS: [&str; 6] = [
    "LogAlways",
    "Critical",
    "Error",
    "Warning",
    "Informational",
    "Verbose",
];

/// Why a provider list was refused: one line that quotes the part that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProviderError(String);

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProviderError {}

impl Provider {
    /// Whether it was asked for by itself, not only as a part of a profile.
    pub(crate) fn is_named(&self) -> bool {
        let options = ["--providers", "--clrevents"];
        options
            .iter()
            .any(|option| self.enabled_by.contains(option))
    }

    /// The arguments as one string of the protocol: `key=value;key="v;2"`.
    pub(crate) fn argument_text(&self) -> String {
        let quoted = |text: &str| {
            if text.contains([';', '=']) {
                format!("\"{text}\"")
            } else {
                text.to_owned()
            }
        };
        let pairs: Vec<String> = self
            .arguments
            .iter()
            .map(|(key, value)| format!("{}={}", quoted(key), quoted(value)))
            .collect();
        pairs.join(";")
    }
}

/// A level with its name, as tables show it: `Informational(4)`.
pub(crate) fn level_text(level: u8) -> String {
    let name = LEVELS.get(usize::from(level)).copied().unwrap_or("?");
    format!("{name}({level})")
}

/// Reads a `--providers` value.
pub(crate) fn parse_list(list: &str, enabled_by: &str) -> Result<Vec<Provider>, ProviderError> {
    let wrong = |what: &str| ProviderError(format!("{enabled_by} '{list}': {what}"));
    let parts = split_outside_quotes(list, ',', usize::MAX)
        .ok_or_else(|| wrong("a quote is not closed"))?;
    // As for the existing tool a comma too many is none.
    let parts: Vec<&str> = parts
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .collect();
    if parts.is_empty() {
        return Err(wrong("no provider is named"));
    }
    let mut providers = Vec::new();
    for part in parts {
        merge(&mut providers, parse_one(part, enabled_by)?)?;
    }
    Ok(providers)
}

/// Adds a provider to a list. Twice the same name (in any case): keywords are united and the wider
/// level counts; two sets of arguments are an error, because one session can carry only one.
pub(crate) fn merge(list: &mut Vec<Provider>, new: Provider) -> Result<(), ProviderError> {
    let Some(old) = list
        .iter_mut()
        .find(|p| p.name.eq_ignore_ascii_case(&new.name))
    else {
        list.push(new);
        return Ok(());
    };
    if !new.arguments.is_empty() {
        if !old.arguments.is_empty() && old.arguments != new.arguments {
            return Err(ProviderError(format!(
                "provider '{}' is named twice with different arguments",
                new.name
            )));
        }
        old.arguments = new.arguments;
    }
    old.keywords |= new.keywords;
    old.has_keywords |= new.has_keywords;
    // LogAlways (0) as a session's level lets every event pass, so it is the widest.
    old.level = if old.level == 0 || new.level == 0 {
        0
    } else {
        old.level.max(new.level)
    };
    if old.enabled_by != new.enabled_by {
        old.enabled_by = format!("{}, {}", old.enabled_by, new.enabled_by);
    }
    Ok(())
}

/// Reads a level: a name in any case, or a number.
pub(crate) fn parse_level(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u32>() {
        return u8::try_from(number.min(5)).ok();
    }
    let position = LEVELS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    // The short form that dotnet-trace takes too.
    let position = position.or(text.eq_ignore_ascii_case("info").then_some(4));
    position.and_then(|index| u8::try_from(index).ok())
}

fn parse_one(text: &str, enabled_by: &str) -> Result<Provider, ProviderError> {
    let text = text.trim();
    let error = |what: String| Err(ProviderError(format!("{enabled_by} '{text}': {what}")));
    // The quotes are balanced in each part, because they were in the list and commas split outside.
    let mut parts = split_outside_quotes(text, ':', 4)
        .unwrap_or_default()
        .into_iter();
    let name = parts.next().unwrap_or_default().trim();
    if name.is_empty() {
        return error("the name is empty".into());
    }
    if name.contains(['"', '=', ';']) {
        return error(
            "the name holds a quote, '=' or ';' (arguments come fourth: \
                      Name:Keywords:Level:key=value)"
                .into(),
        );
    }
    let is_all = name == ALL;
    if !is_all && name.contains(['*', '?']) {
        return error(
            "processes know no patterns: write each name in full, or '*' alone for every provider"
                .into(),
        );
    }
    let keywords = parts.next().map_or("", str::trim);
    let has_keywords = !keywords.is_empty() || is_all;
    let keywords = match keywords {
        "" if is_all => u64::MAX,
        "" => 0,
        digits => {
            let bare = digits
                .strip_prefix("0x")
                .or(digits.strip_prefix("0X"))
                .unwrap_or(digits);
            match u64::from_str_radix(bare, 16) {
                // from_str_radix takes a sign.
                Ok(value) if !bare.starts_with('+') => value,
                _ => {
                    let hint = match name.eq_ignore_ascii_case(RUNTIME) {
                        true => " (--clrevents takes names)",
                        false => "",
                    };
                    return error(format!(
                        "keywords '{digits}' are not a hexadecimal number of at most 64 bits{hint}"
                    ));
                }
            }
        }
    };
    let level = match parts.next().map(str::trim) {
        None | Some("") if is_all => 5,
        None | Some("") => 4,
        Some(word) => match parse_level(word) {
            Some(level) => level,
            None => {
                return error(format!(
                    "level '{word}' is neither a number nor one of {}",
                    LEVELS.join(", ")
                ));
            }
        },
    };
    let arguments = match parts.next() {
        None | Some("") => Vec::new(),
        Some(rest) => match parse_arguments(rest) {
            Ok(arguments) => arguments,
            Err(what) => return error(what),
        },
    };
    Ok(Provider {
        name: name.to_owned(),
        keywords,
        has_keywords,
        level,
        arguments,
        enabled_by: enabled_by.to_owned(),
    })
}

fn parse_arguments(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut arguments: Vec<(String, String)> = Vec::new();
    for pair in split_outside_quotes(text, ';', usize::MAX).unwrap_or_default() {
        if pair.trim().is_empty() {
            continue;
        }
        let mut halves = split_outside_quotes(pair, '=', 2)
            .unwrap_or_default()
            .into_iter();
        let key = unquote(halves.next().unwrap_or_default().trim());
        let Some(value) = halves.next() else {
            return Err(format!("argument '{pair}' is not of the form key=value"));
        };
        if key.is_empty() {
            return Err(format!("argument '{pair}' has no key before '='"));
        }
        if arguments.iter().any(|(other, _)| *other == key) {
            return Err(format!("argument '{key}' is given twice"));
        }
        arguments.push((key, unquote(value)));
    }
    Ok(arguments)
}

/// Splits at `separator` outside double quotes, into at most `limit` parts (the last keeps the
/// rest). `None` if a quote is left open.
fn split_outside_quotes(text: &str, separator: char, limit: usize) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if escaped {
            escaped = false;
            if character != '"' {
                continue;
            }
        } else if character == '\\' && quoted {
            escaped = true;
            continue;
        }
        if character == '"' {
            quoted = !quoted;
        } else if character == separator && !quoted && parts.len() + 1 < limit {
            parts.push(&text[start..at]);
            start = at + character.len_utf8();
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

/// Takes the quotes away and resolves the escapes inside them.
fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' if characters.peek() == Some(&'"') => {}
            '\\' if quoted => match characters.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('\\') => out.push('\\'),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Provider {
        let mut list = parse_list(text, "--providers").unwrap();
        assert_eq!(list.len(), 1, "{list:?}");
        list.remove(0)
    }

    fn refused(text: &str) -> String {
        parse_list(text, "--providers").unwrap_err().to_string()
    }

    #[test]
    fn keywords_and_level_have_defaults() {
        let provider = one("Foo");
        assert_eq!((provider.keywords, provider.level), (0, 4));
        assert_eq!(one("Foo::5").level, 5);
        assert_eq!(one("Foo:ff").keywords, 0xff);
        assert_eq!(one("Foo:0xFFFFFFFFFFFFFFFF:verbose").keywords, u64::MAX);
        assert_eq!(one("Foo:1:LOGALWAYS").level, 0);
        assert_eq!(one("Foo:1:255").level, 5);
    }

    #[test]
    fn a_comma_too_many_is_none() {
        for list in ["Foo,,Bar", "Foo,Bar,", ", Foo , Bar"] {
            let names = parse_list(list, "--providers").unwrap();
            let names: Vec<&str> = names.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["Foo", "Bar"], "{list}");
        }
    }

    #[test]
    fn every_provider_is_asked_for_all_that_is_not_limited() {
        let asked = |text| (one(text).keywords, one(text).level, one(text).has_keywords);
        assert_eq!(asked("*"), (u64::MAX, 5, true));
        assert_eq!(asked("*:1"), (1, 5, true));
        assert_eq!(asked("*::4"), (u64::MAX, 4, true));
    }

    #[test]
    fn the_first_equals_sign_splits() {
        let provider = one("Foo:1:4:filter=a=b=c");
        assert_eq!(provider.arguments, [("filter".into(), "a=b=c".into())]);
        assert_eq!(provider.argument_text(), "filter=\"a=b=c\"");
    }

    #[test]
    fn commas_semicolons_and_colons_are_plain_inside_quotes() {
        let list = parse_list(r#"A:1:4:k="x,y;z:w=1";m=2,B:2"#, "--providers").unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(
            list[0].arguments,
            [("k".into(), "x,y;z:w=1".into()), ("m".into(), "2".into())]
        );
        assert_eq!(list[0].argument_text(), r#"k="x,y;z:w=1";m=2"#);
        assert_eq!(list[1].name, "B");
    }

    #[test]
    fn escapes_work_inside_quotes_only_and_an_escaped_quote_is_a_quote() {
        assert_eq!(one(r#"A:1:4:k="a\r\nb\\""#).arguments[0].1, "a\r\nb\\");
        assert_eq!(one(r"A:1:4:k=C:\new").arguments[0].1, r"C:\new");
        assert_eq!(one(r#"A:1:4:k=\"a;b\""#).arguments[0].1, "a;b");
    }

    #[test]
    fn arguments_may_hold_colons_without_quotes() {
        assert_eq!(one("A:1:4:url=http://x:80/").arguments[0].1, "http://x:80/");
    }

    #[test]
    fn what_is_wrong_is_quoted_in_one_line() {
        assert!(refused("Foo:xyz").contains("keywords 'xyz'"));
        assert!(refused("Foo:0x11112222333344445").contains("64 bits"));
        assert!(refused("microsoft-windows-dotnetruntime:gc").contains("--clrevents takes names"));
        assert!(refused("Foo:+1").contains("hexadecimal"));
        assert!(refused("Foo:1:loud").contains("level 'loud'"));
        assert!(refused(":1").contains("name is empty"));
        assert!(refused("").contains("no provider is named"));
        for pattern in ["No*", "Foo,*Bar:1", "Demo-Request?"] {
            assert!(refused(pattern).contains("'*' alone"), "{pattern}");
        }
        assert!(refused("Foo:1:4:k=\"a").contains("not closed"));
        assert!(refused("Foo:1:4:abc").contains("key=value"));
        assert!(refused("Foo:1:4:=abc").contains("no key"));
        assert!(refused("Foo:1:4:a=1;a=2").contains("given twice"));
        assert!(refused("Foo=1").contains("fourth"));
        for text in ["Foo:xyz", ",", "Foo:1:4:k=\"a"] {
            assert!(!refused(text).contains('\n'));
        }
    }

    #[test]
    fn the_same_provider_twice_is_united() {
        let list = parse_list("Foo:1:2,foo:2:5", "--providers").unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].keywords, list[0].level), (3, 5));
        let list = parse_list("Foo:1:0,Foo:2:5", "--providers").unwrap();
        assert_eq!(list[0].level, 0, "LogAlways lets everything pass");
        assert!(refused("Foo:1:4:a=1,Foo:1:4:a=2").contains("twice"));
    }
}
