//! The grammar of `DOTNET_EventPipeConfig` (engine.md 9.3):
//! `name[:keywords[:level[:arguments]]],name…`, keywords hexadecimal, level decimal.

use alloc::string::String;
use alloc::vec::Vec;

use eventpipe_os::text;

use crate::filter::ProviderRequest;

/// Why a provider string was refused. `at` is the byte where the faulty provider starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderStringError {
    /// A provider has no name.
    EmptyName {
        /// Byte position in the string.
        at: usize,
    },
    /// Keywords that are not a hexadecimal number of 64 bits.
    Keywords {
        /// Byte position in the string.
        at: usize,
    },
    /// A level that is not a decimal number.
    Level {
        /// Byte position in the string.
        at: usize,
    },
}

impl ProviderStringError {
    /// What is wrong, without the position.
    pub fn text(&self) -> &'static str {
        match self {
            ProviderStringError::EmptyName { .. } => "a provider without a name",
            ProviderStringError::Keywords { .. } => "keywords that are not hexadecimal",
            ProviderStringError::Level { .. } => "a level that is not a number",
        }
    }

    /// Where the faulty provider starts, in bytes.
    pub fn at(&self) -> usize {
        match *self {
            ProviderStringError::EmptyName { at }
            | ProviderStringError::Keywords { at }
            | ProviderStringError::Level { at } => at,
        }
    }
}

impl core::fmt::Display for ProviderStringError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} at byte {} of the provider string",
            self.text(),
            self.at()
        )
    }
}

impl core::error::Error for ProviderStringError {}

/// Reads a provider string. Missing keywords are 0 and a missing level is verbose; keywords or a level that are there but
/// empty mean all. Arguments end at the next `:` or `,`, unless they stand in double quotes.
///
/// ```
/// let requests = eventpipe::parse_provider_string("Demo-Requests:0x1:4,Demo-Counters:::EventCounterIntervalSec=1")?;
/// assert_eq!((requests[0].keywords, requests[0].level), (1, 4));
/// assert_eq!(requests[1].arguments.as_deref(), Some("EventCounterIntervalSec=1"));
/// # Ok::<(), eventpipe::ProviderStringError>(())
/// ```
///
/// # Errors
/// [`ProviderStringError`] says what is wrong, and at which byte.
pub fn parse_provider_string(text: &str) -> Result<Vec<ProviderRequest>, ProviderStringError> {
    let mut requests = Vec::new();
    let mut at = 0;
    for provider in split_unquoted(text, b',') {
        requests.push(parse_provider(provider, at)?);
        at += provider.len() + 1;
    }
    Ok(requests)
}

fn parse_provider(text: &str, at: usize) -> Result<ProviderRequest, ProviderStringError> {
    let mut fields = split_unquoted(text, b':');
    let name = fields.next().unwrap_or_default().trim_ascii();
    if name.is_empty() {
        return Err(ProviderStringError::EmptyName { at });
    }
    let keywords = match fields.next().map(str::trim_ascii) {
        None => 0,
        Some("") => u64::MAX,
        Some(digits) => {
            let digits = digits
                .strip_prefix("0x")
                .or_else(|| digits.strip_prefix("0X"))
                .unwrap_or(digits);
            hexadecimal(digits).ok_or(ProviderStringError::Keywords { at })?
        }
    };
    let level = match fields.next().map(str::trim_ascii) {
        None => 5,
        Some("") => u32::MAX,
        Some(digits) => text::number(digits.as_bytes(), 10)
            .and_then(|level| u32::try_from(level).ok())
            .ok_or(ProviderStringError::Level { at })?,
    };
    let arguments = fields
        .next()
        .filter(|text| !text.is_empty())
        .map(String::from);
    Ok(ProviderRequest {
        name: String::from(name),
        keywords,
        level,
        arguments,
        event_ids: None,
    })
}

/// Digits only: the library's parser would take a sign.
pub(crate) fn hexadecimal(digits: &str) -> Option<u64> {
    text::number(digits.as_bytes(), 16)
}

fn split_unquoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text::split(text, move |byte| {
        quoted ^= byte == b'"';
        !quoted && byte == separator
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn one(text: &str) -> (String, u64, u32, Option<String>) {
        let requests = parse_provider_string(text).expect(text);
        assert_eq!(requests.len(), 1, "{text}");
        let request = requests.into_iter().next().expect(text);
        (
            request.name,
            request.keywords,
            request.level,
            request.arguments,
        )
    }

    #[test]
    fn missing_and_empty_fields_differ() {
        assert_eq!(one("P"), ("P".into(), 0, 5, None));
        assert_eq!(one("P:"), ("P".into(), u64::MAX, 5, None));
        assert_eq!(one("P:1f"), ("P".into(), 0x1F, 5, None));
        assert_eq!(one("P:0x1F:4"), ("P".into(), 0x1F, 4, None));
        assert_eq!(one("P::"), ("P".into(), u64::MAX, u32::MAX, None));
        assert_eq!(
            one("P:1:4:a=b;c=d"),
            ("P".into(), 1, 4, Some("a=b;c=d".into()))
        );
        assert_eq!(
            one("P:1:4:a=b:more"),
            ("P".into(), 1, 4, Some("a=b".into()))
        );
        assert_eq!(
            one("P:1:4:a=\"b:c,d\""),
            ("P".into(), 1, 4, Some("a=\"b:c,d\"".into()))
        );
    }

    #[test]
    fn providers_are_separated_by_commas() {
        let requests = parse_provider_string("A:1,B,C:2:3:x=y").expect("valid");
        let names: Vec<_> = requests
            .iter()
            .map(|request| request.name.as_str())
            .collect();
        assert_eq!(names, ["A", "B", "C"]);
    }

    #[test]
    fn faults_are_named_with_their_position() {
        assert_eq!(
            parse_provider_string(""),
            Err(ProviderStringError::EmptyName { at: 0 })
        );
        assert_eq!(
            parse_provider_string("A,,B"),
            Err(ProviderStringError::EmptyName { at: 2 })
        );
        assert_eq!(
            parse_provider_string("A,B:+1"),
            Err(ProviderStringError::Keywords { at: 2 })
        );
        assert_eq!(
            parse_provider_string("A:12345678901234567"),
            Err(ProviderStringError::Keywords { at: 0 })
        );
        assert_eq!(
            parse_provider_string("A:1:x"),
            Err(ProviderStringError::Level { at: 0 })
        );
        assert_eq!(
            parse_provider_string("A,B:g").map_err(|error| error.to_string()),
            Err("keywords that are not hexadecimal at byte 2 of the provider string".into())
        );
    }
}
