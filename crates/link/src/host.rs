//! A host of one's own: a network namespace.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

use lastbyte_host::NetworkNamespace;
use lastbyte_host::namespace::on_own_thread;
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::{mount, namespace};

use crate::error::LinkError;
use crate::port::{Kind, Port, Use};

/// The near host's address, from the block set aside for benchmarks (RFC 2544, RFC 5735).
pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The far host's address.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The near host's IPv6 address, from the block set aside for benchmarks (RFC 5180).
pub const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
/// The far host's IPv6 address.
pub const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);

/// The name of a host's one interface, where it has but one.
const INTERFACE: &str = "path0";
/// Packets that may wait for the carrier in a host's device: a second of 240 Mbit/s, so that a
/// carrier that is late is seen in the report as late, not as loss.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;
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

/// A host's device towards another host, to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its addresses, each with the length of its network's prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Device {
    /// The one device of a host that has one link.
    #[must_use]
    pub fn of(host: Host) -> Self {
        let (v4, v6) = (IpAddr::V4(host.address()), IpAddr::V6(host.address_v6()));
        Self { name: INTERFACE.to_owned(), addresses: vec![(v4, 24), (v6, 64)] }
    }
}

/// A network namespace, held by a descriptor.
#[derive(Debug)]
pub struct Namespace(NetworkNamespace);

impl Namespace {
    /// Makes an empty namespace with its loopback interface in service.
    ///
    /// # Errors
    /// [`LinkError::Rights`] without `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self, LinkError> {
        // A thread of its own: the caller stays in its namespace.
        let made = on_own_thread(|| {
            let doing = "making a network namespace";
            namespace::unshare_network().map_err(LinkError::at_namespace)?;
            let loopback = Interface::named("lo").and_then(Interface::set_up);
            loopback.map_err(LinkError::at("taking up the loopback interface"))?;
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

    /// Gives the host a device, with its addresses.
    pub(crate) fn add_device(
        &self,
        device: &Device,
        kinds: &[Kind],
        use_of: Use,
    ) -> Result<Port, LinkError> {
        self.run(|| {
            let port = Port::create(&device.name, kinds, use_of)?;
            configure(device, &port, use_of).map_err(LinkError::at("configuring a device"))?;
            Ok(port)
        })?
    }

    /// Packets that a device of the host dropped unasked, so far.
    pub(crate) fn device_drops(&self, device: &Device) -> Result<u64, LinkError> {
        let counters = self.run(|| Interface::named(&device.name)?.counters())?;
        let counters = counters.map_err(LinkError::at("reading a device's counters"))?;
        Ok(counters.rx_dropped + counters.tx_dropped)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn configure(device: &Device, port: &Port, use_of: Use) -> io::Result<()> {
    let interface = Interface::named(&device.name)?;
    interface.set_queue(DEVICE_QUEUE_PACKETS)?;
    interface.set_mtu(use_of.mtu)?;
    quieten_ipv6(&device.name);
    port.set_up(interface)?;
    for (address, prefix_bits) in &device.addresses {
        match interface.add_address(*address, *prefix_bits) {
            // A kernel booted without IPv6 has no such family, nor has a device with an MTU that is too
            // small for it: the path is IPv4's then.
            Err(error) if address.is_ipv6() && error.kind() != io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(())
}

/// Keeps the kernel from sending packets that nobody asked for: the model's decisions go by the
/// order of packets, and these would come between.
fn quieten_ipv6(device: &str) {
    let settings = Path::new("/proc/sys/net/ipv6/conf").join(device);
    for (name, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
        // Without IPv6 there is nothing to keep quiet.
        let _ = fs::write(settings.join(name), value);
    }
}
