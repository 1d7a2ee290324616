//! Topologies from text to routes.

use super::*;

/// A topology of links without keys, such as `a-b b-c`.
fn linked(links: &str, rest: &str) -> Topology {
    Topology::parse("test", &toml(links, rest)).unwrap()
}

fn toml(links: &str, rest: &str) -> String {
    let link = |link: &str| {
        let (near, far) = link.split_once('-').unwrap();
        format!("[[links]]\nbetween = ['{near}', '{far}']\n")
    };
    links.split_whitespace().map(link).collect::<String>() + rest
}

fn error_of(text: &str) -> String {
    Topology::parse("bad", text).unwrap_err().to_string()
}

/// The links from one host to another.
fn links_between(topology: &Topology, from: &str, to: &str) -> String {
    let (from, to) = (topology.host(from).unwrap(), topology.host(to).unwrap());
    let names: Vec<&str> =
        topology.links_between(from, to).into_iter().map(LinkPlan::name).collect();
    names.join(" ")
}

/// A host's IPv4 routes as `ip route` would show them.
fn routes(topology: &Topology, host: &str) -> Vec<String> {
    let routes = topology.routes(topology.host(host).unwrap());
    let shown = |Route { destination, via, device, source }: &Route| {
        let source = source.map(|source| format!(" src {source}")).unwrap_or_default();
        format!("{destination} via {via} dev {device}{source}")
    };
    routes.iter().filter(|route| route.destination.is_ipv4()).map(shown).collect()
}

#[test]
fn two_hosts_are_what_a_link_makes() {
    let spec = Spec::default();
    let two = Topology::of_two(&spec);
    for end in [Host::Near, Host::Far] {
        let host = two.host_at(&two.links()[0], end);
        let [attachment] = host.attachments() else { panic!("{host:?}") };
        assert_eq!((&attachment.device, attachment.end), (&Device::of(end), end));
        assert_eq!(host.address(), end.address());
        assert_eq!(host.address_v6(), Some(end.address_v6()));
        assert!(two.routes(host).is_empty() && !host.forwards());
    }
    let text = "title = 'two hosts'\n[[links]]\nname = 'path'\nbetween = ['near', 'far']";
    assert_eq!(Topology::parse("two", text).unwrap(), two);
}

#[test]
fn hosts_of_one_link_are_known_by_its_address_and_others_by_their_own() {
    let line = linked("a-b b-c", "");
    let addresses = |name: &str| {
        let host = line.host(name).unwrap();
        (host.address().to_string(), host.address_v6().unwrap().to_string())
    };
    let owned = |v4: &str, v6: &str| (v4.to_owned(), v6.to_owned());
    assert_eq!(addresses("a"), owned("198.18.0.1", "2001:2::1"));
    assert_eq!(addresses("b"), owned("198.19.254.2", "2001:2:0:ffff::2"));
    assert_eq!(addresses("c"), owned("198.18.1.2", "2001:2:0:1::2"));
    let b = line.host("b").unwrap();
    let devices: Vec<&str> = b.attachments().iter().map(|end| end.device.name.as_str()).collect();
    assert_eq!((devices, b.addresses().len()), (vec!["path0", "path1"], 6));
}

#[test]
fn no_two_hosts_share_an_address() {
    // As many links and hosts as there may be.
    let star: String = (1..MOST_HOSTS).map(|host| format!("hub-h{host} ")).collect();
    let more: String = (MOST_HOSTS..=MOST_LINKS).map(|_| "h1-h2 ").collect();
    let large = linked(&(star + &more), "");
    assert_eq!((large.hosts().len(), large.links().len()), (MOST_HOSTS, MOST_LINKS));
    let mut all: Vec<IpAddr> = large.hosts().iter().flat_map(HostPlan::addresses).collect();
    let many = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), many);
    let of_benchmarks = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.octets()[0] == 198 && [18, 19].contains(&v4.octets()[1]),
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 2, 0],
    };
    assert!(all.iter().all(of_benchmarks));
}

#[test]
fn routes_of_a_line() {
    let line = linked("a-b b-c c-d", "");
    assert_eq!(links_between(&line, "a", "d"), "a-b b-c c-d");
    assert_eq!(
        (links_between(&line, "c", "a").as_str(), links_between(&line, "c", "c").as_str()),
        ("b-c a-b", "")
    );
    assert_eq!(
        routes(&line, "a"),
        [
            "198.19.254.2 via 198.18.0.2 dev path0",
            "198.18.1.1 via 198.18.0.2 dev path0",
            "198.19.254.3 via 198.18.0.2 dev path0",
            "198.18.1.2 via 198.18.0.2 dev path0",
            "198.18.2.1 via 198.18.0.2 dev path0",
            "198.18.2.2 via 198.18.0.2 dev path0",
        ]
    );
    assert_eq!(
        routes(&line, "c"),
        [
            "198.18.0.1 via 198.18.1.1 dev path0 src 198.19.254.3",
            "198.19.254.2 via 198.18.1.1 dev path0 src 198.19.254.3",
            "198.18.0.2 via 198.18.1.1 dev path0 src 198.19.254.3",
        ],
        "nothing to d, whose one address is on c's link"
    );
    let all = line.routes(line.host("a").unwrap());
    assert_eq!(all.len(), 12, "as many of IPv6");
    assert!(all.iter().all(|route| route.destination.is_ipv4() == route.via.is_ipv4()));
}

#[test]
fn ways_of_a_star_a_ring_and_parallel_links() {
    let star = linked("hub-a hub-b hub-c", "");
    assert_eq!(links_between(&star, "c", "a"), "hub-c hub-a");
    assert!(routes(&star, "hub").is_empty(), "all are neighbours with one address");
    let ring = linked("a-b b-c c-d d-e e-a", "");
    assert_eq!(
        (links_between(&ring, "a", "c"), links_between(&ring, "a", "d")),
        ("a-b b-c".into(), "e-a d-e".into())
    );
    let parallel = linked("a-b a-b b-c", "");
    assert_eq!(links_between(&parallel, "a", "c"), "a-b b-c");
    assert_eq!(parallel.links()[1].name(), "a-b-2");
    assert_eq!(
        routes(&parallel, "a"),
        [
            "198.19.254.2 via 198.18.0.2 dev path0 src 198.19.254.1",
            "198.18.2.1 via 198.18.0.2 dev path0 src 198.19.254.1",
            "198.18.2.2 via 198.18.0.2 dev path0 src 198.19.254.1",
        ],
        "b's addresses on the links that a has too are reached over these"
    );
}

#[test]
fn a_route_turns_one_way_alone() {
    let diamond = "a-b a-c b-d c-d";
    let route = "[[routes]]\nhost = 'a'\nto = 'd'\nvia = 'c'\n";
    let rerouted = linked(diamond, route);
    assert_eq!(links_between(&rerouted, "a", "d"), "a-c c-d");
    assert_eq!(links_between(&rerouted, "d", "a"), "b-d a-b", "the way back stays");
    assert_eq!(links_between(&linked(diamond, ""), "a", "d"), "a-b b-d");
    let to_d =
        |route: &&String| route.starts_with("198.19.254.4") || route.starts_with("198.18.3.2");
    let rerouted = routes(&rerouted, "a");
    assert_eq!(
        rerouted.iter().filter(to_d).collect::<Vec<_>>(),
        [
            "198.19.254.4 via 198.18.1.2 dev path1 src 198.19.254.1",
            "198.18.3.2 via 198.18.1.2 dev path1 src 198.19.254.1",
        ]
    );
    let by_name = "[[routes]]\nhost = 'a'\nto = 'b'\nvia = 'a-b-2'\n";
    assert_eq!(links_between(&linked("a-b a-b", by_name), "a", "b"), "a-b-2");
}

#[test]
fn links_too_small_for_ipv6_are_ways_of_ipv4_alone() {
    let text = toml("a-b", "[[links]]\nbetween = ['b', 'c']\nmtu = 1279\n");
    let narrow = Topology::parse("narrow", &text).unwrap();
    let host = |name: &str| narrow.host(name).unwrap();
    assert_eq!((host("c").address_v6(), host("c").addresses().len()), (None, 1));
    assert!(host("b").address_v6().is_some() && host("a").address_v6().is_some());
    let v6 = |route: &Route| route.destination.is_ipv6();
    let counted = |name: &str| narrow.routes(host(name)).iter().filter(|route| v6(route)).count();
    assert_eq!((counted("a"), counted("b"), counted("c")), (1, 0, 0), "a to b's own");
}

#[test]
fn a_link_is_a_scenario_but_for_what_its_keys_say() {
    let text = "[[links]]\nbetween = ['a', 'b']\nscenario = 'lte'\nloss = '1%'\nmtu = 1400\n\
                [links.down]\nrate = '20mbit'\n[[links.changes]]\nat = '5s'\ndelay = '70ms'\n\
                [[links]]\nbetween = ['b', 'c']\nrtt = '80ms'\n";
    let topology = Topology::parse("test", text).unwrap();
    let lte = crate::Scenario::find("lte").unwrap().spec;
    let [first, second] = topology.links() else { panic!("two") };
    let Spec { up, down, mtu, changes } = first.spec();
    assert_eq!((up.rate, up.delay, mtu), (lte.up.rate, lte.up.delay, &Some(1400)));
    assert_eq!(down.rate, Some("20mbit".parse().unwrap()));
    assert_eq!((up.loss, &up.jitter), (Some("1%".parse().unwrap()), &lte.up.jitter));
    assert_eq!((changes[0].up.delay.as_millis(), changes[0].up.rate), (70, lte.up.rate));
    assert_eq!((second.spec().rtt().as_millis(), second.spec().mtu), (80, None));
    assert_eq!(topology.title(), "test");
}

#[test]
fn what_a_topology_names_lies_beside_it() {
    let folder = std::env::temp_dir().join(format!("lastbyte-topology-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("net.toml");
    fs::write(&file, "[[links]]\nbetween = ['a', 'b']\nscenario = 'own.toml'\n").unwrap();
    let find = || Topology::find(file.to_str().unwrap());
    let missing = find().unwrap_err().to_string();
    assert!(missing.contains("net.toml, line 1: scenario file ") && missing.contains("own.toml"));
    fs::write(folder.join("own.toml"), "rtt = '6ms'\ntrace = 'rate.ms'").unwrap();
    fs::write(folder.join("rate.ms"), "1\n2\n").unwrap();
    assert_eq!(find().unwrap().links()[0].spec().rtt().as_millis(), 6);
    fs::remove_dir_all(&folder).unwrap();
    assert!(find().unwrap_err().to_string().contains("topology file "));
}

#[test]
fn the_documented_file_makes_sense() {
    let documented = include_str!("../topology.rs").lines();
    let toml = documented.skip_while(|line| *line != "//! ```toml").skip(1);
    let toml = toml.take_while(|line| *line != "//! ```");
    let toml: Vec<&str> = toml.map(|line| line.trim_start_matches("//!").trim()).collect();
    let topology = Topology::parse("documented", &toml.join("\n")).unwrap();
    assert_eq!(links_between(&topology, "client", "server"), "access router-server");
    assert_eq!(links_between(&topology, "server", "client"), "client-server");
}

#[test]
fn every_topology_that_comes_with_lastbyte_can_be_used() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/topologies");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap().replace(".toml", "")
    };
    let mut there: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    there.sort();
    let known: Vec<&str> = Topology::all().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, there);
    let unknown = Topology::find("dumbell").unwrap_err().to_string();
    assert!(unknown.contains("dumbbell"), "{unknown}");
}

#[test]
fn complaints_name_key_and_line() {
    let link = "[[links]]\nbetween = ['a', 'b']\n";
    for (rest, line, words) in [
        ("colour = 'blue'", 3, "`colour`"),
        ("loss = '-1%'", 3, "negative"),
        ("title = 'no'", 3, "`title`"),
        ("[links.up]\nlos = '1%'", 4, "`los`"),
        ("[[links]]\nbetween = ['a']", 4, "2"),
        ("[[links]]\nrtt = '1ms'", 3, "`between`"),
        ("[[routes]]\nhost = 'a'\nto = 'b'", 3, "`via`"),
    ] {
        let said = error_of(&format!("{link}{rest}"));
        let place = format!("line {line}");
        assert!(said.contains(&place) && said.contains(words), "{rest}: {said}");
    }
}

#[test]
fn nonsense_is_named_with_its_line() {
    let link = "[[links]]\nbetween = ['a', 'b']\n";
    let long = "abcdefghijklmnop";
    for (text, said) in [
        ("", "bad: a network has at least one link"),
        ("[[hosts]]\nname = 'A'", "bad, line 1: `A` is not a valid host name"),
        ("[[hosts]]\nname = 'localhost'", "bad, line 1: `localhost` is not a valid host name"),
        (&format!("[[hosts]]\nname = '{long}'"), "is not a valid host name"),
        ("[[links]]\nbetween = ['a', '1']", "bad, line 1: `1` is not a valid host name"),
        ("[[links]]\nbetween = ['a', 'b-']", "bad, line 1: `b-` is not a valid host name"),
        ("[[links]]\nbetween = ['a', '']", "bad, line 1: `` is not a valid host name"),
        ("[[links]]\nbetween = ['a', 'a']", "bad, line 1: a link connects `a` with itself"),
        (&format!("{link}name = 'a_b'"), "bad, line 1: `a_b` is not a valid link name"),
        (&format!("{link}name = 'b'"), "bad, line 1: link `b` has the name of a host"),
        (&format!("{link}name = 'x'\n{link}name = 'x'"), "bad, line 4: two links are called `x`"),
        (&format!("{link}queue = '1bdp'"), "bad, line 1: invalid link: a queue with"),
        (&format!("{link}scenario = 'lan2'"), "bad, line 1: there is no scenario `lan2`"),
        (&format!("{link}[[hosts]]\nname = 'c'"), "bad, line 3: host `c` has no link"),
        ("[[hosts]]\nname = 'a'\n[[hosts]]\nname = 'a'", "bad, line 3: host `a` is listed twice"),
        (
            &format!("{link}[[links.changes]]\nat = '1s'\nwithout = ['wit']"),
            "bad, line 1: `without` cannot remove `wit`",
        ),
    ] {
        let error = error_of(text);
        assert!(error.contains(said), "{text}: {error}");
    }
    let two = error_of(&toml("a-b c-d", ""));
    assert!(two.contains("no route from `a` to `c`"), "{two}");
}

#[test]
fn routes_that_lead_nowhere_are_named() {
    let route = |host: &str, to: &str, via: &str| {
        format!("[[routes]]\nhost = '{host}'\nto = '{to}'\nvia = '{via}'\n")
    };
    let twice = route("a", "c", "b") + &route("a", "c", "d");
    let looped = route("a", "c", "d") + &route("d", "c", "a");
    for (routes, said) in [
        (route("a", "z", "b"), "line 9: no host is called `z`"),
        (route("a", "a", "b"), "line 9: a route leads from `a` to itself"),
        (route("a", "c", "c"), "line 9: `a` has no link called `c`, and no link to a host"),
        (route("a", "c", "b-c"), "line 9: `a` has no link called `b-c`"),
        (twice, "line 13: `a` has two routes to `c`"),
        (looped, "routing loop: packets to `c` go round a, d, a;"),
    ] {
        let error = error_of(&toml("a-b b-c c-d d-a", &routes));
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn there_are_limits() {
    let line: String = (0..MOST_HOSTS).map(|at| format!("h{at}-h{} ", at + 1)).collect();
    let hosts = error_of(&toml(&line, ""));
    assert!(hosts.contains("65 hosts: a network has at most 64"), "{hosts}");
    let links = error_of(&toml(&"a-b ".repeat(MOST_LINKS + 1), ""));
    assert!(links.contains("101 links: a network has at most 100"), "{links}");
    let longest = linked(&"abcdefghijklmno-bcdefghijklmnop ".repeat(MOST_LINKS), "");
    let last = longest.links().last().unwrap().name();
    assert!(last.len() <= LONGEST_LINK_NAME && last.ends_with("-100"), "{last}");
}

#[test]
fn a_link_without_a_name_takes_one_that_is_free() {
    let text = "[[links]]\nbetween = ['a', 'b']\n[[links]]\nname = 'a-b'\nbetween = ['a', 'a-c']\n\
                [[links]]\nbetween = ['a', 'c']";
    let topology = Topology::parse("test", text).unwrap();
    let names: Vec<&str> = topology.links().iter().map(LinkPlan::name).collect();
    assert_eq!(names, ["a-b-2", "a-b", "a-c-2"]);
    assert_eq!(topology.link("a-b").unwrap().host(Host::Far), 2);
}
