//! The process that carries a persistent link.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use lastbyte_changes::{Change, Ledger};
use lastbyte_host::namespace::NAMES;
use lastbyte_link::{HostPlan, LinkFigures, Namespace, Network, Report, Setting, Spec, Topology};
use lastbyte_sandbox::Neighbour;

use crate::control::{Answer, ControlSocket, Question, SetRequest};
use crate::error::{PersistentError, Result};
use crate::persistent_link::{is_free, namespace_path};

/// What the carrier says on stdout when all is there; anything else is why it is not.
pub const READY: &str = "ready\n";
/// How often a carrier looks whether its link still is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a carrier carries.
#[derive(Debug)]
pub struct Carrier {
    carried: Carried,
    control: ControlSocket,
}

/// A network, and what it is like.
#[derive(Debug)]
struct Carried {
    name: String,
    network: Network,
    /// What each link is like now.
    specs: Vec<Spec>,
    /// Why a link carries no more.
    failure: Option<String>,
}

impl Carrier {
    /// Makes the network, each change entered before it is made; takes back what was made if one fails,
    /// and reports to `tell` what that leaves alone. This process is the carrier from then on.
    ///
    /// # Errors
    /// The name is taken, the network cannot be made, or the ledger cannot be written.
    pub fn bring_up(
        name: &str,
        topology: &Topology,
        seed: u64,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let ledger = Ledger::of_this_user()?;
        let what = format!("carries {}", describe(topology));
        let me = Change::process(name, std::process::id().cast_signed(), &what)?;
        let me = ledger.plan_if(&me, &|entry| is_free(name, entry))?;
        let mut persistent = Vec::new();
        let made = (|| {
            ledger.made(me)?;
            let mut hosts = Vec::new();
            for host in topology.hosts() {
                hosts.push(keep(&ledger, name, host.name(), &mut persistent)?);
            }
            let network = Network::between(topology, hosts, seed)?;
            let control = ControlSocket::open(name)?;
            let specs = network.links().map(|(plan, _)| plan.spec().clone()).collect();
            let carried = Carried { name: name.to_owned(), network, specs, failure: None };
            Ok(Self { carried, control })
        })();
        if made.is_err() {
            for id in persistent {
                ledger.undo(id, tell)?;
            }
            // This process is about to end by itself.
            ledger.undone(me)?;
        }
        made
    }

    /// Carries packets and answers commands until this process is ended.
    ///
    /// # Errors
    /// The kernel does not wait for commands.
    pub fn serve(mut self) -> Result<()> {
        loop {
            self.control.answer_one(LOOK_EVERY, &mut |question| self.carried.answer(question))?;
            self.carried.look_for_failures();
        }
    }
}

impl Carried {
    /// A link that fails is told of to whoever asks, for as long as the network is there.
    fn look_for_failures(&mut self) {
        if let Some(error) = self.network.take_failure() {
            self.failure = Some(error.to_string());
        }
    }

    fn answer(&mut self, question: Question) -> Result<Answer> {
        Ok(match question {
            Question::Figures => {
                self.is_whole()?;
                let links = self.network.report()?;
                let figures =
                    |(link, report): &(String, Report)| LinkFigures::of(self.name_of(link), report);
                Answer::Figures(links.iter().map(figures).collect())
            }
            Question::Neighbours => {
                Answer::Neighbours(self.network.hosts().map(|(host, _)| neighbour(host)).collect())
            }
            Question::Set(request) => self.set(&request)?,
        })
    }

    /// What the reader knows a link by: the only one by the name that it was made with.
    fn name_of<'a>(&'a self, link: &'a str) -> &'a str {
        if self.specs.len() == 1 { &self.name } else { link }
    }

    fn is_whole(&self) -> Result<()> {
        self.failure
            .as_ref()
            .map_or(Ok(()), |why| Err(PersistentError::Carrier(format!("it has failed: {why}"))))
    }

    fn set(&mut self, request: &SetRequest) -> Result<Answer> {
        self.is_whole()?;
        let names: Vec<&str> =
            self.network.links().map(|(plan, _)| self.name_of(plan.name())).collect();
        let place = match &request.link {
            Some(link) => names.iter().position(|name| name == link),
            None => Some(0).filter(|_| names.len() == 1),
        };
        let there_are = names.join(", ");
        let place = match (place, &request.link) {
            (Some(place), _) => place,
            (None, Some(link)) => {
                let why = format!("there is no link {link} here: there are {there_are}");
                return Err(PersistentError::Carrier(why));
            }
            (None, None) => {
                let why = format!("which link? Say --link and one of {there_are}");
                return Err(PersistentError::Carrier(why));
            }
        };
        let words = request.words.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let setting = Setting::from_pairs(words, request.way)?;
        let spec = setting.of(&self.specs[place], &request.folder)?;
        let (_, link) = self
            .network
            .links()
            .nth(place)
            .ok_or_else(|| PersistentError::Carrier("it was there a moment ago".to_owned()))?;
        link.become_path(&spec)?;
        let answer = Answer::Set(names[place].to_owned(), spec.to_string());
        self.specs[place] = spec;
        Ok(answer)
    }
}

/// A host by the addresses that do not depend on where one comes from.
fn neighbour(host: &HostPlan) -> Neighbour {
    let (v4, v6) = (host.address().into(), host.address_v6().map(IpAddr::from));
    Neighbour { name: host.name().to_owned(), addresses: std::iter::once(v4).chain(v6).collect() }
}

/// Makes a namespace and keeps it under a name, entered in the ledger before; its number goes into
/// `persistent`.
fn keep(ledger: &Ledger, link: &str, host: &str, persistent: &mut Vec<u64>) -> Result<Namespace> {
    let path = namespace_path(link, host);
    let namespace = Namespace::create()?;
    let id = ledger.plan(&Change::Namespace { link: link.to_owned(), path: path.clone() })?;
    fs::create_dir_all(NAMES)?;
    if let Err(error) = fs::File::options().write(true).create_new(true).open(&path) {
        // Not ours, so not ours to take back either.
        ledger.undone(id)?;
        return Err(PersistentError::System {
            what: format!("cannot make {}", path.display()),
            cause: error,
        });
    }
    persistent.push(id);
    namespace.keep_at(&path)?;
    ledger.made(id)?;
    Ok(namespace)
}

/// A network on a line.
#[must_use]
pub fn describe(topology: &Topology) -> String {
    match topology.links() {
        [only] => only.spec().to_string(),
        links => {
            format!("{}: {} hosts, {} links", topology.title(), topology.hosts().len(), links.len())
        }
    }
}
