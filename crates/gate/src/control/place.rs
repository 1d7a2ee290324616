//! The file of a control socket: for one user alone; it replaces that of a dead gate, never of a living one.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_sys::{file, process, socket};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// Why a control socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another gate answers there.
    #[error(
        "the gate of process {0} answers there already: each gate needs a control socket of its own"
    )]
    InUse(i32),
    /// Something answers there that is not a gate.
    #[error("another program answers there: {0}")]
    Answered(io::Error),
    /// A file that is no socket.
    #[error("a file is there already that is no socket")]
    NoSocket,
    /// Another process keeps its folder locked.
    #[error("another program has locked its folder")]
    Locked,
    /// The folder of all this user's control sockets can be changed by others.
    #[error("{0} belongs to another user, or others can write there")]
    Foreign(PathBuf),
    /// The kernel refused.
    #[error("{what}: {why}")]
    System {
        /// To do what.
        what: &'static str,
        /// Why.
        why: io::Error,
    },
}

/// A control socket that listens. Its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file.
    own: (u64, u64),
}

impl ControlSocket {
    /// Listens at `path`, with mode 0600 from the first moment that the file is there.
    ///
    /// `bind(2)` makes a file of whatever mode the process's umask leaves, and the umask belongs to all
    /// its threads. So the socket is made in a folder that only its user can enter, gets its mode, listens,
    /// and is moved to its place: `rename(2)` also replaces that of a dead gate. A socket that refuses
    /// connections is certainly dead, and the folder's lock decides between two gates that find it at
    /// once.
    pub(crate) fn bind(path: &Path, runtime: &Runtime) -> Result<Self, BindError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let _locked = lock(folder)?;
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(system("look at it")(error)),
            Ok(found) if !found.file_type().is_socket() => return Err(BindError::NoSocket),
            Ok(_) => find_dead(path, runtime)?,
        }
        let private = Private::make(folder)?;
        let listener = private.listen()?;
        let made = private.socket();
        fs::set_permissions(&made, Permissions::from_mode(0o600))
            .map_err(system("set its mode"))?;
        listener.set_nonblocking(true).map_err(system("listen"))?;
        let found = fs::symlink_metadata(&made).map_err(system("look at it"))?;
        fs::rename(&made, path).map_err(system("move it there"))?;
        let own = (found.dev(), found.ino());
        Ok(Self { listener: Some(listener), path: path.to_owned(), own })
    }

    /// The socket that listens; once.
    pub(crate) fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A file that another process has put there stays.
        let is_own = |found: &fs::Metadata| (found.dev(), found.ino()) == self.own;
        if fs::symlink_metadata(&self.path).is_ok_and(|found| is_own(&found)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> BindError {
    move |why| BindError::System { what, why }
}

/// The folder's lock, until it is dropped. It leaves no file behind.
fn lock(folder: &Path) -> Result<File, BindError> {
    /// The holder binds a socket, and no more.
    const PATIENCE: Duration = Duration::from_secs(5);
    let held = File::open(folder).map_err(system("open its folder"))?;
    let until = Instant::now() + PATIENCE;
    while !file::try_lock_exclusive(&held).map_err(system("lock its folder"))? {
        if Instant::now() >= until {
            return Err(BindError::Locked);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(held)
}

/// Makes sure that nothing listens on a socket that exists.
fn find_dead(path: &Path, runtime: &Runtime) -> Result<(), BindError> {
    // Over tokio, because a blocking connect to a full queue would wait for ever.
    match runtime.block_on(UnixStream::connect(path)) {
        Err(error) if is_dead(&error) => Ok(()),
        Err(error) => Err(BindError::Answered(error)),
        Ok(stream) => match socket::peer_credentials(&stream) {
            Ok(who) => Err(BindError::InUse(who.pid)),
            Err(error) => Err(BindError::Answered(error)),
        },
    }
}

fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

/// A temporary folder that only its user can enter.
#[derive(Debug)]
struct Private(PathBuf);

impl Private {
    fn make(folder: &Path) -> Result<Self, BindError> {
        let path = folder.join(format!(".gate-{}", std::process::id()));
        let private = Self(path);
        private.remove();
        let made = DirBuilder::new().mode(0o700).create(&private.0);
        made.map_err(system("make a folder beside it"))?;
        Ok(private)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    /// Listens in it. Its path is that of a descriptor, because a socket's path cannot be long.
    fn listen(&self) -> Result<UnixListener, BindError> {
        let opened = File::open(&self.0).map_err(system("open the folder beside it"))?;
        let short = format!("/proc/self/fd/{}/s", opened.as_raw_fd());
        UnixListener::bind(short).map_err(system("listen"))
    }

    fn remove(&self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The default path of this process's control socket, in a folder that is made if it is missing.
///
/// # Errors
/// The folder cannot be made, or is not its user's alone.
pub fn own_path(folder: &Path) -> Result<PathBuf, BindError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.map_err(system("make its folder"))?,
    }
    let found = fs::symlink_metadata(folder).map_err(system("look at its folder"))?;
    let is_own = found.uid() == process::effective_user() && found.mode() & 0o022 == 0;
    if !(found.is_dir() && is_own) {
        return Err(BindError::Foreign(folder.to_owned()));
    }
    Ok(folder.join(format!("gate-{}.sock", std::process::id())))
}

/// The control sockets in a folder on which a gate listens, in the order of their names.
#[must_use]
pub fn running(folder: &Path) -> Vec<PathBuf> {
    look(folder).0
}

/// Removes the control sockets that killed gates have left in a folder.
pub fn sweep(folder: &Path) {
    // Without the lock a new gate could replace a dead one's between the look and the removal.
    if let Ok(_locked) = lock(folder) {
        for dead in look(folder).1 {
            let _ = fs::remove_file(dead);
        }
    }
}

/// The sockets of a folder: those of the living, and those of the dead.
fn look(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("gate-") && name.ends_with(".sock")
    };
    let mut all: Vec<_> = all.map(|entry| entry.path()).filter(is_one).collect();
    all.sort();
    let Ok(runtime) = super::ask::runtime() else { return (all, Vec::new()) };
    let lives = |path: &PathBuf| match runtime.block_on(UnixStream::connect(path)) {
        Ok(_) => true,
        Err(error) => !is_dead(&error),
    };
    all.into_iter().partition(lives)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A folder of a test's own.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("lastbyte-control-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let all = fs::read_dir(&self.0).unwrap();
            all.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn runtime() -> Runtime {
        super::super::ask::runtime().unwrap()
    }

    #[test]
    fn it_is_for_its_user_alone_and_goes_with_the_gate() {
        let (scratch, runtime) = (Scratch::new(), runtime());
        let path = scratch.0.join("gate.sock");
        let socket = ControlSocket::bind(&path, &runtime).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(scratch.names(), ["gate.sock"], "nothing is left beside it");
        drop(socket);
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn a_dead_one_is_replaced_and_a_live_one_is_not() {
        let (scratch, runtime) = (Scratch::new(), runtime());
        let path = scratch.0.join("gate.sock");
        drop(UnixListener::bind(&path).unwrap());
        let living = ControlSocket::bind(&path, &runtime).unwrap();
        let error = ControlSocket::bind(&path, &runtime).unwrap_err();
        let own = std::process::id().to_string();
        assert!(
            matches!(error, BindError::InUse(_)) && error.to_string().contains(&own),
            "{error}"
        );
        drop(living);
        ControlSocket::bind(&path, &runtime).unwrap();
    }

    #[test]
    fn what_is_no_socket_stays() {
        let (scratch, runtime) = (Scratch::new(), runtime());
        let path = scratch.0.join("gate.sock");
        fs::write(&path, "kept").unwrap();
        let error = ControlSocket::bind(&path, &runtime).unwrap_err();
        assert!(matches!(error, BindError::NoSocket), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        // Not even at the end, when somebody else has taken the place.
        fs::remove_file(&path).unwrap();
        let socket = ControlSocket::bind(&path, &runtime).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn of_many_at_once_one_gets_the_place() {
        let scratch = Scratch::new();
        let path = scratch.0.join("gate.sock");
        drop(UnixListener::bind(&path).unwrap());
        let begin = std::sync::Barrier::new(4);
        let won = thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let runtime = runtime();
                        begin.wait();
                        ControlSocket::bind(&path, &runtime)
                    })
                })
                .collect();
            racers.into_iter().filter_map(|racer| racer.join().unwrap().ok()).collect::<Vec<_>>()
        });
        assert_eq!(won.len(), 1);
        assert!(path.exists());
    }

    #[test]
    fn the_living_are_found_and_the_dead_are_swept() {
        let (scratch, runtime) = (Scratch::new(), runtime());
        let (living, dead) = (scratch.0.join("gate-1.sock"), scratch.0.join("gate-2.sock"));
        let _socket = ControlSocket::bind(&living, &runtime).unwrap();
        drop(UnixListener::bind(&dead).unwrap());
        fs::write(scratch.0.join("other"), "").unwrap();
        assert_eq!(running(&scratch.0), [living.as_path()]);
        sweep(&scratch.0);
        let mut left = scratch.names();
        left.sort();
        assert_eq!(left, ["gate-1.sock", "other"]);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let scratch = Scratch::new();
        let own = scratch.0.join("own");
        let path = own_path(&own).unwrap();
        assert!(path.starts_with(&own));
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o700);
        fs::set_permissions(&own, Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(own_path(&own), Err(BindError::Foreign(_))));
    }
}
