//! `eventpipe list-profiles`: the built-in sets of providers.

use crate::profiles::{DEFAULT_PROFILES, PROFILES};
use crate::table::{self, Align, Table};
use crate::terminal;
use std::io::Write as _;

/// Prints the list.
pub(crate) fn list_profiles() -> anyhow::Result<()> {
    let mut list = Table::new(&[("PROFILE", Align::Left), ("", Align::Left)]).may_cut_end(1);
    for profile in &PROFILES {
        let default = if DEFAULT_PROFILES.contains(&profile.name) {
            "(default) "
        } else {
            ""
        };
        list.row([
            profile.name.to_owned(),
            format!("{default}{}", profile.description),
        ]);
    }
    let mut out = terminal::out();
    write!(out, "{}", list.render(table::stdout_width()))?;
    Ok(out.flush()?)
}
