//! The codec with an asynchronous runtime: who is this process, and a second of its events.
//!
//! `cargo run -p dotnet-diagnostics --example async_client -- PID [FILE]`
//!
//! The codec does no input or output, so the same few lines serve any executor. What the blocking client knows beyond
//! that (fall-backs, what to do when a stop fails) is written out in its documentation.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use dotnet_diagnostics::codec::{
    CollectTracing, HEADER_SIZE, Header, ProcessInfo, ProcessInfoVersion, ProviderConfig, Reply,
    Request, decode_session,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(10);

/// One command on one connection: the payload of the answer, and the connection for what follows it.
async fn call(
    socket: &Path,
    request: &Request,
) -> Result<(Vec<u8>, UnixStream), Box<dyn Error + Send + Sync>> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&request.encode()?).await?;
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header).await?;
    let header = Header::decode(&header)?;
    let mut payload = vec![0; header.payload_size()];
    stream.read_exact(&mut payload).await?;
    match Reply::decode(&header, &payload)? {
        Reply::Ok(_) => Ok((payload, stream)),
        Reply::Error { code, message } => Err(format!("refused: {code} {message}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().ok_or("usage: async_client PID [FILE]")?;
    let file = arguments.next().unwrap_or_else(|| "async.nettrace".into());
    let process = dotnet_diagnostics::discovery::find(pid.parse()?)?;

    let version = ProcessInfoVersion::V1;
    let request = Request::ProcessInfo(version);
    let (payload, _) = timeout(LIMIT, call(&process.socket, &request)).await??;
    let info = ProcessInfo::decode(version, &payload)?;
    println!("{} {}", info.process_id, info.command_line);

    let wish = CollectTracing::new([ProviderConfig::new("*", u64::MAX, 4)]);
    let request = Request::CollectTracing(wish);
    let (payload, mut stream) = timeout(LIMIT, call(&process.socket, &request)).await??;
    let session = decode_session(&payload)?;

    // The stop is answered only while the stream is drained, so both run at once.
    let mut output = tokio::fs::File::create(&file).await?;
    let drain = async { Ok(tokio::io::copy(&mut stream, &mut output).await?) };
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        call(&process.socket, &Request::StopTracing(session)).await
    };
    let (bytes, _) = tokio::try_join!(drain, stop)?;
    output.sync_all().await?;
    println!("{bytes} bytes in {file}");
    Ok(())
}
