//! How a command talks to the process that carries a persistent link.
//!
//! The carrier listens on an abstract Unix socket (`unix(7)`), which leaves no file behind. Both sides
//! ask the kernel who is there: the carrier answers its own user and root alone, and a command believes
//! only the process that the ledger names. One question, one answer, each a line of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use lastbyte_link::{LinkFigures, Way};
use lastbyte_sandbox::Neighbour;
use lastbyte_sys::{poll, process, socket};
use serde::{Deserialize, Serialize};

use crate::error::{PersistentError, Result};

/// How long either side waits for the other's line.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line.
const LONGEST_LINE: u64 = 1 << 20;

/// What a carrier can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// What its links have done so far.
    Figures,
    /// Who is on the network.
    Neighbours,
    /// To make links different.
    Set(SetRequest),
}

/// What is to be different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRequest {
    /// Of which link; `None` of the only one.
    pub link: Option<String>,
    /// In which direction; `None` is both.
    #[serde(with = "way_by_name")]
    pub way: Option<Way>,
    /// Keys of a scenario, and their values.
    pub words: Vec<(String, String)>,
    /// Where files that are named lie.
    pub folder: PathBuf,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Figures(Vec<LinkFigures>),
    Neighbours(Vec<Neighbour>),
    /// The link's name, and what it is like now.
    Set(String, String),
    Failed(String),
}

/// Where a carrier listens.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
}

impl ControlSocket {
    /// Begins to listen, as the process that this is.
    pub(crate) fn open(link: &str) -> Result<Self> {
        let address = address(link, std::process::id().cast_signed())?;
        let listener = UnixListener::bind_addr(&address).map_err(|cause| {
            PersistentError::System { what: "listening for commands".to_owned(), cause }
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// Waits for a question at most so long, and answers it. A peer's failure is its own.
    pub(crate) fn answer_one(
        &self,
        timeout: Duration,
        answer: &mut dyn FnMut(Question) -> Result<Answer>,
    ) -> Result<()> {
        let [ready] = poll::wait([(&self.listener, poll::READABLE)], Some(timeout))?;
        if ready && let Ok((stream, _)) = self.listener.accept() {
            let _ = answer_on(&stream, answer);
        }
        Ok(())
    }
}

fn answer_on(
    stream: &UnixStream,
    answer: &mut dyn FnMut(Question) -> Result<Answer>,
) -> Result<()> {
    let who = socket::peer_credentials(&stream)?.user;
    if who != 0 && who != process::effective_user() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    patiently(stream)?;
    let answer = match read_line(stream).and_then(answer) {
        Ok(answer) => answer,
        Err(error) => Answer::Failed(error.to_string()),
    };
    write_line(stream, &answer)
}

/// Asks the carrier `pid` of a link.
pub(crate) fn ask(link: &str, pid: i32, question: &Question) -> Result<Answer> {
    let cannot = |cause| {
        let (link, cause) = (link.to_owned(), Box::new(cause));
        PersistentError::Unreachable { link, pid, cause }
    };
    let stream = UnixStream::connect_addr(&address(link, pid)?);
    let stream = stream.map_err(|error| cannot(error.into()))?;
    let who = socket::peer_credentials(&stream)?.pid;
    if who != pid {
        return Err(PersistentError::Impostor { who, link: link.to_owned(), pid });
    }
    patiently(&stream)?;
    write_line(&stream, question).map_err(cannot)?;
    match read_line(&stream).map_err(cannot)? {
        Answer::Failed(why) => Err(PersistentError::Carrier(why)),
        answer => Ok(answer),
    }
}

/// The process is part of the name: whoever takes the name of a carrier that is gone is not asked.
fn address(link: &str, pid: i32) -> Result<SocketAddr> {
    Ok(SocketAddr::from_abstract_name(format!("lastbyte-link-{link}-{pid}"))?)
}

fn patiently(stream: &UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream.set_write_timeout(Some(PATIENCE))?)
}

fn read_line<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_LINE)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        let why = "the other side stopped in the middle of a line";
        return Err(PersistentError::Carrier(why.to_owned()));
    }
    serde_json::from_str(&line).map_err(|error| PersistentError::Carrier(error.to_string()))
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(value);
    let mut line = line.map_err(|error| PersistentError::Carrier(error.to_string()))?;
    line.push('\n');
    Ok(stream.write_all(line.as_bytes())?)
}

/// A direction as `up` or `down`.
mod way_by_name {
    use lastbyte_link::Way;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        way: &Option<Way>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        way.map(|way| way.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Way>, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None => Ok(None),
            Some("up") => Ok(Some(Way::Up)),
            Some("down") => Ok(Some(Way::Down)),
            Some(other) => Err(de::Error::custom(format!("`{other}` is no direction"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_and_its_failure_told() {
        let control = ControlSocket::open("test-control").unwrap();
        let pid = std::process::id().cast_signed();
        let asking = std::thread::spawn(move || {
            let wish = SetRequest {
                link: None,
                way: Some(Way::Up),
                words: vec![("loss".to_owned(), "1%\n\"".to_owned())],
                folder: PathBuf::from("."),
            };
            let good = ask("test-control", pid, &Question::Set(wish.clone())).unwrap();
            let bad = ask("test-control", pid, &Question::Figures).unwrap_err();
            let impostor = ask("test-control", pid + 1, &Question::Figures);
            (wish, good, bad.to_string(), impostor.is_err())
        });
        let mut heard = Vec::new();
        while heard.len() < 2 {
            let mut answer = |question: Question| {
                heard.push(question.clone());
                match question {
                    Question::Set(_) => Ok(Answer::Set("path".to_owned(), "new".to_owned())),
                    _ => Err(PersistentError::Carrier("there are none".to_owned())),
                }
            };
            control.answer_one(PATIENCE, &mut answer).unwrap();
        }
        let (wish, good, bad, no_impostor) = asking.join().unwrap();
        assert_eq!(heard, [Question::Set(wish), Question::Figures]);
        assert_eq!(good, Answer::Set("path".to_owned(), "new".to_owned()));
        assert_eq!((bad.as_str(), no_impostor), ("there are none", true));
    }

    #[test]
    fn half_a_line_is_no_question() {
        let control = ControlSocket::open("test-half").unwrap();
        let pid = std::process::id().cast_signed();
        let mut stream = UnixStream::connect_addr(&address("test-half", pid).unwrap()).unwrap();
        stream.write_all(b"\"Figures").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = |_| -> Result<Answer> { panic!("that was no question") };
        control.answer_one(PATIENCE, &mut answer).unwrap();
        let answer: Answer = read_line(&stream).unwrap();
        assert!(matches!(answer, Answer::Failed(why) if why.contains("middle of a line")));
    }
}
