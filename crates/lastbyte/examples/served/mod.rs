//! Shared by the two small servers: a folder that no request can leave, and a loop that finishes
//! every connection.

use std::future::Future;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use lastbyte::{FinishOptions, Stream, TcpListener};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

/// The most open connections, if the limit of descriptors allows that.
const MOST_FLOWS: usize = 10_000;
/// How long a client may take to send its request.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a client may go without reading.
const STALL_TIME: Duration = Duration::from_secs(60);
/// How long the proof may take.
pub(crate) const FINISH_TIME: Duration = Duration::from_secs(10);

const CHUNK_BYTES: usize = 64 << 10;

/// `FOLDER [ADDRESS [NAME]]`.
pub(crate) struct Args {
    pub(crate) folder: Folder,
    pub(crate) listener: TcpListener,
    /// The name by which clients know this host.
    pub(crate) name: Option<String>,
}

impl Args {
    pub(crate) async fn from_env(port: u16) -> Result<Self, Box<dyn std::error::Error>> {
        let mut args = env::args().skip(1);
        let usage = "say: FOLDER [ADDRESS [NAME]], such as . 127.0.0.1:7070 localhost";
        let folder = Folder::at(args.next().ok_or(usage)?.into()).await?;
        let address = args.next().unwrap_or_else(|| format!("127.0.0.1:{port}"));
        let listener = TcpListener::bind(&address).await;
        let listener = listener.map_err(|error| format!("ADDRESS: {error}; {usage}"))?;
        Ok(Self { folder, listener, name: args.next() })
    }
}

pub(crate) fn finish_options() -> FinishOptions {
    FinishOptions::default().within(FINISH_TIME)
}

/// Runs `work` in a thread that may block. Opening a file or listing a folder waits for the disk or
/// the network, and all connections share the one thread of the event loop.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await?
}

/// Accepts connections until SIGINT or SIGTERM, then waits for the open ones; a second signal ends
/// it at once. Runs `talk` for each connection, all on this thread.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    talk: impl Fn(Stream) -> T,
) -> Result<(), Box<dyn std::error::Error>>
where
    T: Future<Output = String> + Send + 'static,
{
    let most = most_flows();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    say(&format!("listening on {}, at most {most} connections", listener.local_addr()?));
    let mut flows = JoinSet::new();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            Some(_) = flows.join_next() => {}
            accepted = listener.accept(), if flows.len() < most => match accepted {
                Ok(stream) => drop(flows.spawn(logged(talk(stream)))),
                // No descriptors, no memory: it passes, and a loop does not help it.
                Err(error) => {
                    say(&error.to_string());
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    // Closing the listener resets those that wait to be accepted.
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(1), listener.accept()).await {
        flows.spawn(logged(talk(stream)));
    }
    drop(listener);
    say(&format!("stopped accepting; {} connections go on", flows.len()));
    tokio::select! {
        _ = interrupt.recv() => say("told again: ended"),
        () = async { while flows.join_next().await.is_some() {} } => say("all ended"),
    }
    Ok(())
}

async fn logged(flow: impl Future<Output = String>) {
    say(&flow.await);
}

/// Each needs a descriptor for its socket and one for its file.
fn most_flows() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    soft.map_or(256, |soft| (soft / 2).saturating_sub(32)).clamp(1, MOST_FLOWS)
}

/// One line of the log. Whoever reads it may be gone: the service goes on.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// What a stranger sent, so that a terminal obeys nothing in it.
pub(crate) fn escaped(text: &[u8]) -> String {
    String::from_utf8_lossy(text).escape_debug().to_string()
}

/// Reads one line of at most `limit` bytes, without its end. What comes behind it stays unread, or
/// is dropped: the finish takes care of it.
pub(crate) async fn line_of(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(limit + 2);
    let reading = async {
        loop {
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                line.truncate(end - usize::from(line[..end].ends_with(b"\r")));
                if line.len() <= limit {
                    return Ok(());
                }
            }
            let room = (limit + 2).saturating_sub(line.len()) as u64;
            if room == 0 {
                let text = format!("a request has at most {limit} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if (&mut *from).take(room).read_buf(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    timeout(REQUEST_TIME, reading).await??;
    Ok(line)
}

/// Sends bytes to a client that has to read some of them now and then.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = timeout(STALL_TIME, to.write(bytes)).await??;
        bytes = &bytes[taken..];
    }
    Ok(())
}

/// Sends a file, each chunk as `change` makes it. A file that lost bytes meanwhile is an error: the
/// protocol has no length, so that nobody else would notice.
pub(crate) async fn send_file(
    to: &mut (impl AsyncWrite + Unpin),
    file: fs::File,
    bytes: u64,
    mut change: impl FnMut(&[u8], &mut Vec<u8>),
) -> io::Result<()> {
    let mut file = tokio::fs::File::from_std(file).take(bytes);
    let (mut chunk, mut changed) = (Vec::with_capacity(CHUNK_BYTES), Vec::new());
    while file.read_buf(&mut chunk).await? > 0 {
        changed.clear();
        change(&chunk, &mut changed);
        send(to, &changed).await?;
        chunk.clear();
    }
    if file.limit() > 0 {
        return Err(io::Error::other(format!("the file has lost {} bytes", file.limit())));
    }
    Ok(())
}

/// What a path leads to.
pub(crate) enum Found {
    File {
        file: fs::File,
        bytes: u64,
    },
    /// Names, sorted, and whether each is a folder.
    Folder(Vec<(String, bool)>),
}

/// A folder, and nothing outside of it.
#[derive(Clone)]
pub(crate) struct Folder {
    root: Arc<Path>,
}

impl Folder {
    async fn at(path: PathBuf) -> io::Result<Self> {
        aside(move || {
            let root = path.canonicalize();
            let named = |error| io::Error::other(format!("{}: {error}", path.display()));
            root.map(|root| Self { root: root.into() }).map_err(named)
        })
        .await
    }

    /// What the path of a request leads to. Hidden names, `..` and links that lead out do not exist.
    pub(crate) async fn find(&self, path: &str) -> io::Result<Found> {
        let (folder, path) = (self.clone(), path.to_owned());
        aside(move || folder.found(&path)).await
    }

    fn found(&self, path: &str) -> io::Result<Found> {
        let mut place = self.root.to_path_buf();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if name.starts_with('.') || name.contains('\0') {
                return Err(io::ErrorKind::NotFound.into());
            }
            place.push(name);
        }
        // Opened first and looked at then, so that nobody changes it in between. A pipe would block.
        let file = fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(place)?;
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        if !fs::read_link(&opened)?.starts_with(&self.root) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let about = file.metadata()?;
        if about.is_file() {
            Ok(Found::File { file, bytes: about.len() })
        } else if about.is_dir() {
            Ok(Found::Folder(self.names_in(Path::new(&opened))?))
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let leads_to = entry.path().canonicalize();
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(place) = leads_to else { continue };
            let shown = !name.starts_with('.') && !name.contains(char::is_control);
            if shown && place.starts_with(&self.root) && (place.is_dir() || place.is_file()) {
                names.push((name, place.is_dir()));
            }
        }
        names.sort();
        Ok(names)
    }
}

/// `open(2)`, on x86, ARM and RISC-V.
const O_NONBLOCK: i32 = 0o4000;

/// The media type (RFC 6838) that the end of a name stands for.
pub(crate) fn media_type(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "gmi" | "gemini" => "text/gemini",
        "txt" | "log" | "rs" | "c" | "h" | "toml" | "sh" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "xml" => "text/xml",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "gif" => "image/gif",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}
