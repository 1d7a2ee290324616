//! What a file says a network is, and whether it makes sense.

use super::ways::Ways;
use super::{
    Attachment, HostPlan, LONGEST_HOST_NAME, LONGEST_LINK_NAME, LinkPlan, MOST_HOSTS, MOST_LINKS,
    Nonsense, Topology,
};
use crate::host::Host;
use crate::spec::Spec;

/// A network as it was said to be.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) title: String,
    pub(super) hosts: Vec<At<String>>,
    pub(super) links: Vec<At<LinkDraft>>,
    pub(super) routes: Vec<At<RouteDraft>>,
}

/// A table, and the line where it begins.
#[derive(Debug)]
pub(super) struct At<T> {
    pub(super) line: usize,
    pub(super) table: T,
}

#[derive(Debug)]
pub(super) struct LinkDraft {
    pub(super) name: Option<String>,
    pub(super) between: [String; 2],
    pub(super) spec: Spec,
}

#[derive(Debug)]
pub(super) struct RouteDraft {
    pub(super) host: String,
    pub(super) to: String,
    pub(super) via: String,
}

/// What makes no sense, and in which line.
pub(super) type Complaint = (Option<usize>, Nonsense);

impl Draft {
    /// The network, if it makes sense.
    pub(super) fn check(self) -> Result<Topology, Complaint> {
        let hosts = self.host_names()?;
        let links = self.link_plans(&hosts)?;
        let attachments = attachments(hosts.len(), &links);
        let neighbours: Vec<Vec<usize>> = attachments
            .iter()
            .map(|ends: &Vec<Attachment>| ends.iter().map(|end| end.neighbour).collect())
            .collect();
        let alone = neighbours.iter().position(Vec::is_empty);
        if let Some(host) = alone {
            let said = self.hosts.iter().find(|said| said.table == hosts[host]);
            let line = said.map(|said| said.line);
            return Err((line, Nonsense::Alone(hosts[host].clone())));
        }
        let ways = Ways::shortest(&neighbours);
        if let Some(to) = (1..hosts.len()).find(|to| ways.next(0, *to).is_none()) {
            let (from, to) = (hosts[0].clone(), hosts[to].clone());
            return Err((None, Nonsense::TwoParts { from, to }));
        }
        let host = |(number, (name, attachments))| HostPlan { name, number, attachments };
        let hosts = hosts.into_iter().zip(attachments).enumerate().map(host).collect();
        let mut topology = Topology { title: self.title, hosts, links, ways };
        turn(&mut topology, &self.routes)?;
        match topology.ways.circle(&neighbours) {
            None => Ok(topology),
            Some((to, circle)) => {
                let name = |host: usize| topology.hosts[host].name.clone();
                let circle = circle.into_iter().map(name).collect();
                Err((None, Nonsense::Circle { to: name(to), circle }))
            }
        }
    }

    /// The names of all hosts, those of `[[hosts]]` first.
    fn host_names(&self) -> Result<Vec<String>, Complaint> {
        let mut names: Vec<String> = Vec::new();
        for At { line, table: name } in &self.hosts {
            if names.contains(name) {
                return Err((Some(*line), Nonsense::HostTwice(name.clone())));
            }
            names.push(host_name(*line, name)?);
        }
        for At { line, table: LinkDraft { between, .. } } in &self.links {
            for name in between {
                if !names.contains(name) {
                    names.push(host_name(*line, name)?);
                }
            }
            if between[0] == between[1] {
                return Err((Some(*line), Nonsense::LinkToItself(between[0].clone())));
            }
        }
        if names.len() > MOST_HOSTS {
            return Err((None, Nonsense::TooManyHosts(names.len())));
        }
        Ok(names)
    }

    fn link_plans(&self, hosts: &[String]) -> Result<Vec<LinkPlan>, Complaint> {
        match self.links.len() {
            0 => return Err((None, Nonsense::NoLinks)),
            links if links > MOST_LINKS => return Err((None, Nonsense::TooManyLinks(links))),
            _ => {}
        }
        let mut taken = hosts.to_vec();
        for At { line, table } in &self.links {
            let Some(name) = &table.name else { continue };
            let fault = match taken.iter().position(|taken| taken == name) {
                _ if !is_name(name, LONGEST_LINK_NAME) => Nonsense::LinkName(name.clone()),
                Some(place) if place < hosts.len() => Nonsense::LinkNamedAsHost(name.clone()),
                Some(_) => Nonsense::LinkTwice(name.clone()),
                None => {
                    taken.push(name.clone());
                    continue;
                }
            };
            return Err((Some(*line), fault));
        }
        let mut plans = Vec::new();
        for At { line, table } in &self.links {
            let name = table.name.clone().unwrap_or_else(|| {
                let name = unlike(&table.between.join("-"), &taken);
                taken.push(name.clone());
                name
            });
            let [near, far] = &table.between;
            let ends = [place(*line, near, hosts)?, place(*line, far, hosts)?];
            plans.push(LinkPlan { name, hosts: ends, spec: table.spec.clone() });
        }
        Ok(plans)
    }
}

/// The ends of links at each host.
fn attachments(hosts: usize, links: &[LinkPlan]) -> Vec<Vec<Attachment>> {
    let mut attachments: Vec<Vec<Attachment>> = vec![Vec::new(); hosts];
    for (number, link) in links.iter().enumerate() {
        for end in [Host::Near, Host::Far] {
            let here = &mut attachments[link.host(end)];
            let there = link.host(end.other());
            here.push(Attachment::new(here.len(), (number, &link.spec), end, there));
        }
    }
    attachments
}

/// Makes the ways differ as routes say.
fn turn(topology: &mut Topology, routes: &[At<RouteDraft>]) -> Result<(), Complaint> {
    let names: Vec<String> = topology.hosts.iter().map(|host| host.name.clone()).collect();
    let mut turned = Vec::new();
    for At { line, table: RouteDraft { host, to, via } } in routes {
        let (from, towards) = (place(*line, host, &names)?, place(*line, to, &names)?);
        if from == towards {
            return Err((Some(*line), Nonsense::RouteToItself(host.clone())));
        }
        if turned.contains(&(from, towards)) {
            let (host, to) = (host.clone(), to.clone());
            return Err((Some(*line), Nonsense::RouteTwice { host, to }));
        }
        turned.push((from, towards));
        let is_meant = |end: &Attachment| {
            names[end.neighbour] == *via || topology.links[end.link].name == *via
        };
        let Some(attachment) = topology.hosts[from].attachments.iter().position(is_meant) else {
            let (host, via) = (host.clone(), via.clone());
            return Err((Some(*line), Nonsense::NoNeighbour { host, via }));
        };
        topology.ways.turn(from, towards, attachment);
    }
    Ok(())
}

/// The place of a host among all.
fn place(line: usize, name: &str, hosts: &[String]) -> Result<usize, Complaint> {
    let place = hosts.iter().position(|host| host == name);
    place.ok_or_else(|| (Some(line), Nonsense::NoSuchHost(name.to_owned())))
}

/// The name, with the least number behind it by which it is like none of these.
fn unlike(name: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // As many names as these and one more cannot all be taken.
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

fn host_name(line: usize, name: &str) -> Result<String, Complaint> {
    // A guest's own machine is called so. A letter comes first because a number is an address to
    // programs: 1 is 0.0.0.1.
    if is_name(name, LONGEST_HOST_NAME) && name != "localhost" {
        Ok(name.to_owned())
    } else {
        Err((Some(line), Nonsense::HostName(name.to_owned())))
    }
}

/// Whether it may be part of a file's name, a host's (RFC 1123 section 2.1) and, with dashes turned
/// into underscores, a variable's.
fn is_name(name: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=longest).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(is_allowed)
}
