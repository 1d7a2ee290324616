//! Resolves names with DNS: the search list, the questions in flight, and the thread that asks.

use std::collections::HashMap;
use std::mem;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{self, BoxFuture, Shared, WeakShared};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use lastbyte_core::race::Question;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::cache::{Cache, Key, Outcome, Records};
use super::exchange::{Meaning, read};
use super::files::{self, Hosts, ResolvConf, Stamp};
use super::servers::Servers;
use super::{Asked, Found, Origin, QueryError, ResolverError};

/// How often to check whether the files changed.
const RELOAD: Duration = Duration::from_secs(1);
/// The shortest sleep of this machine after which cached answers are dropped.
const SLEEP: Duration = Duration::from_secs(10);
/// How long questions go on after the last caller stopped waiting (RFC 8305 section 3).
const GRACE: Duration = Duration::from_secs(1);
/// The most questions in flight, each with a few descriptors; the others wait.
const MOST_QUESTIONS: usize = 128;

/// The current configuration, and the thread that asks.
#[derive(Debug)]
pub(super) struct Client {
    files: Option<Files>,
    current: Mutex<Current>,
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug)]
struct Files {
    resolv_conf: PathBuf,
    hosts: PathBuf,
}

#[derive(Debug)]
struct Current {
    dns: Arc<Dns>,
    checked: Instant,
    stamps: [Stamp; 2],
    process: u32,
    /// The time of `checked` on a clock that runs while this machine sleeps.
    checked_by_wall: SystemTime,
}

impl Current {
    fn new(dns: Arc<Dns>, stamps: [Stamp; 2]) -> Self {
        let (checked, checked_by_wall) = (Instant::now(), SystemTime::now());
        Self { dns, checked, stamps, process: process::id(), checked_by_wall }
    }

    /// Whether the cached answers are stale: after a fork, the answers to questions in flight go to
    /// the parent; after a sleep, the cache has not counted the time. (A clock set forward looks
    /// the same, and does no harm.)
    fn is_stale(&self) -> bool {
        let slept = || {
            let passed = self.checked_by_wall.elapsed().unwrap_or_default();
            passed.saturating_sub(self.checked.elapsed()) >= SLEEP
        };
        self.process != process::id() || slept()
    }
}

impl Client {
    pub(super) fn of_files(resolv_conf: PathBuf, hosts: PathBuf) -> Result<Self, ResolverError> {
        let files = Files { resolv_conf, hosts };
        let stamps = files.stamps();
        let current = Mutex::new(Current::new(files.read()?, stamps));
        Ok(Self { files: Some(files), current, thread: Mutex::default() })
    }

    pub(super) fn fixed(configuration: ResolvConf, hosts: &str) -> Self {
        let current = Current::new(Dns::new(configuration, Hosts::parse(hosts)), [None; 2]);
        Self { files: None, current: Mutex::new(current), thread: Mutex::default() }
    }

    /// Asks all questions about a valid name.
    pub(super) fn ask(&self, name: &str, asked: Asked) {
        let dns = self.current();
        if let Some(addresses) = dns.hosts.addresses(name) {
            return asked.tell(&addresses, Origin::Hosts);
        }
        if files::is_reserved(name) {
            return asked.refuse(&QueryError::NoSuchName { server: None });
        }
        let names = dns.names(name);
        if dns.tell_known(&names, &asked) {
            return;
        }
        if let Err(error) = self.send(Job { dns, names, asked }) {
            let (job, text) = *error;
            job.asked.refuse(&QueryError::System { text });
        }
    }

    /// Whether this host knows the answer for a name without DNS.
    pub(super) fn is_local(&self, name: &str) -> bool {
        self.current().hosts.addresses(name).is_some()
    }

    /// The current configuration. It reads the files again if they changed; while they are invalid,
    /// the previous configuration stays in force.
    fn current(&self) -> Arc<Dns> {
        let mut current = lock(&self.current);
        if current.is_stale() {
            let Dns { configuration, hosts, .. } = &*current.dns;
            let dns = Dns::new(configuration.clone(), hosts.clone());
            *current = Current::new(dns, current.stamps);
        }
        if let Some(files) = &self.files
            && current.checked.elapsed() >= RELOAD
        {
            (current.checked, current.checked_by_wall) = (Instant::now(), SystemTime::now());
            let stamps = files.stamps();
            if stamps != current.stamps
                && let Ok(dns) = files.read()
            {
                (current.dns, current.stamps) = (dns, stamps);
            }
        }
        Arc::clone(&current.dns)
    }

    /// Passes a job to the thread; starts one if there is none, or if it belongs to the process
    /// that this one was forked from.
    fn send(&self, mut job: Job) -> Result<(), Box<(Job, String)>> {
        let mut thread = lock(&self.thread);
        if let Some(running) = &*thread {
            match running.take(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => job = unsent,
            }
        }
        match Thread::begin() {
            Ok(new) => {
                let taken = new.take(job);
                *thread = Some(new);
                taken.map_err(|job| Box::new((job, "the resolver's thread ended".to_owned())))
            }
            Err(error) => Err(Box::new((job, format!("no thread for the resolver: {error}")))),
        }
    }
}

impl Files {
    fn stamps(&self) -> [Stamp; 2] {
        [files::stamp(&self.resolv_conf), files::stamp(&self.hosts)]
    }

    fn read(&self) -> Result<Arc<Dns>, ResolverError> {
        Ok(Dns::new(ResolvConf::read(&self.resolv_conf)?, Hosts::read(&self.hosts)?))
    }
}

/// The thread that asks. Dropping this ends the thread and closes its sockets.
#[derive(Debug)]
struct Thread {
    process: u32,
    jobs: Option<UnboundedSender<Job>>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    fn begin() -> std::io::Result<Self> {
        let (jobs, receiver) = unbounded_channel();
        let builder = thread::Builder::new().name("lastbyte-dns".to_owned());
        let handle = builder.spawn(|| serve(receiver))?;
        Ok(Self { process: process::id(), jobs: Some(jobs), handle: Some(handle) })
    }

    /// Whether it is a thread of this process, and not of its parent before a fork.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Passes it a job, or returns the job if the thread is gone.
    fn take(&self, job: Job) -> Result<(), Job> {
        match &self.jobs {
            Some(jobs) if self.is_here() => jobs.send(job).map_err(|unsent| unsent.0),
            _ => Err(job),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let (jobs, handle) = (self.jobs.take(), self.handle.take());
        if !self.is_here() {
            // A job that the thread had before a fork is never done in the child.
            mem::forget((jobs, handle));
            return;
        }
        drop(jobs);
        // The thread never blocks, so this takes microseconds. A panicked thread has ended too.
        // This may run in the thread itself, when it drops the last waker of a task that held the
        // resolver.
        let _ = handle
            .filter(|handle| handle.thread().id() != thread::current().id())
            .map(JoinHandle::join);
    }
}

fn serve(mut jobs: UnboundedReceiver<Job>) {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
    // Without a descriptor for it the jobs are dropped, which ends the waits of their callers.
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        while let Some(job) = jobs.recv().await {
            tokio::spawn(job.run());
        }
    });
}

/// Questions about a name, and the names that it may stand for.
#[derive(Debug)]
struct Job {
    dns: Arc<Dns>,
    names: Vec<String>,
    asked: Asked,
}

impl Job {
    async fn run(self) {
        let Self { dns, names, asked } = &self;
        let abandoned = async {
            asked.sender.closed().await;
            sleep(GRACE).await;
        };
        let (search, abandoned) = (dns.search(names, asked), abandoned);
        futures_util::pin_mut!(search, abandoned);
        future::select(search, abandoned).await;
    }
}

/// A configuration, and the answers obtained with it.
#[derive(Debug)]
pub(super) struct Dns {
    configuration: ResolvConf,
    hosts: Hosts,
    servers: Servers,
    cache: Mutex<Cache>,
    /// The questions in flight. Each is asked only once at a time, so that a forger cannot guess
    /// against many (RFC 5452 section 5).
    flights: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, Outcome>>>>,
    permits: Semaphore,
}

impl Dns {
    fn new(configuration: ResolvConf, hosts: Hosts) -> Arc<Self> {
        Arc::new(Self {
            servers: Servers::new(&configuration),
            configuration,
            hosts,
            cache: Mutex::default(),
            flights: Mutex::default(),
            permits: Semaphore::new(MOST_QUESTIONS),
        })
    }

    /// The names to try for a given name, in order (`resolv.conf(5)`, `search` and `ndots`), with
    /// their final dots.
    fn names(&self, name: &str) -> Vec<String> {
        let name = name.to_ascii_lowercase();
        if name.ends_with('.') {
            return vec![name];
        }
        let in_domain = |domain: &String| format!("{name}.{}.", domain.to_ascii_lowercase());
        let mut names: Vec<String> = self
            .configuration
            .search
            .iter()
            .map(in_domain)
            .filter(|name| name.len() <= 254)
            .collect();
        let is_dotted = name.matches('.').count() >= self.configuration.ndots;
        let first = if is_dotted { 0 } else { names.len() };
        names.insert(first, format!("{name}."));
        names
    }

    /// Answers from the cache, if it has everything: then the thread need not wake up.
    fn tell_known(&self, names: &[String], asked: &Asked) -> bool {
        let Some(name) = names.first() else { return false };
        let now = Instant::now();
        let known: Option<Vec<Outcome>> = {
            let cache = lock(&self.cache);
            let find = |question: &Question| cache.find(&(name.clone(), *question), now);
            asked.questions.iter().map(find).collect()
        };
        // Without an address the next name would be needed.
        let Some(known) = known.filter(|known| known.iter().any(Result::is_ok)) else {
            return false;
        };
        for (question, outcome) in asked.questions.iter().zip(known) {
            asked.send(*question, name, outcome.map(found));
        }
        true
    }

    /// Asks for one name after the other. The first name with any address is final for all
    /// questions, so IPv4 and IPv6 addresses always belong to the same name. It tries the next name
    /// only if this one does not exist or has no addresses, not after a failure.
    async fn search(self: &Arc<Self>, names: &[String], asked: &Asked) {
        let mut missing: HashMap<Question, (String, QueryError)> = HashMap::new();
        for (number, name) in names.iter().enumerate() {
            let is_last = number + 1 == names.len();
            let mut open: FuturesUnordered<_> =
                asked.questions.iter().map(|question| self.look_up(name, *question)).collect();
            let (mut is_final, mut held) = (is_last, Vec::new());
            while let Some((question, outcome)) = open.next().await {
                match outcome {
                    Ok(records) => {
                        is_final = true;
                        asked.send(question, name, Ok(found(records)));
                    }
                    Err(error) => held.push((question, error)),
                }
                if is_final {
                    for (question, error) in held.drain(..) {
                        let (name, error) =
                            telling(missing.remove(&question), (name, error), asked);
                        asked.send(question, &name, Err(error));
                    }
                }
            }
            if is_final {
                return;
            }
            if !goes_on(&held) {
                for (question, error) in held {
                    asked.send(question, name, Err(error));
                }
                return;
            }
            for (question, error) in held {
                let kept = telling(missing.remove(&question), (name, error), asked);
                missing.insert(question, kept);
            }
        }
    }

    async fn look_up(self: &Arc<Self>, name: &str, question: Question) -> (Question, Outcome) {
        if !matches!(question, Question::A | Question::Aaaa) {
            return (question, Err(QueryError::Unsupported));
        }
        if question == Question::Aaaa && self.configuration.no_aaaa {
            return (question, Err(QueryError::NoAddresses { server: None }));
        }
        let key = (name.to_owned(), question);
        let known = lock(&self.cache).find(&key, Instant::now());
        let outcome = match known {
            Some(outcome) => outcome,
            None => self.join(key).await,
        };
        (question, outcome)
    }

    /// The question in flight, or a new one. It goes on while a caller waits for it.
    fn join(self: &Arc<Self>, key: Key) -> Shared<BoxFuture<'static, Outcome>> {
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        let landing = Landing { dns: Arc::clone(self), key: key.clone() };
        let flight = landing.fly().boxed().shared();
        if let Some(weak) = flight.downgrade() {
            flights.insert(key, weak);
        }
        flight
    }

    /// Asks for a name, and for the targets of its aliases if their addresses did not come too.
    async fn resolve(&self, (name, question): &Key) -> (Outcome, Option<Duration>) {
        let wanted = if *question == Question::Aaaa { RecordType::AAAA } else { RecordType::A };
        let mut chain = vec![wire_name(name)];
        let mut ttl = u32::MAX;
        loop {
            let Some(last) = chain.last() else { unreachable!("it begins with one") };
            let query = Query::query(last.clone(), wanted);
            let answered = self.servers.ask(&query, |message| {
                let mut longer = chain.clone();
                read(message, &mut longer, wanted).map(|meaning| (meaning, longer))
            });
            let (server, meaning) = match answered.await {
                Ok((server, (meaning, longer))) => {
                    chain = longer;
                    (server, meaning)
                }
                Err(error) => return (Err(error), None),
            };
            let missing = |error, keep: Option<u32>| {
                let keep = keep.map(|keep| Duration::from_secs(keep.min(ttl).into()));
                (Err(error), keep)
            };
            let server_said = Some(server);
            return match meaning {
                Meaning::Elsewhere(of_alias) => {
                    ttl = ttl.min(of_alias);
                    continue;
                }
                Meaning::Addresses(addresses, of_addresses) => {
                    let ttl = Duration::from_secs(ttl.min(of_addresses).into());
                    let aliases = chain[1..].iter().map(text_of).collect();
                    (Ok(Records { addresses, aliases, ttl, server, cached: false }), None)
                }
                Meaning::NoSuchName(keep) => {
                    missing(QueryError::NoSuchName { server: server_said }, keep)
                }
                Meaning::NoAddresses(keep) => {
                    missing(QueryError::NoAddresses { server: server_said }, keep)
                }
                Meaning::Loop => {
                    let aliases = chain[1..].iter().map(text_of).collect();
                    missing(QueryError::AliasLoop { aliases }, None)
                }
            };
        }
    }
}

/// A question in flight. Dropping it removes it from the table.
struct Landing {
    dns: Arc<Dns>,
    key: Key,
}

impl Landing {
    async fn fly(self) -> Outcome {
        let (outcome, missing) = match self.dns.permits.acquire().await {
            Ok(_permit) => self.dns.resolve(&self.key).await,
            Err(_) => unreachable!("the semaphore is never closed"),
        };
        lock(&self.dns.cache).keep(self.key.clone(), &outcome, missing, Instant::now());
        outcome
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        lock(&self.dns.flights).remove(&self.key);
    }
}

/// Whether to try the next name. A server that answers NXDOMAIN to one question and fails at the
/// other has denied the name.
fn goes_on(held: &[(Question, QueryError)]) -> bool {
    let is_missing = |error: &QueryError| matches!(error, QueryError::NoSuchName { .. });
    let is_empty = |error: &QueryError| is_missing(error) || is_nothing(error);
    held.iter().any(|(_, error)| is_missing(error)) || held.iter().all(|(_, error)| is_empty(error))
}

fn is_nothing(error: &QueryError) -> bool {
    matches!(error, QueryError::NoAddresses { .. } | QueryError::Unsupported)
}

/// Which of two names' errors to report: that a name has no addresses rather than that it does not
/// exist, and the error of the name as given first.
fn telling(
    before: Option<(String, QueryError)>,
    (name, error): (&str, QueryError),
    asked: &Asked,
) -> (String, QueryError) {
    let weight = |name: &str, error: &QueryError| {
        let is_missing = matches!(error, QueryError::NoSuchName { .. });
        let as_given =
            name.trim_end_matches('.').eq_ignore_ascii_case(asked.name.trim_end_matches('.'));
        (!is_missing, as_given)
    };
    match before {
        Some((other, kept)) if weight(&other, &kept) >= weight(name, &error) => (other, kept),
        _ => (name.to_owned(), error),
    }
}

fn found(records: Records) -> Found {
    let addresses = records.addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
    Found {
        addresses,
        origin: Origin::Dns,
        aliases: records.aliases,
        ttl: Some(records.ttl),
        server: Some(records.server),
        cached: records.cached,
    }
}

/// A checked name in hickory's type.
fn wire_name(name: &str) -> Name {
    let labels = name.trim_end_matches('.').split('.').map(str::as_bytes);
    Name::from_labels(labels).unwrap_or_else(|error| unreachable!("`{name}` was checked: {error}"))
}

/// A name from an answer as text; everything but letters, digits and dashes is escaped.
fn text_of(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_process_that_was_forked_asks_for_itself() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let text = format!("nameserver {}", server.local_addr().unwrap());
        let client = Client::fixed(ResolvConf::parse(&text).unwrap(), "");
        let asked = || {
            let (sender, receiver) = unbounded_channel();
            client.ask(
                "a.test",
                Asked { name: "a.test".to_owned(), questions: vec![Question::A], sender },
            );
            let came = server.recv(&mut [0; 512]).is_ok();
            (came, receiver)
        };
        let (came, _waits) = asked();
        assert!(came);
        let parents = client.current();
        assert_eq!(lock(&parents.flights).len(), 1);
        // In the child of a fork this flight is there too, and nobody flies it.
        lock(&client.current).process = 0;
        if let Some(thread) = &mut *lock(&client.thread) {
            thread.process = 0;
        }
        assert_eq!(lock(&client.current().flights).len(), 0);
        assert!(asked().0);
        assert_eq!(lock(&client.current().flights).len(), 1);
    }

    #[test]
    fn after_a_sleep_of_the_machine_nothing_is_kept() {
        let client = Client::fixed(ResolvConf::default(), "192.0.2.1 a.test");
        let before = client.current();
        assert!(Arc::ptr_eq(&before, &client.current()));
        lock(&client.current).checked_by_wall -= Duration::from_secs(3600);
        assert!(!Arc::ptr_eq(&before, &client.current()));
        assert!(client.is_local("a.test"));
        // A clock that is set back is no sleep.
        let before = client.current();
        lock(&client.current).checked_by_wall += Duration::from_secs(3600);
        assert!(Arc::ptr_eq(&before, &client.current()));
    }
}
