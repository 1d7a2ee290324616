//! A host: a network namespace, held by a descriptor.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

use lastbyte_host::NetworkNamespace;
use lastbyte_host::namespace::on_own_thread;
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::{mount, namespace};

use crate::error::LinkError;
use crate::spec::Way;

/// The near host's address, from the block set aside for benchmarks (RFC 2544, RFC 5735).
pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The far host's address.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The near host's IPv6 address, from the block set aside for benchmarks (RFC 5180).
pub const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
/// The far host's IPv6 address.
pub const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);

/// What fails where a namespace is not for us.
const ENTERING: &str = "entering a network namespace";

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// Where the client usually is.
    Near,
    /// Where the server usually is.
    Far,
}

impl Host {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// Its IPv4 address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        match self {
            Self::Near => NEAR,
            Self::Far => FAR,
        }
    }

    /// Its IPv6 address.
    #[must_use]
    pub fn address_v6(self) -> Ipv6Addr {
        match self {
            Self::Near => NEAR_V6,
            Self::Far => FAR_V6,
        }
    }
}

impl Way {
    /// The host that sends in this direction.
    #[must_use]
    pub fn sender(self) -> Host {
        match self {
            Self::Up => Host::Near,
            Self::Down => Host::Far,
        }
    }

    /// The host that receives in this direction.
    #[must_use]
    pub fn receiver(self) -> Host {
        self.sender().other()
    }
}

/// A network namespace, held by a descriptor.
#[derive(Debug)]
pub struct Namespace(NetworkNamespace);

impl Namespace {
    /// Makes an empty namespace, with its loopback interface up.
    ///
    /// # Errors
    /// [`LinkError::Rights`] without `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self, LinkError> {
        // A thread of its own: the caller stays in its namespace.
        let made = on_own_thread(|| {
            let doing = "making a network namespace";
            namespace::unshare_network().map_err(LinkError::at_namespace)?;
            let loopback = Interface::named("lo").and_then(Interface::set_up);
            loopback.map_err(LinkError::at("bringing the loopback interface up"))?;
            NetworkNamespace::current().map(Self).map_err(LinkError::at(doing))
        });
        made.map_err(LinkError::at("starting a thread"))?
    }

    /// Opens a namespace that is kept at a path.
    ///
    /// # Errors
    /// When there is no namespace at that path.
    pub fn open(path: &Path) -> Result<Self, LinkError> {
        let opened = NetworkNamespace::open(path);
        let namespace = Self(opened.map_err(LinkError::at("opening a kept namespace"))?);
        // Entering it once shows that it is one.
        namespace.run(|| ())?;
        Ok(namespace)
    }

    /// The same namespace, held once more.
    ///
    /// # Errors
    /// Without room for a descriptor.
    pub fn try_clone(&self) -> Result<Self, LinkError> {
        self.0.try_clone().map(Self).map_err(LinkError::at("holding a namespace once more"))
    }

    /// Keeps the namespace at `path`, an existing empty file, beyond the life of this process.
    ///
    /// # Errors
    /// When the mount cannot be made.
    pub fn keep_at(&self, path: &Path) -> Result<(), LinkError> {
        self.run(|| mount::bind(&namespace::current_network_path(), path))?
            .map_err(LinkError::at("keeping a namespace by a mount"))
    }

    /// Runs `work` in this namespace, on a thread of its own, and waits for it. Sockets made there
    /// stay there.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LinkError> {
        self.0.run(work).map_err(LinkError::at(ENTERING))
    }

    /// Starts a thread that does `work` in this namespace. The namespace need not be held meanwhile.
    ///
    /// # Errors
    /// When the thread cannot be started; entering the namespace may fail on the thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LinkError>>, LinkError> {
        let doing = "starting a thread in a namespace";
        let own = self.try_clone()?;
        let thread = thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || {
            own.enter()?;
            drop(own);
            Ok(work())
        });
        started.map_err(LinkError::at(doing))
    }

    /// Moves the calling thread into this namespace, for good.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn enter(&self) -> Result<(), LinkError> {
        self.0.enter().map_err(LinkError::at(ENTERING))
    }

    /// Sets a network sysctl of this namespace, such as `ipv4/tcp_rmem`.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` for one it does not have, `EINVAL` for a value it does not take.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), LinkError> {
        self.run(|| fs::write(Path::new("/proc/sys/net").join(name), value))?
            .map_err(LinkError::at("setting a sysctl of a namespace"))
    }

    /// Reads a network sysctl of this namespace.
    ///
    /// # Errors
    /// As [`Namespace::set_sysctl`].
    pub fn sysctl(&self, name: &str) -> Result<String, LinkError> {
        self.run(|| fs::read_to_string(Path::new("/proc/sys/net").join(name)))?
            .map(|value| value.trim().to_owned())
            .map_err(LinkError::at("reading a sysctl of a namespace"))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
