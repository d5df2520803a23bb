//! Names of users, from `/etc/passwd` alone: the tool is a static program that may run where nothing else is.

use std::collections::HashMap;

/// Names by number.
#[derive(Debug)]
pub(crate) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads the file; without it there are only numbers.
    pub(crate) fn read() -> Users {
        Users::of(&std::fs::read("/etc/passwd").unwrap_or_default())
    }

    fn of(passwd: &[u8]) -> Users {
        let text = String::from_utf8_lossy(passwd);
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1));
            if let (Some(name), Some(Ok(uid))) = (name, uid.map(str::parse)) {
                // The first of several names is the one that others print too.
                names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Users(names)
    }

    /// The name, if the number has one.
    pub(crate) fn name(&self, uid: u32) -> Option<&str> {
        self.0.get(&uid).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts_and_wrong_lines_do_not() {
        let users = Users::of(
            b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0\n# a:b\n\nx\nme:x:7:\n\xff:x:8:\n",
        );
        assert_eq!(users.name(0), Some("root"));
        assert_eq!(users.name(7), Some("me"));
        assert_eq!(users.name(9), None);
    }
}
