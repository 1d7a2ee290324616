//! A topology from TOML.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::parsed::{AtLine, LocatedError, Parsed, ParsedLink, ParsedRoute};
use super::{InvalidTopology, Topology, TopologyError};
use crate::scenario::{LinkText, ScenarioError};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    #[serde(default)]
    hosts: Vec<Spanned<HostText>>,
    #[serde(default)]
    links: Vec<Spanned<LinkText>>,
    #[serde(default)]
    routes: Vec<Spanned<RouteText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteText {
    host: String,
    to: String,
    via: String,
}

/// Reads a topology; files that it names lie in `folder`.
pub(super) fn parse(
    folder: Option<&Path>,
    name: &str,
    text: &str,
) -> Result<Topology, TopologyError> {
    let file = toml::from_str(text);
    let file: File = file.map_err(|cause| TopologyError::Text { name: name.to_owned(), cause })?;
    let checked = draft(folder, name, text, file).and_then(Parsed::check);
    checked.map_err(|(line, cause)| TopologyError::Invalid { name: name.to_owned(), line, cause })
}

fn draft(
    folder: Option<&Path>,
    name: &str,
    text: &str,
    file: File,
) -> Result<Parsed, LocatedError> {
    let line_of = |at: usize| 1 + text[..at].matches('\n').count();
    let mut draft =
        Parsed { title: file.title.unwrap_or_else(|| name.to_owned()), ..Parsed::default() };
    for host in file.hosts {
        let line = line_of(host.span().start);
        draft.hosts.push(AtLine { line, table: host.into_inner().name });
    }
    for link in file.links {
        let line = line_of(link.span().start);
        let link = link.into_inner();
        let named = link.named_path(folder).map_err(InvalidTopology::Scenario);
        let spec = named.and_then(|path| link.changed(path, folder).map_err(of_a_link));
        let spec = spec.map_err(|fault| (Some(line), fault))?;
        let table = ParsedLink { name: link.name, between: link.between, spec };
        draft.links.push(AtLine { line, table });
    }
    for route in file.routes {
        let line = line_of(route.span().start);
        let RouteText { host, to, via } = route.into_inner();
        draft.routes.push(AtLine { line, table: ParsedRoute { host, to, via } });
    }
    Ok(draft)
}

/// What is wrong with the keys of a link, which is no scenario with a name.
fn of_a_link(fault: ScenarioError) -> InvalidTopology {
    match fault {
        ScenarioError::Spec { cause, .. } => InvalidTopology::Spec(cause),
        ScenarioError::Without { key, .. } => InvalidTopology::Without(key),
        other => InvalidTopology::Scenario(other),
    }
}
