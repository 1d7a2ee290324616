//! The client: many connections at once, each checked to its last byte.

use std::error::Error;
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lastbyte::ConnectOptions;
use lastbyte::tls::rustls::client::Resumption;
use lastbyte::tls::rustls::{ClientConfig, RootCertStore};
use lastbyte::tls::{self, TlsStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::{runtime, task, time};

use crate::args::Args;
use crate::request::{Ending, NAME, Request, Usage, pattern};
use crate::table::{self, Batch};

/// How long a connection may take before it counts as stuck.
const LONGEST: Duration = Duration::from_secs(60);
/// How often and how long the server is looked for.
const LOOKS: u32 = 1000;
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let plan = Plan::of(args)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let local = task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let batches = plan.run().await?;
        table::print(&plan.title(), &batches);
        if args.text("quit").is_some() {
            plan.targets[0].usage(Request::Quit).await?;
        }
        Ok(())
    }))
}

struct Plan {
    targets: Vec<Rc<Target>>,
    endings: Vec<Ending>,
    name: String,
    rounds: usize,
    connections: usize,
    at_once: usize,
    bytes: usize,
    /// Connections before the first round, of each ending.
    warm_up: usize,
    /// A byte after the request that the server does not read.
    trailing: bool,
}

/// Where the server is.
enum Target {
    Tcp(SocketAddr),
    /// And where it lays down its certificate.
    Tls(SocketAddr, PathBuf),
    Unix(PathBuf),
}

/// How one connection went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Went {
    /// Every byte came, and then the end of the stream.
    Complete,
    /// Every byte came, and then a reset.
    ThenReset,
    /// Bytes are missing.
    Short,
}

impl Plan {
    fn of(args: &Args) -> Result<Self, Box<dyn Error>> {
        let mut targets = Vec::new();
        if let Some(address) = args.text("tcp") {
            let address = address.to_socket_addrs()?.next().ok_or("no address")?;
            targets.push(Rc::new(Target::Tcp(address)));
        }
        if let (Some(address), Some(path)) = (args.text("tls"), args.text("cert")) {
            let address = address.to_socket_addrs()?.next().ok_or("no address")?;
            targets.push(Rc::new(Target::Tls(address, path.into())));
        }
        if let Some(path) = args.text("unix") {
            targets.push(Rc::new(Target::Unix(path.into())));
        }
        if targets.is_empty() {
            return Err("ask where? tcp=ADDRESS, tls=ADDRESS cert=PATH, unix=PATH".into());
        }
        let endings = match args.text("endings") {
            None => Ending::ALL.to_vec(),
            Some(names) => names.split(',').map(str::parse).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            targets,
            endings,
            name: args.text("name").unwrap_or("here").to_owned(),
            rounds: args.number("rounds", 5)?,
            connections: args.number("connections", 100)?,
            at_once: args.number("at-once", 64)?,
            bytes: args.number("bytes", 4096)?,
            warm_up: args.number("warm-up", 64)?,
            trailing: args.number("trailing", 0)? > 0,
        })
    }

    fn title(&self) -> String {
        let Self { name, rounds, connections, at_once, bytes, .. } = self;
        let unread = if self.trailing { ", one byte left unread at the server" } else { "" };
        format!(
            "{name}: {bytes} bytes an answer{unread}; {rounds} rounds of {connections} \
             connections, {at_once} at once"
        )
    }

    /// In each round each ending has its turn; which one begins changes from round to round.
    async fn run(&self) -> Result<Vec<Batch>, Box<dyn Error>> {
        let mut batches = Vec::new();
        self.targets[0].wait_for_server().await?;
        for target in &self.targets {
            for ending in &self.endings {
                self.batch(target, *ending, self.connections.min(self.warm_up)).await?;
            }
        }
        for round in 0..self.rounds {
            for target in &self.targets {
                for turn in 0..self.endings.len() {
                    let ending = self.endings[(round + turn) % self.endings.len()];
                    batches.push(self.batch(target, ending, self.connections).await?);
                }
            }
        }
        Ok(batches)
    }

    async fn batch(
        &self,
        target: &Rc<Target>,
        ending: Ending,
        connections: usize,
    ) -> Result<Batch, Box<dyn Error>> {
        let before = self.targets[0].usage(Request::Usage).await?;
        let began = time::Instant::now();
        let asked = Rc::new(self.asked(target, ending)?);
        let tasks: Vec<_> = (0..self.at_once.min(connections))
            .map(|first| {
                let share = (connections - first).div_ceil(self.at_once);
                task::spawn_local(ask_in_turn(Rc::clone(target), Rc::clone(&asked), share))
            })
            .collect();
        let mut went = Vec::with_capacity(connections);
        for task in tasks {
            went.extend(task.await?);
        }
        let took = began.elapsed();
        let used = self.targets[0].usage(Request::Usage).await?.since(before);
        let count = |which| went.iter().filter(|went| **went == which).count();
        Ok(Batch {
            transport: target.transport(),
            ending,
            connections: went.len(),
            complete: count(Went::Complete),
            then_reset: count(Went::ThenReset),
            used,
            took,
        })
    }

    fn asked(&self, target: &Target, ending: Ending) -> Result<Asked, Box<dyn Error>> {
        Ok(Asked {
            request: Request::Answer(ending, self.bytes),
            expected: pattern()[..self.bytes].to_vec(),
            trailing: self.trailing,
            trust: target.trust()?,
        })
    }
}

/// What each connection of a batch asks for, and should get.
struct Asked {
    request: Request,
    expected: Vec<u8>,
    trailing: bool,
    trust: Trust,
}

async fn ask_in_turn(target: Rc<Target>, asked: Rc<Asked>, times: usize) -> Vec<Went> {
    let mut went = Vec::with_capacity(times);
    for _ in 0..times {
        let one = time::timeout(LONGEST, target.ask(&asked)).await;
        went.push(one.unwrap_or(Ok(Went::Short)).unwrap_or(Went::Short));
    }
    went
}

impl Target {
    fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "TCP",
            Self::Tls(..) => "TLS",
            Self::Unix(_) => "Unix",
        }
    }

    async fn ask(&self, asked: &Asked) -> io::Result<Went> {
        match self {
            Self::Tcp(address) => asked.over(TcpStream::connect(address).await?).await,
            Self::Tls(address, _) => asked.over(secret(*address, &asked.trust).await?).await,
            Self::Unix(path) => asked.over(UnixStream::connect(path).await?).await,
        }
    }

    async fn usage(&self, request: Request) -> Result<Usage, Box<dyn Error>> {
        let line = request.line();
        let answer = match self {
            Self::Tcp(address) => all_of(TcpStream::connect(address).await?, &line).await?,
            Self::Tls(address, _) => all_of(secret(*address, &self.trust()?).await?, &line).await?,
            Self::Unix(path) => all_of(UnixStream::connect(path).await?, &line).await?,
        };
        Ok(answer.parse()?)
    }

    /// Whom to trust: the certificate that the server made for itself.
    fn trust(&self) -> Result<Trust, Box<dyn Error>> {
        let Self::Tls(_, path) = self else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        roots.add(fs::read(path)?.into())?;
        let mut config = tls::client_config(roots)?;
        // Every connection pays for its own handshake.
        Arc::make_mut(&mut config).resumption = Resumption::disabled();
        Ok(Some(config))
    }

    async fn wait_for_server(&self) -> Result<(), Box<dyn Error>> {
        for _ in 1..LOOKS {
            if self.usage(Request::Usage).await.is_ok() {
                return Ok(());
            }
            time::sleep(LOOK_EVERY).await;
        }
        Err("the server does not answer".into())
    }
}

/// What TLS needs to know.
type Trust = Option<Arc<ClientConfig>>;

async fn secret(address: SocketAddr, trust: &Trust) -> io::Result<TlsStream> {
    let options = ConnectOptions::default().within(LONGEST);
    let stream = lastbyte::TcpStream::connect_with(address, &options).await;
    let stream = stream.map_err(io::Error::other)?;
    let config = trust.clone().ok_or(io::ErrorKind::InvalidInput)?;
    TlsStream::connect(stream, config, NAME, LONGEST).await.map_err(io::Error::other)
}

async fn all_of(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    line: &[u8],
) -> io::Result<String> {
    stream.write_all(line).await?;
    stream.flush().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

impl Asked {
    async fn over(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Went> {
        let mut line = self.request.line().to_vec();
        line.extend(self.trailing.then_some(b'.'));
        stream.write_all(&line).await?;
        stream.flush().await?;
        let mut rest = &self.expected[..];
        let mut room = vec![0; 65_536];
        loop {
            match stream.read(&mut room).await {
                Ok(0) if rest.is_empty() => break,
                Ok(1..) if rest.is_empty() => return Ok(Went::Short),
                Ok(0) => return Ok(Went::Short),
                Ok(read) => match rest.strip_prefix(&room[..read]) {
                    Some(after) => rest = after,
                    None => return Ok(Went::Short),
                },
                Err(_) if rest.is_empty() => return Ok(Went::ThenReset),
                Err(_) => return Ok(Went::Short),
            }
        }
        if self.trust.is_some() {
            // TLS has an end of its own to say. Whoever closed already does not hear it.
            let _ = stream.shutdown().await;
        }
        Ok(Went::Complete)
    }
}
