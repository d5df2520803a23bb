//! Response files: `@FILE` on the command line stands for the words in the file.
//!
//! As the .NET tools read them: words are separated by blanks and ends of lines, double quotes keep blanks, a line that
//! begins with `#` is a comment. A file may name another one. Behind `--` nothing is replaced.
//!
//! As with those tools, too, a colon may stand between an option and its value: `--resume-runtime:false`.

use crate::exit_code::{ExitCode, Failure};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};

/// How deep files may name each other.
const MAX_DEPTH: u32 = 8;
/// The largest response file.
const MAX_SIZE: u64 = 1 << 20;

/// The command line with its response files read.
pub(crate) fn expand(words: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut expanded = Vec::new();
    let mut words = words;
    // The program's own name is no argument.
    expanded.extend(words.next());
    while let Some(word) = words.next() {
        if word == "--" {
            expanded.push(word);
            expanded.extend(words);
            break;
        }
        add(word, 0, &mut expanded)?;
    }
    Ok(expanded)
}

fn add(word: OsString, depth: u32, expanded: &mut Vec<OsString>) -> Result<(), Failure> {
    let path = match word.to_str().and_then(|text| text.strip_prefix('@')) {
        Some(path) if !path.is_empty() => path.to_owned(),
        _ => {
            expanded.push(with_equals_sign(word));
            return Ok(());
        }
    };
    let failure = |cause: &str| {
        Failure::new(
            ExitCode::Arguments,
            format!("response file {path}: {cause}"),
        )
    };
    if depth == MAX_DEPTH {
        return Err(failure("response files name each other too deeply"));
    }
    // What it says of its size is not believed: a device says 0.
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        let file = File::open(&path)?.take(MAX_SIZE + 1);
        io::BufReader::new(file).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| failure(&error.to_string()))?;
    if text.len() as u64 > MAX_SIZE {
        return Err(failure("it is larger than 1 MiB"));
    }
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        for word in split(line).ok_or_else(|| failure("a double quote is not closed"))? {
            add(word.into(), depth + 1, expanded)?;
        }
    }
    Ok(())
}

/// `--option:value` as `--option=value`. No name of an option has a colon.
fn with_equals_sign(word: OsString) -> OsString {
    let parts = word.to_str().and_then(|text| text.split_once(':'));
    let Some((option, value)) = parts else {
        return word;
    };
    let is_letter = |c: char| c.is_ascii_lowercase();
    let is_option = match option.strip_prefix("--") {
        Some(name) => name.starts_with(is_letter) && !name.contains(|c| !is_letter(c) && c != '-'),
        None => option
            .strip_prefix('-')
            .is_some_and(|name| name.len() == 1 && name.starts_with(is_letter)),
    };
    if is_option {
        format!("{option}={value}").into()
    } else {
        word
    }
}

/// The words of a line. `\"` is a double quote.
fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if characters.peek() == Some(&'"') => {
                characters.next();
                word.get_or_insert_default().push('"');
            }
            blank if blank.is_whitespace() && !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_outside_of_quotes() {
        let words = |line| split(line).unwrap();
        assert_eq!(words("  -p 12\t--force "), ["-p", "12", "--force"]);
        assert_eq!(words("-o \"a b\" x\"y z\""), ["-o", "a b", "xy z"]);
        assert_eq!(words("\"\" \\\"q\\\""), ["", "\"q\""]);
        assert_eq!(split("\"open"), None);
    }

    #[test]
    fn a_colon_may_stand_behind_an_option() {
        for (word, expected) in [
            ("--resume-runtime:false", "--resume-runtime=false"),
            ("-p:12", "-p=12"),
            ("--providers:A:1:2", "--providers=A:1:2"),
            ("--providers=A:1", "--providers=A:1"),
            ("A:1", "A:1"),
            ("-1:2", "-1:2"),
            ("--:x", "--:x"),
            ("-", "-"),
        ] {
            assert_eq!(with_equals_sign(word.into()), expected, "{word}");
        }
    }

    #[test]
    fn files_are_read_in_place_and_not_behind_two_dashes() {
        let directory =
            std::env::temp_dir().join(format!("eventpipe-response-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.rsp");
        std::fs::write(&path, "# comment\n--force\n-o \"x y\"\n").unwrap();
        let at = format!("@{}", path.display());
        let words = |words: &[&str]| expand(words.iter().map(OsString::from));
        assert_eq!(
            words(&["@e", "collect", &at, "--", &at]).unwrap(),
            ["@e", "collect", "--force", "-o", "x y", "--", at.as_str()]
        );
        std::fs::write(&path, &at).unwrap();
        let error = words(&["e", &at]).unwrap_err().to_string();
        assert!(error.contains("too deeply"), "{error}");
        let error = words(&["e", "@/none"]).unwrap_err().to_string();
        assert!(error.contains("/none"), "{error}");
        let error = words(&["e", "@/dev/zero"]).unwrap_err().to_string();
        assert!(error.contains("1 MiB"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
