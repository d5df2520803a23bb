//! The grammar of `DOTNET_DiagnosticPorts` as a runtime reads it (ipc.md 4), and of a tool's own port argument.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Which side opens the connections of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortMode {
    /// The process connects to the address and advertises itself.
    Connect,
    /// The process listens at the address.
    Listen,
}

/// One port of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortConfig {
    /// A socket's path.
    pub address: String,
    /// Who opens connections.
    pub mode: PortMode,
    /// Whether the process waits at its start for a ResumeRuntime on this port.
    pub suspend: bool,
}

impl PortConfig {
    /// The ports of a list, `address[,tag]*` separated by `;`, in the list's order.
    ///
    /// Never fails, as in existing runtimes: empty entries are skipped, unknown tags (also ones with blanks in front)
    /// are ignored, the first tag of a kind counts, case does not, and the first word of an entry is its address even
    /// where it looks like a tag. Without tags a port connects and suspends.
    ///
    /// ```
    /// use dotnet_diagnostics::port_config::{PortConfig, PortMode};
    /// let ports = PortConfig::parse_list("/tmp/a.sock,nosuspend; /tmp/b.sock,LISTEN");
    /// assert_eq!(ports[0].mode, PortMode::Connect);
    /// assert!(!ports[0].suspend && ports[1].suspend);
    /// assert_eq!((ports[1].address.as_str(), ports[1].mode), ("/tmp/b.sock", PortMode::Listen));
    /// ```
    pub fn parse_list(list: &str) -> Vec<PortConfig> {
        split(list, b';')
            .filter_map(PortConfig::parse_entry)
            .collect()
    }

    fn parse_entry(entry: &str) -> Option<PortConfig> {
        let mut words = split(entry, b',').filter(|word| !word.is_empty());
        let address = words.next()?.trim_ascii();
        if address.is_empty() {
            return None;
        }
        let (mut mode, mut suspend) = (None, None);
        for tag in words {
            if tag.eq_ignore_ascii_case("connect") {
                mode.get_or_insert(PortMode::Connect);
            } else if tag.eq_ignore_ascii_case("listen") {
                mode.get_or_insert(PortMode::Listen);
            } else if tag.eq_ignore_ascii_case("suspend") {
                suspend.get_or_insert(true);
            } else if tag.eq_ignore_ascii_case("nosuspend") {
                suspend.get_or_insert(false);
            }
        }
        Some(PortConfig {
            address: address.to_string(),
            mode: mode.unwrap_or(PortMode::Connect),
            suspend: suspend.unwrap_or(true),
        })
    }
}

/// The port argument of a tool, `path[,connect|listen]`: who the *tool* is. Default: it listens (ipc.md 6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolPort {
    /// The socket's path.
    pub path: String,
    /// Whether the tool listens for processes that dial in, or connects to one that listens.
    pub mode: PortMode,
}

/// Why a port argument cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolPortError {
    /// Nothing in front of the first comma.
    #[error("the diagnostic port has no path")]
    NoPath,
    /// Something else than `connect` or `listen` behind the comma.
    #[error("a diagnostic port is `path`, `path,listen` or `path,connect`")]
    UnknownTag,
    /// A kind of transport that this system does not have.
    #[error("only sockets are diagnostic ports on this system")]
    UnsupportedScheme,
}

impl ToolPort {
    /// Takes the argument apart; `uds:` in front of the path is allowed.
    ///
    /// # Errors
    /// [`ToolPortError`].
    pub fn parse(argument: &str) -> Result<ToolPort, ToolPortError> {
        let (path, mode) = match argument.rsplit_once(',') {
            None => (argument, PortMode::Listen),
            Some((path, tag)) if tag.trim().eq_ignore_ascii_case("listen") => {
                (path, PortMode::Listen)
            }
            Some((path, tag)) if tag.trim().eq_ignore_ascii_case("connect") => {
                (path, PortMode::Connect)
            }
            Some(_) => return Err(ToolPortError::UnknownTag),
        };
        let path = path.trim();
        let says_mode = |tag: &str| {
            let tag = tag.trim();
            tag.eq_ignore_ascii_case("listen") || tag.eq_ignore_ascii_case("connect")
        };
        if path.rsplit_once(',').is_some_and(|(_, tag)| says_mode(tag)) {
            return Err(ToolPortError::UnknownTag);
        }
        if path.starts_with("namedpipe:") {
            return Err(ToolPortError::UnsupportedScheme);
        }
        let path = path.strip_prefix("uds:").unwrap_or(path);
        let path = match path.strip_prefix("//") {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        };
        if path.is_empty() {
            return Err(ToolPortError::NoPath);
        }
        Ok(ToolPort {
            path: path.to_string(),
            mode,
        })
    }
}

/// The parts between separators. In little code: programs that are traced contain it.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let text = rest?;
        let end = text.bytes().position(|byte| byte == separator);
        let (part, behind) = text.split_at_checked(end.unwrap_or(text.len()))?;
        rest = end.and_then(|_| behind.get(1..));
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(entry: &str) -> (String, PortMode, bool) {
        let ports = PortConfig::parse_list(entry);
        assert_eq!(ports.len(), 1, "{entry}");
        let port = ports.into_iter().next().unwrap();
        (port.address, port.mode, port.suspend)
    }

    #[test]
    fn ports_are_read_as_the_runtime_reads_them() {
        use PortMode::{Connect, Listen};
        for (entry, expected) in [
            ("/p", ("/p", Connect, true)),
            (" /p ,NoSuspend", ("/p", Connect, false)),
            ("/p, nosuspend", ("/p", Connect, true)),
            ("/p,nosuspend,suspend", ("/p", Connect, false)),
            ("/p,listen,connect", ("/p", Listen, true)),
            ("/p,what,,connect", ("/p", Connect, true)),
            ("nosuspend,connect", ("nosuspend", Connect, true)),
        ] {
            let (address, mode, suspend) = one(entry);
            assert_eq!((address.as_str(), mode, suspend), expected, "{entry}");
        }
        assert!(PortConfig::parse_list("").is_empty());
        assert!(PortConfig::parse_list(";; ;,").is_empty());
        assert_eq!(PortConfig::parse_list("/a;/b,listen;").len(), 2);
    }

    #[test]
    fn a_tools_port_listens_unless_told_otherwise() {
        let parsed = |text| ToolPort::parse(text).map(|port| (port.path, port.mode));
        assert_eq!(parsed("/a"), Ok(("/a".into(), PortMode::Listen)));
        assert_eq!(
            parsed("uds:/a,connect"),
            Ok(("/a".into(), PortMode::Connect))
        );
        assert_eq!(
            parsed("uds:///a,LISTEN"),
            Ok(("/a".into(), PortMode::Listen))
        );
        assert_eq!(parsed(",connect"), Err(ToolPortError::NoPath));
        assert_eq!(parsed("/a,suspend"), Err(ToolPortError::UnknownTag));
        assert_eq!(parsed("/a,connect,listen"), Err(ToolPortError::UnknownTag));
        assert_eq!(parsed("namedpipe:a"), Err(ToolPortError::UnsupportedScheme));
    }
}
