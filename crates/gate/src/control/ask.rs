//! Asking a gate that runs.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use lastbyte_sys::{process, socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use super::Answer;

/// Why a gate gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody listens there.
    #[error("no gate answers there")]
    Nobody,
    /// It is another user's.
    #[error("user {0} answers there, whom this user need not believe")]
    Foreign(u32),
    /// It does not answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// It stopped in the middle, or at once: it answers its own user and root alone.
    #[error("it hung up without an answer; a gate answers its own user and root")]
    HungUp,
    /// What it answers is no answer of a gate.
    #[error("what answers there is no gate of this version: {0}")]
    Strange(serde_json::Error),
    /// The kernel refused.
    #[error("{0}")]
    System(io::Error),
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest answer: more than a million flows.
const LONGEST_ANSWER: u64 = 512 << 20;

/// Asks the gate whose control socket is at `path`, in the [words](super) of its protocol. It must not
/// be called from within an event loop of tokio.
///
/// # Errors
/// There was no answer. [`Answer::Error`] is one.
pub fn ask(path: &Path, words: &str) -> Result<Answer, AskError> {
    let runtime = runtime().map_err(AskError::System)?;
    let asked = runtime.block_on(async { time::timeout(PATIENCE, ask_at(path, words)).await });
    let line = asked.map_err(|_| AskError::Silent)??;
    serde_json::from_slice(&line).map_err(AskError::Strange)
}

async fn ask_at(path: &Path, words: &str) -> Result<Vec<u8>, AskError> {
    let mut stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::Nobody,
        _ => AskError::System(error),
    })?;
    let who = socket::peer_credentials(&stream).map_err(AskError::System)?.user;
    let own = process::effective_user();
    if ![own, 0].contains(&who) && own != 0 {
        return Err(AskError::Foreign(who));
    }
    let hung_up = |error: io::Error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => AskError::HungUp,
        _ => AskError::System(error),
    };
    stream.write_all(format!("{words}\n").as_bytes()).await.map_err(hung_up)?;
    let mut line = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut line).await.map_err(hung_up)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(AskError::HungUp) }
}

/// An event loop for one thread.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}
