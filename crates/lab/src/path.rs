//! Where a run happens: over loopback, or over an emulated path.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::JoinHandle;

use lastbyte_link::{Host, Link, LinkError, Report, Scenario};

/// A path to run over.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// This machine's loopback interface: needs no rights, and has neither delay nor loss.
    Loopback,
    /// An emulated path, made for each run.
    Link(Box<Scenario>),
}

impl Path {
    /// Makes the path.
    ///
    /// # Errors
    /// [`LinkError::Rights`] says what is missing and how to get it.
    pub fn up(&self, seed: u64) -> Result<PathUp, LinkError> {
        match self {
            Self::Loopback => Ok(PathUp { link: None }),
            Self::Link(scenario) => Ok(PathUp { link: Some(Link::up(&scenario.spec, seed)?) }),
        }
    }

    /// The scenario, where it is an emulated path.
    #[must_use]
    pub fn scenario(&self) -> Option<&Scenario> {
        match self {
            Self::Loopback => None,
            Self::Link(scenario) => Some(scenario),
        }
    }
}

/// A path that is there.
#[derive(Debug)]
pub struct PathUp {
    link: Option<Link>,
}

impl PathUp {
    /// A host's address.
    #[must_use]
    pub fn address(&self, host: Host) -> IpAddr {
        match self.link {
            Some(_) => host.address().into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Does `work` on a host and waits for it.
    ///
    /// # Errors
    /// When the host cannot be entered.
    pub fn run<T: Send>(
        &self,
        host: Host,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LinkError> {
        match &self.link {
            Some(link) => link.host(host).run(work),
            None => Ok(work()),
        }
    }

    /// Starts a thread on a host.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        host: Host,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LinkError>>, LinkError> {
        match &self.link {
            Some(link) => link.host(host).spawn(name, work),
            None => Ok(std::thread::spawn(|| Ok(work()))),
        }
    }

    /// Sets a network sysctl of a host. Loopback is this machine itself, and is left as it is.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_sysctl(&self, host: Host, name: &str, value: &str) -> Result<(), LinkError> {
        match &self.link {
            Some(link) => link.host(host).set_sysctl(name, value),
            None => Ok(()),
        }
    }

    /// Ends the path; its report where it was an emulated one.
    ///
    /// # Errors
    /// When the link had failed on the way.
    pub fn down(self) -> Result<Option<Report>, LinkError> {
        self.link.map(Link::down).transpose()
    }
}
