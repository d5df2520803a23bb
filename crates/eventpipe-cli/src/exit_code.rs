//! How the tool ends: one number per kind of outcome, the same for every command.
//!
//! 0–5 mean what they mean for `dotnet-trace`, so that scripts written for it keep working; the
//! rest tells apart what a script may want to treat differently. `--help` and README.md repeat
//! this table; [`TABLE`] is the text that `--help` prints.

use std::{fmt, io};

/// The exit codes of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// Everything asked for was done.
    Ok = 0,
    /// The target was not found, could not be reached, or refused the session.
    Session = 1,
    /// A recording ended early (the target died, the connection broke); what came is in the file.
    Tracing = 2,
    /// The command line cannot be understood.
    Arguments = 3,
    /// The target's runtime or this system cannot do it.
    Unsupported = 4,
    /// An error that has no code of its own.
    Unexpected = 5,
    /// An input file is missing, unreadable, empty, or not a trace.
    Input = 6,
    /// An input trace is damaged or ends early; everything before the damage was processed.
    Damaged = 7,
    /// The output could not be written: it exists already, a full disk, no permission.
    Output = 8,
    /// Events were lost and `--fail-on-drop` was given.
    EventsLost = 9,
}

/// The table of exit codes as `--help` shows it.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done
  1  the target was not found, not reachable, or refused the session
  2  the recording broke off; the file holds what came until then
  3  wrong arguments
  4  not supported by the target's runtime or by this system
  5  unexpected error
  6  input missing, unreadable, empty or not a trace
  7  input damaged or cut short; everything before the damage was used
  8  output cannot be written (exists, disk full, no permission)
  9  events were lost and --fail-on-drop was given
`collect -- COMMAND` ends with the command's own code (128 + n after signal
n) when the recording itself succeeded.";

/// An error that knows its exit code. The root, or a context, of the `anyhow` errors of this crate.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ExitCode,
    message: String,
}

impl Failure {
    /// An error with its exit code; `message` is one line that names the cause.
    pub(crate) fn new(code: ExitCode, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }

    /// Its exit code.
    pub(crate) fn code(&self) -> ExitCode {
        self.code
    }

    /// The exit code an error asks for: that of its outermost [`Failure`], which may lie in an error of input or output.
    pub(crate) fn code_of(error: &anyhow::Error) -> ExitCode {
        let within = |cause: &(dyn std::error::Error + 'static)| {
            let io = cause.downcast_ref::<io::Error>()?;
            Some(io.get_ref()?.downcast_ref::<Failure>()?.code)
        };
        // What is written as JSON is written to standard output; the error does not give out the one within.
        let json = |cause: &(dyn std::error::Error + 'static)| {
            let json = cause.downcast_ref::<serde_json::Error>()?;
            json.io_error_kind().map(|_| ExitCode::Output)
        };
        let code = error.downcast_ref::<Failure>().map(|failure| failure.code);
        code.or_else(|| {
            error
                .chain()
                .find_map(|cause| within(cause).or(json(cause)))
        })
        .unwrap_or(ExitCode::Unexpected)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_code_survives_context_on_both_sides() {
        let inner: anyhow::Result<()> = Err(Failure::new(ExitCode::Input, "empty").into());
        let error = inner.context("reading a.nettrace").unwrap_err();
        assert_eq!(Failure::code_of(&error), ExitCode::Input);
        let outer = std::fs::read("/nowhere/at/all")
            .context(Failure::new(ExitCode::Output, "cannot write"))
            .unwrap_err();
        assert_eq!(Failure::code_of(&outer), ExitCode::Output);
        assert_eq!(
            Failure::code_of(&anyhow::anyhow!("other")),
            ExitCode::Unexpected
        );
    }

    #[test]
    fn the_table_names_every_code() {
        for code in 0..=ExitCode::EventsLost as u8 {
            assert!(
                TABLE.contains(&format!("\n  {code}  ")),
                "code {code} is missing"
            );
        }
    }
}
