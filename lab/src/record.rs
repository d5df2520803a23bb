//! `lab record`: the plainest of recorders, a process for tests to kill.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use dotnet_diagnostics::client::{Client, Fallbacks};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};

/// Whom to record, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The process.
    #[arg(long)]
    pid: u32,
    /// The provider.
    #[arg(long)]
    provider: String,
    /// The file.
    #[arg(long)]
    output: PathBuf,
    /// The session's buffer.
    #[arg(long, default_value_t = 64)]
    buffer_mb: u32,
    /// Open the session and never read it.
    #[arg(long)]
    stalled: bool,
}

/// Records until the process ends. Prints `recording` once the session is open.
///
/// # Errors
/// The session does not open, the file cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let process = dotnet_diagnostics::discovery::find(arguments.pid)?;
    let provider = ProviderConfig::new(arguments.provider.as_str(), u64::MAX, 5);
    let mut request = CollectTracing::new([provider]);
    request.buffer_mb = arguments.buffer_mb;
    request.rundown_keyword = 0;
    let mut session = Client::new(process.endpoint()).collect(&request, Fallbacks::NONE)?;
    println!("recording");
    std::io::stdout().flush()?;
    if arguments.stalled {
        loop {
            std::thread::park();
        }
    }
    let mut file = std::fs::File::create(&arguments.output)
        .with_context(|| format!("creating {}", arguments.output.display()))?;
    std::io::copy(&mut session, &mut file).context("recording")?;
    Ok(())
}
