//! A host's device, and how it is made and configured.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use lastbyte_sys::netlink::Interface;

use crate::error::LinkError;
use crate::host::{Host, Namespace};
use crate::port::{Kind, Port, PortOptions};

/// The name of a host's interface, where it has only one.
const INTERFACE: &str = "path0";
/// Packets that may wait for the carrier in a host's device: a second of 240 Mbit/s, so that a
/// carrier that is late is seen in the report as late, not as loss.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;

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

    /// Makes the device on a host, of the first of these kinds that there is.
    pub(crate) fn create_on(
        &self,
        host: &Namespace,
        kinds: &[Kind],
        options: PortOptions,
    ) -> Result<Port, LinkError> {
        host.run(|| {
            let port = Port::create(&self.name, kinds, options)?;
            configure(self, &port, options).map_err(LinkError::at("configuring a device"))?;
            Ok(port)
        })?
    }

    /// Packets that the device dropped unasked, so far.
    pub(crate) fn drops_on(&self, host: &Namespace) -> Result<u64, LinkError> {
        let counters = host.run(|| Interface::named(&self.name)?.counters())?;
        let counters = counters.map_err(LinkError::at("reading a device's counters"))?;
        Ok(counters.rx_dropped + counters.tx_dropped)
    }
}

fn configure(device: &Device, port: &Port, options: PortOptions) -> io::Result<()> {
    let interface = Interface::named(&device.name)?;
    interface.set_queue(DEVICE_QUEUE_PACKETS)?;
    interface.set_mtu(options.mtu)?;
    silence_ipv6(&device.name);
    port.set_up(interface)?;
    for (address, prefix_bits) in &device.addresses {
        match interface.add_address(*address, *prefix_bits) {
            // A kernel booted without IPv6 has no such family, nor has a device with an MTU that is too
            // small for it: such a path carries IPv4 alone.
            Err(error) if address.is_ipv6() && error.kind() != io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(())
}

/// Keeps the kernel from sending packets that no program asked for: the model decides in the order of
/// packets, and these would be counted in between.
fn silence_ipv6(device: &str) {
    let settings = Path::new("/proc/sys/net/ipv6/conf").join(device);
    for (name, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
        // Fails where the kernel has no IPv6.
        let _ = fs::write(settings.join(name), value);
    }
}
