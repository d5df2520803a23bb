//! `eventpipe ps`: the processes that can be traced.

use crate::cli::Ps;
use crate::table::{self, Align, Table};
use crate::target::{self, Described};
use crate::terminal;
use crate::users::Users;
use serde::Serialize;
use std::io::Write as _;

/// A process as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    container_pid: Option<u32>,
    name: String,
    uid: u32,
    user: Option<String>,
    /// `.NET` or `EventPipe`.
    kind: Option<&'static str>,
    runtime: Option<String>,
    product_version: Option<String>,
    entry_assembly: Option<String>,
    operating_system: Option<String>,
    architecture: Option<String>,
    executable: Option<String>,
    command_line: String,
    socket: String,
    /// Why the process did not say more.
    error: Option<String>,
}

/// Prints the list.
pub(crate) fn ps(arguments: &Ps) -> anyhow::Result<()> {
    let processes = target::all()?;
    let users = Users::read();
    let mut out = terminal::out();
    if arguments.json {
        let rows: Vec<Row> = processes.iter().map(|one| row(one, &users)).collect();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    if processes.is_empty() {
        let whose = if rustix::process::geteuid().is_root() {
            ""
        } else {
            " among those of this user (root sees all)"
        };
        terminal::note(format_args!(
            "no process that can be traced was found{whose}"
        ));
        return Ok(());
    }
    let in_containers = processes
        .iter()
        .any(|d| d.process.container_pid != d.process.pid);
    let mut headers = vec![("PID", Align::Right)];
    if in_containers {
        headers.push(("INNER", Align::Right));
    }
    let name_column = headers.len() + 1;
    headers.extend([
        ("USER", Align::Left),
        ("NAME", Align::Left),
        ("RUNTIME", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    let mut list = Table::new(&headers)
        .may_cut_end(name_column + 2)
        .may_cut_end(name_column)
        .may_cut_end(name_column + 1)
        .may_leave_out(&[name_column + 2]);
    for described in &processes {
        let process = &described.process;
        let mut cells = vec![process.pid.to_string()];
        if in_containers {
            cells.push(process.container_pid.to_string());
        }
        let user = users.name(process.uid).map(str::to_owned);
        cells.extend([
            user.unwrap_or_else(|| process.uid.to_string()),
            described.name(),
            described.runtime(),
            described.command_line(),
        ]);
        list.row(cells);
    }
    write!(out, "{}", list.render(table::stdout_width()))?;
    out.flush()?;
    for described in &processes {
        if let Some(error) = described.trouble() {
            terminal::note(format_args!("{}: {error}", described.process.pid));
        }
    }
    Ok(())
}

fn row(described: &Described, users: &Users) -> Row {
    let process = &described.process;
    let info = described.info.as_ref().ok();
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Row {
        pid: process.pid,
        container_pid: Some(process.container_pid).filter(|&pid| pid != process.pid),
        name: described.name(),
        uid: process.uid,
        user: users.name(process.uid).map(str::to_owned),
        kind: described.kind(),
        runtime: Some(described.runtime()).filter(|name| name != "?"),
        product_version: info.and_then(|info| said(&info.product_version)),
        entry_assembly: info.and_then(|info| said(&info.entry_assembly)),
        operating_system: info.and_then(|info| said(&info.operating_system)),
        architecture: info.and_then(|info| said(&info.architecture)),
        executable: process.executable().map(|path| path.display().to_string()),
        command_line: described.command_line(),
        socket: process.socket.display().to_string(),
        error: described.trouble(),
    }
}
