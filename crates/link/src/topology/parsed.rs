//! A network as its file has it, and the checks that make a topology of it.

use super::next_hops::NextHops;
use super::{
    Attachment, HostPlan, InvalidTopology, LONGEST_HOST_NAME, LONGEST_LINK_NAME, LinkPlan,
    MOST_HOSTS, MOST_LINKS, Topology,
};
use crate::host::Host;
use crate::spec::Spec;

/// A network as its file has it, not yet checked.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) title: String,
    pub(super) hosts: Vec<AtLine<String>>,
    pub(super) links: Vec<AtLine<ParsedLink>>,
    pub(super) routes: Vec<AtLine<ParsedRoute>>,
}

/// A table of the file, and the line where it begins.
#[derive(Debug)]
pub(super) struct AtLine<T> {
    pub(super) line: usize,
    pub(super) table: T,
}

#[derive(Debug)]
pub(super) struct ParsedLink {
    pub(super) name: Option<String>,
    pub(super) between: [String; 2],
    pub(super) spec: Spec,
}

#[derive(Debug)]
pub(super) struct ParsedRoute {
    pub(super) host: String,
    pub(super) to: String,
    pub(super) via: String,
}

/// What is wrong, and in which line if it is about one.
pub(super) type LocatedError = (Option<usize>, InvalidTopology);

impl Parsed {
    /// The network, if it is valid.
    pub(super) fn check(self) -> Result<Topology, LocatedError> {
        let hosts = self.host_names()?;
        let links = self.link_plans(&hosts)?;
        let attachments = attachments(hosts.len(), &links);
        let neighbours: Vec<Vec<usize>> = attachments
            .iter()
            .map(|ends: &Vec<Attachment>| ends.iter().map(|end| end.neighbour).collect())
            .collect();
        let alone = neighbours.iter().position(Vec::is_empty);
        if let Some(host) = alone {
            let listed = self.hosts.iter().find(|listed| listed.table == hosts[host]);
            let line = listed.map(|listed| listed.line);
            return Err((line, InvalidTopology::Alone(hosts[host].clone())));
        }
        let next_hops = NextHops::shortest(&neighbours);
        if let Some(to) = (1..hosts.len()).find(|to| next_hops.next(0, *to).is_none()) {
            let (from, to) = (hosts[0].clone(), hosts[to].clone());
            return Err((None, InvalidTopology::TwoParts { from, to }));
        }
        let host = |(number, (name, attachments))| HostPlan { name, number, attachments };
        let hosts = hosts.into_iter().zip(attachments).enumerate().map(host).collect();
        let mut topology = Topology { title: self.title, hosts, links, next_hops };
        apply_routes(&mut topology, &self.routes)?;
        match topology.next_hops.find_loop(&neighbours) {
            None => Ok(topology),
            Some((to, hosts)) => {
                let name = |host: usize| topology.hosts[host].name.clone();
                let hosts = hosts.into_iter().map(name).collect();
                Err((None, InvalidTopology::RoutingLoop { to: name(to), hosts }))
            }
        }
    }

    /// The names of all hosts, those of `[[hosts]]` first.
    fn host_names(&self) -> Result<Vec<String>, LocatedError> {
        let mut names: Vec<String> = Vec::new();
        for AtLine { line, table: name } in &self.hosts {
            if names.contains(name) {
                return Err((Some(*line), InvalidTopology::HostTwice(name.clone())));
            }
            names.push(host_name(*line, name)?);
        }
        for AtLine { line, table: ParsedLink { between, .. } } in &self.links {
            for name in between {
                if !names.contains(name) {
                    names.push(host_name(*line, name)?);
                }
            }
            if between[0] == between[1] {
                return Err((Some(*line), InvalidTopology::LinkToItself(between[0].clone())));
            }
        }
        if names.len() > MOST_HOSTS {
            return Err((None, InvalidTopology::TooManyHosts(names.len())));
        }
        Ok(names)
    }

    fn link_plans(&self, hosts: &[String]) -> Result<Vec<LinkPlan>, LocatedError> {
        match self.links.len() {
            0 => return Err((None, InvalidTopology::NoLinks)),
            links if links > MOST_LINKS => {
                return Err((None, InvalidTopology::TooManyLinks(links)));
            }
            _ => {}
        }
        let mut taken = hosts.to_vec();
        for AtLine { line, table } in &self.links {
            let Some(name) = &table.name else { continue };
            let fault = match taken.iter().position(|taken| taken == name) {
                _ if !is_name(name, LONGEST_LINK_NAME) => InvalidTopology::LinkName(name.clone()),
                Some(place) if place < hosts.len() => {
                    InvalidTopology::LinkNamedAsHost(name.clone())
                }
                Some(_) => InvalidTopology::LinkTwice(name.clone()),
                None => {
                    taken.push(name.clone());
                    continue;
                }
            };
            return Err((Some(*line), fault));
        }
        let mut plans = Vec::new();
        for AtLine { line, table } in &self.links {
            let name = table.name.clone().unwrap_or_else(|| {
                let name = unique_name(&table.between.join("-"), &taken);
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

/// Applies the `[[routes]]` of the file.
fn apply_routes(
    topology: &mut Topology,
    routes: &[AtLine<ParsedRoute>],
) -> Result<(), LocatedError> {
    let names: Vec<String> = topology.hosts.iter().map(|host| host.name.clone()).collect();
    let mut applied = Vec::new();
    for AtLine { line, table: ParsedRoute { host, to, via } } in routes {
        let (from, towards) = (place(*line, host, &names)?, place(*line, to, &names)?);
        if from == towards {
            return Err((Some(*line), InvalidTopology::RouteToItself(host.clone())));
        }
        if applied.contains(&(from, towards)) {
            let (host, to) = (host.clone(), to.clone());
            return Err((Some(*line), InvalidTopology::RouteTwice { host, to }));
        }
        applied.push((from, towards));
        let is_meant = |end: &Attachment| {
            names[end.neighbour] == *via || topology.links[end.link].name == *via
        };
        let Some(attachment) = topology.hosts[from].attachments.iter().position(is_meant) else {
            let (host, via) = (host.clone(), via.clone());
            return Err((Some(*line), InvalidTopology::NoNeighbour { host, via }));
        };
        topology.next_hops.set(from, towards, attachment);
    }
    Ok(())
}

/// The place of a host among all.
fn place(line: usize, name: &str, hosts: &[String]) -> Result<usize, LocatedError> {
    let place = hosts.iter().position(|host| host == name);
    place.ok_or_else(|| (Some(line), InvalidTopology::NoSuchHost(name.to_owned())))
}

/// The name, with the least number appended that makes it differ from all of these.
fn unique_name(name: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // There is one more candidate than names that are taken.
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

fn host_name(line: usize, name: &str) -> Result<String, LocatedError> {
    // A guest's own machine is called so. A letter comes first because a number is an address to
    // programs: 1 is 0.0.0.1.
    if is_name(name, LONGEST_HOST_NAME) && name != "localhost" {
        Ok(name.to_owned())
    } else {
        Err((Some(line), InvalidTopology::HostName(name.to_owned())))
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
