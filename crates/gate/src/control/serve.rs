//! The gate's side of the control socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_sys::{process, socket};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::{task, time};

use super::{Answer, Commands};
use crate::gate::View;

/// How many connections are served at once. Others wait in the listener's queue.
const AT_ONCE: usize = 64;
/// The longest question, in bytes, with its end.
const LONGEST_QUESTION: u64 = 4_096;
/// How long a question may take to arrive. It is complete before the client connects.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The interval between attempts where accepting fails, such as without descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Answers for as long as it is polled.
pub(crate) async fn serve(listener: UnixListener, view: View, commands: Arc<dyn Commands>) {
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(RETRY).await;
            continue;
        };
        let (view, commands) = (view.clone(), Arc::clone(&commands));
        task::spawn(async move {
            // A failure here is the client's.
            let _ = converse(stream, &view, commands).await;
            drop(seat);
        });
    }
}

async fn converse(
    mut stream: UnixStream,
    view: &View,
    commands: Arc<dyn Commands>,
) -> io::Result<()> {
    let who = socket::peer_credentials(&stream)?.user;
    if who != 0 && who != process::effective_user() {
        return Ok(());
    }
    let answer = match time::timeout(ASKED_WITHIN, question(&mut stream)).await {
        Err(_) | Ok(Err(_)) => return Ok(()),
        Ok(Ok(None)) => Answer::Error("a question is a line of at most 4096 bytes".to_owned()),
        Ok(Ok(Some(text))) => answer(&text, view, commands).await,
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    time::timeout(READ_WITHIN, stream.write_all(&line)).await?
}

/// The question; `None` if it is none.
async fn question(stream: &mut UnixStream) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream).take(LONGEST_QUESTION);
    reader.read_until(b'\n', &mut line).await?;
    let line = String::from_utf8(line).ok();
    Ok(line.and_then(|line| line.strip_suffix('\n').map(ToOwned::to_owned)))
}

async fn answer(question: &str, view: &View, commands: Arc<dyn Commands>) -> Answer {
    let words: Vec<&str> = question.split_whitespace().collect();
    match words.as_slice() {
        ["stat"] => Answer::statistics(&view.statistics()),
        ["stat", name] => Answer::statistic(&view.statistics(), name),
        ["list"] => Answer::list(),
        ["flows"] => Answer::flows(view.flows()),
        ["openmetrics"] => Answer::Openmetrics(view.open_metrics()),
        ["version"] => Answer::version(view),
        ["reload"] => {
            // It blocks, and other questions are answered meanwhile.
            match task::spawn_blocking(move || commands.reload()).await {
                Ok(Ok(done)) => Answer::Done(done),
                Ok(Err(why)) => Answer::Error(why),
                Err(_) => Answer::Error("the gate is stopping".to_owned()),
            }
        }
        ["drain"] => {
            commands.drain();
            Answer::Done("the gate drains".to_owned())
        }
        _ => Answer::Error(
            "ask one of: stat [NAME], list, flows, openmetrics, version, reload, drain".to_owned(),
        ),
    }
}
