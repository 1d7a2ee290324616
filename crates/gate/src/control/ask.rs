//! Asks a running gate.

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
    /// Nothing listens there.
    #[error("no gate answers there")]
    NoGate,
    /// Another user's process listens there.
    #[error("a process of user {0} answers there, which this user does not trust")]
    Foreign(u32),
    /// It does not answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// It closed the connection: it answers its own user and root alone.
    #[error(
        "it closed the connection without an answer: a gate answers only its own user and root"
    )]
    HungUp,
    /// The answer is not one of this version's gate.
    #[error("the program that answers there is not a gate of this version: {0}")]
    Strange(serde_json::Error),
    /// The kernel refused.
    #[error("{0}")]
    System(io::Error),
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest answer: more than a million flows.
const LONGEST_ANSWER: u64 = 512 << 20;

/// Asks the gate whose control socket is at `path` a [question](super). It must not be called from within
/// an event loop of tokio.
///
/// # Errors
/// There was no answer. [`Answer::Error`] is one.
pub fn ask(path: &Path, question: &str) -> Result<Answer, AskError> {
    let runtime = runtime().map_err(AskError::System)?;
    let asked = runtime.block_on(async { time::timeout(PATIENCE, ask_at(path, question)).await });
    let line = asked.map_err(|_| AskError::Silent)??;
    serde_json::from_slice(&line).map_err(AskError::Strange)
}

async fn ask_at(path: &Path, question: &str) -> Result<Vec<u8>, AskError> {
    let mut stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NoGate,
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
    stream.write_all(format!("{question}\n").as_bytes()).await.map_err(hung_up)?;
    let mut line = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut line).await.map_err(hung_up)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(AskError::HungUp) }
}

/// An event loop for one thread.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}
