//! Names with place-holders, as people write them who look for something in a trace.

/// Whether a name is as the pattern says: `*` stands for any characters, `?` for one, and letters of ASCII are compared
/// without regard to case.
///
/// ```
/// assert!(nettrace::pattern::matches("*-dotnetruntime*", "Microsoft-Windows-DotNETRuntimePrivate"));
/// assert!(nettrace::pattern::matches("gc/start", "GC/Start"));
/// assert!(!nettrace::pattern::matches("GC", "GC/Start"));
/// ```
pub fn matches(pattern: &str, name: &str) -> bool {
    is_as(pattern, name, |wanted, found| {
        wanted.eq_ignore_ascii_case(&found)
    })
}

/// The same where upper and lower case count.
pub fn matches_case(pattern: &str, name: &str) -> bool {
    is_as(pattern, name, |wanted, found| wanted == found)
}

fn is_as(pattern: &str, name: &str, is_same: impl Fn(char, char) -> bool) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Behind the last star, and the part of the name that it has not taken.
    let mut back = None;
    loop {
        let here = name.clone();
        match (pattern.next(), name.next()) {
            (Some('*'), _) => {
                name = here.clone();
                back = Some((pattern.clone(), here));
            }
            (Some(wanted), Some(found)) if wanted == '?' || is_same(wanted, found) => {}
            (None, None) => return true,
            (Some(_), None) => return false,
            (_, Some(_)) => match &mut back {
                Some((behind, left)) => {
                    left.next();
                    (pattern, name) = (behind.clone(), left.clone());
                }
                None => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("*", ""),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a?c", "aéc"),
            ("*b*b", "abbab"),
            ("a**", "a"),
            ("", ""),
            ("ä*ß", "äßßß"),
            ("*?", "a"),
            ("a*b?d", "aXbcbxd"),
        ] {
            assert!(matches_case(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("?", ""),
            ("a*c", "abd"),
            ("*ab", "aba"),
            ("", "a"),
            ("*?", ""),
            ("A", "a"),
        ] {
            assert!(!matches_case(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn case_is_that_of_ascii() {
        assert!(matches("microsoft-*", "Microsoft-Windows"));
        assert!(matches("*X*", "axb"));
        assert!(!matches("Ä", "ä"));
        assert!(!matches("äö*", "a"));
    }
}
