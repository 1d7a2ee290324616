//! How a finding is applied to this machine: by lines for people to type, narrowest first, or by
//! lastbyte itself, which enters it into the ledger first and can take it back.
//!
//! What it does itself is either of two: a route of its own for one prefix, whose connections alone
//! get another congestion control, until the next boot; or settings of the whole machine, at once and
//! by a file for each boot to come. It never replaces a route or a file.

mod machine;
mod route;
mod ways;

use std::fmt;

use lastbyte_units::ByteSize;

use crate::change::{Change, NotMade, network};
use crate::error::{Doing, Result, must, refused};
use crate::ledger::{Entry, Ledger};
use crate::prefix::Prefix;
use machine::Places;

pub use ways::{Way, congestion_ways, machine_wide_ways};

/// What lastbyte is asked to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// A congestion control, to new connections to `to`.
    Route {
        /// Where the connections lead.
        to: Prefix,
        /// The congestion control.
        congestion: String,
    },
    /// Settings for all connections: a congestion control, and up to which size the kernel may size
    /// buffers. At least one of the two.
    MachineWide {
        /// The congestion control.
        congestion: Option<String>,
        /// The greatest size of a buffer.
        buffers: Option<ByteSize>,
    },
}

/// What was applied. Shown, it says what, since when, how long, and the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number in the ledger.
    pub id: u64,
    /// What was changed.
    pub change: Change,
}

/// Applies it: entered into the ledger, then made, whole or not at all. What is left alone where it has
/// to be taken back again is reported to `tell`.
///
/// # Errors
/// All that [`check`] finds; what the kernel or the disk refuses. Then nothing of it is left, and the
/// ledger says so, or the error says what is left and is still in the ledger.
pub fn apply(ledger: &Ledger, what: &Application, tell: &mut dyn FnMut(&str)) -> Result<Applied> {
    apply_at(&Places::of_this_machine(), ledger, what, tell)
}

/// Says now what [`apply`] would refuse, so that nobody learns it after a long experiment. Changes
/// nothing.
///
/// # Errors
/// A congestion control that this kernel does not offer, a prefix that has a route already, a file
/// that is there already, missing rights: each in one sentence.
pub fn check(ledger: &Ledger, what: &Application) -> Result<()> {
    plan(&Places::of_this_machine(), ledger, what).map(drop)
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, change } = self;
        let how_long = if change.outlives_reboot() {
            "from now on and after each boot"
        } else {
            "for new connections, until the next boot"
        };
        write!(f, "applied {how_long}: {change}; `lastbyte undo {id}` takes it back")
    }
}

fn apply_at(
    places: &Places,
    ledger: &Ledger,
    what: &Application,
    tell: &mut dyn FnMut(&str),
) -> Result<Applied> {
    let change = plan(places, ledger, what)?;
    // Again, now that nobody else can enter one.
    let id = ledger.plan_if(&change, &|open| is_no_clash(what, open))?;
    if let Err(NotMade { error, left }) = make(&change) {
        if let Some(left) = left {
            let hint = format!("part of it is left: {left}; see `lastbyte undo {id}`");
            return Err(error.while_doing(hint));
        }
        ledger.undone(id).doing("nothing was changed, but that is not in the ledger")?;
        return Err(error);
    }
    if let Err(error) = ledger.made(id) {
        change.take_back(tell).doing("it was applied, and cannot be taken back")?;
        return Err(error.while_doing("taken back, as the ledger does not take that it was made"));
    }
    Ok(Applied { id, change })
}

fn make(change: &Change) -> Result<(), NotMade> {
    match change {
        Change::Route(route) => route.make(),
        Change::SysctlFile(settings) => settings.make(),
        Change::Namespace { .. } | Change::Process { .. } => Ok(()),
        Change::Congestion(_) | Change::Bpffs(_) | Change::Socket(_) => Ok(()),
    }
}

fn plan(places: &Places, ledger: &Ledger, what: &Application) -> Result<Change> {
    has_rights(what)?;
    ledger.open_changes()?.iter().try_for_each(|open| is_no_clash(what, open))?;
    Ok(match what {
        Application::Route { to, congestion } => {
            is_offered(congestion)?;
            Change::Route(route::plan(*to, congestion)?)
        }
        Application::MachineWide { congestion, buffers } => {
            congestion.as_deref().map_or(Ok(()), is_offered_for_good)?;
            Change::SysctlFile(machine::plan(places, congestion.as_deref(), *buffers)?)
        }
    })
}

/// Refuses what the kernel does not have now, and what is no name at all.
fn is_offered(congestion: &str) -> Result<()> {
    let available = lastbyte_congestion::available().unwrap_or_default();
    must(available.iter().any(|name| name == congestion), || {
        format!(
            "congestion control `{congestion}` is not known: this kernel offers {}",
            available.join(", ")
        )
    })?;
    // It becomes part of a file's name.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    must(congestion.bytes().all(is_plain), || {
        format!("congestion control `{congestion}` is no plain name")
    })
}

/// Refuses what the next boot takes away as well: the setting would outlast it.
fn is_offered_for_good(congestion: &str) -> Result<()> {
    must(!is_loaded(congestion), || {
        format!(
            "{congestion} is loaded until the next boot at most, and settings of the whole \
             machine outlast it: use route:PREFIX instead"
        )
    })?;
    is_offered(congestion)
}

/// Whether it is of our catalogue, and not the kernel's.
fn is_loaded(congestion: &str) -> bool {
    lastbyte_congestion::find(congestion).is_some_and(|one| one.name == congestion)
}

/// Asks the kernel: capabilities alone may be those of a user namespace, without a say in this network.
fn has_rights(what: &Application) -> Result<()> {
    if lastbyte_sys::route::may_change().doing("cannot ask netlink")? {
        return Ok(());
    }
    match what {
        Application::Route { to, .. } => Err(refused(format!(
            "adding a route to {to} needs CAP_NET_ADMIN: run it as root, such as with sudo"
        ))),
        Application::MachineWide { .. } => {
            Err(refused("settings of the whole machine need root: run it with sudo"))
        }
    }
}

/// Refuses what an open change holds: taken back in another order, neither would be what it was.
fn is_no_clash(what: &Application, open: &Entry) -> Result<()> {
    let clash = match (what, &open.change) {
        (Application::Route { to, .. }, Change::Route(route)) => {
            let is_it = *to == route.to && network()? == route.network;
            is_it.then(|| format!("a route to {to}"))
        }
        (Application::MachineWide { congestion, buffers }, Change::SysctlFile(settings)) => {
            let mut keys = machine::keys(congestion.as_deref(), *buffers);
            keys.retain(|key| settings.values.iter().any(|value| value.key == *key));
            keys.first().map(|key| (*key).to_owned())
        }
        _ => None,
    };
    if let Some(clash) = clash {
        return Err(refused(format!(
            "{clash} is lastbyte's already: `lastbyte undo {}` takes that back",
            open.id
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
