//! `eventpipe list-profiles`: the built-in sets of providers.

use crate::profiles::{DEFAULT_PROFILES, PROFILES};
use crate::table::{self, Align, Table};
use crate::terminal;
use std::io::Write as _;

/// Columns that names and descriptions take side by side.
const WIDTH: usize = 110;

/// Prints the list.
pub(crate) fn list_profiles() -> anyhow::Result<()> {
    let mut out = terminal::out();
    let width = table::stdout_width();
    // Sentences are not cut.
    let is_narrow = width.is_some_and(|width| width < WIDTH);
    let mut list = Table::new(&[("PROFILE", Align::Left), ("", Align::Left)]).may_cut_end(1);
    for profile in &PROFILES {
        let default = if DEFAULT_PROFILES.contains(&profile.name) {
            "(default) "
        } else {
            ""
        };
        let description = format!("{default}{}", profile.description);
        if is_narrow {
            let text = table::wrapped(&format!("    {description}"), width, 4);
            writeln!(out, "{}\n{text}", profile.name)?;
        } else {
            list.row([profile.name.to_owned(), description]);
        }
    }
    if !is_narrow {
        write!(out, "{}", list.render(width))?;
    }
    Ok(out.flush()?)
}
