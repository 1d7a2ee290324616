//! Resolves names with the system's resolver, in threads.
//!
//! These are plain threads, not an event loop's: a hanging call cannot be cancelled, and an event
//! loop would wait for it at its end.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use lastbyte_core::race::Question;
use lastbyte_sys::name::{self, EAI_ADDRFAMILY, EAI_NODATA, EAI_NONAME, EAI_SYSTEM, GaiError};
use lastbyte_sys::socket::{FAMILY_IPV4, FAMILY_IPV6};

use super::{Asked, Found, Origin, QueryError};

/// The most simultaneous calls of one resolver.
const MOST_THREADS: usize = 32;
/// The most questions that wait for a thread.
const MOST_WAITING: usize = 4096;

/// The questions of one resolver and its clones, and the threads that ask them. It is not shared by
/// the process: a forked child would inherit a lock that may be locked, and a count of threads that
/// it does not have.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
}

#[derive(Debug)]
struct Job {
    name: String,
    asked: Asked,
    question: Question,
}

impl Calls {
    /// Asks the C library, each question separately, so that none waits for the other.
    pub(super) fn ask(&self, name: &str, asked: &Asked) {
        for question in &asked.questions {
            let (questions, sender) = (vec![*question], asked.sender.clone());
            let asked = Asked { name: asked.name.clone(), questions, sender };
            match question {
                Question::A | Question::Aaaa => {
                    self.submit(Job { name: name.to_owned(), asked, question: *question });
                }
                _ => asked.refuse(&QueryError::Unsupported),
            }
        }
    }

    fn submit(&self, job: Job) {
        let mut state = self.lock();
        // A question whose caller is gone is dropped.
        state.waiting.retain(|job| !job.asked.sender.is_closed());
        if state.waiting.len() >= MOST_WAITING {
            let waiting = state.waiting.len();
            return job.asked.refuse(&QueryError::TooMany { waiting });
        }
        state.waiting.push_back(job);
        if state.threads == MOST_THREADS {
            return;
        }
        let (name, calls) = ("lastbyte-gai".to_owned(), self.clone());
        match thread::Builder::new().name(name).spawn(move || calls.work()) {
            Ok(_) => state.threads += 1,
            // A running thread will take this question too.
            Err(_) if state.threads > 0 => {}
            Err(error) => {
                let text = format!("no thread for the system's resolver: {error}");
                for job in state.waiting.drain(..) {
                    job.asked.refuse(&QueryError::System { text: text.clone() });
                }
            }
        }
    }

    /// Answers questions until there are no more.
    fn work(&self) {
        loop {
            let job = {
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some(job) => job,
                    None => {
                        state.threads -= 1;
                        return;
                    }
                }
            };
            if !job.asked.sender.is_closed() {
                let found = look_up(&job.name, job.question);
                job.asked.send(job.question, &job.name, found);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(host: &str, question: Question) -> Result<Found, QueryError> {
    let family = if question == Question::Aaaa { FAMILY_IPV6 } else { FAMILY_IPV4 };
    let Ok(host) = CString::new(host) else { unreachable!("the name was checked") };
    let addresses: Vec<SocketAddr> = name::addresses(&host, family).map_err(error_of)?;
    if addresses.is_empty() {
        return Err(QueryError::NoAddresses { server: None });
    }
    Ok(Found::new(addresses, Origin::System))
}

/// glibc says `EAI_NONAME` for NXDOMAIN and for a name that only has addresses of the other family in
/// a file; so does this then.
fn error_of(error: GaiError) -> QueryError {
    match error.code {
        EAI_NONAME => QueryError::NotKnown { text: name::text_of(EAI_NONAME) },
        EAI_NODATA | EAI_ADDRFAMILY => QueryError::NoAddresses { server: None },
        EAI_SYSTEM => {
            let text =
                error.os.map_or_else(|| name::text_of(EAI_SYSTEM), |os: io::Error| os.to_string());
            QueryError::System { text }
        }
        code => QueryError::System { text: name::text_of(code) },
    }
}
