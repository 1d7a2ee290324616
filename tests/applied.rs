//! What was applied to a machine, as a ledger has it: `changes` lists it and `undo` takes it back,
//! whoever wrote the ledger. Its lines are spelled out here: later versions have to read them.
//!
//! Each test runs in a world of its own (see `support/world.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::answer;
use crate::support::world::{World, alone};

#[test]
fn a_route_is_listed_and_taken_back() {
    alone(|world| {
        set_up();
        // `7: one@far-one: <BROADCAST,...`.
        let shown = ip("-o link show one");
        let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
        enter(
            world,
            "made",
            &json!({
                "kind": "route",
                "to": "203.0.113.7/32",
                "congestion": "reno",
                "hops": [{
                    "via": "192.0.2.2", "device": "one", "device_index": index, "weight": 1,
                    "on_link": false
                }],
                "source": "192.0.2.1",
                "metrics": [{"rtax": 2, "value": 1400}],
                "network": network(),
            }),
        );
        let ours = "route add 203.0.113.7 via 192.0.2.2 dev one src 192.0.2.1 proto 108 mtu 1400 \
                    congctl reno";
        ip(ours);
        let what = "the route to 203.0.113.7/32 via 192.0.2.2 dev one with congctl reno";
        let told = answer(&mut world.lastbyte(&["changes"])).with_code(0);
        assert!(told.stdout.contains(what), "{told:#?}");
        let listed = answer(&mut world.lastbyte(&["changes", "--json"])).with_code(0).json_lines();
        assert_eq!(listed[0]["state"], "made");
        assert_eq!(listed[0]["change"]["to"], "203.0.113.7/32");

        // What another made of it stays, and is said.
        ip("route change 203.0.113.7 via 192.0.2.3 dev one");
        let told = answer(&mut world.lastbyte(&["undo", "1"])).with_code(0);
        assert_eq!(told.stdout, format!("undone: {what}\n"));
        assert!(told.stderr.contains("it is left alone"), "{told:#?}");
        assert!(ip("route show 203.0.113.7").contains("via 192.0.2.3"));

        ip("route del 203.0.113.7");
        ip(ours);
        let again = lines(world)[0]["change"].clone();
        enter(world, "planned", &again);
        let told = answer(&mut world.lastbyte(&["undo", "--all"])).with_code(0);
        assert_eq!((told.stdout, told.stderr), (format!("undone: {what}\n"), String::new()));
        assert_eq!(ip("route show 203.0.113.7"), "");
        let told = answer(&mut world.lastbyte(&["undo", "2"])).with_code(0);
        assert_eq!((told.stdout, told.stderr), (format!("undone: {what}\n"), String::new()));
    });
}

#[test]
fn settings_are_listed_and_taken_back() {
    alone(|world| {
        let (path, text) = ("/run/temporary/90-lastbyte-buffers.conf", "# ours\n");
        let live = "/proc/sys/net/ipv4/tcp_wmem";
        let (before, after) = ("4096 16384 100000", "4096 16384 200000");
        let change = json!({
            "kind": "sysctl_file",
            "files": [{"path": path, "text": text}],
            "values": [{
                "key": "net.ipv4.tcp_wmem", "path": live, "before": before, "after": after
            }],
            "network": network(),
        });
        enter(world, "made", &change);
        fs::write(path, text).unwrap();
        fs::write(live, after).unwrap();
        let what = format!("net.ipv4.tcp_wmem = {after} in {path}");
        let told = answer(&mut world.lastbyte(&["changes"])).with_code(0);
        assert!(told.stdout.contains(&what), "{told:#?}");

        fs::write(path, "# theirs\n").unwrap();
        let told = answer(&mut world.lastbyte(&["undo", "--all"])).with_code(2);
        assert!(told.stderr.contains("is not as lastbyte wrote it: it is left alone"), "{told:#?}");
        assert_eq!(fs::read_to_string(path).unwrap(), "# theirs\n");
        fs::write(path, text).unwrap();
        let told = answer(&mut world.lastbyte(&["undo", "--all"])).with_code(0);
        assert_eq!(told.stdout, format!("undone: {what}\n"));
        world.assert_nothing_left();
        let now = fs::read_to_string(live).unwrap();
        assert_eq!(now.split_whitespace().collect::<Vec<_>>().join(" "), before);
    });
}

/// Writes a change into the ledger, with the next number.
fn enter(world: &World, event: &str, change: &Value) {
    let path = world.state().join("changes.jsonl");
    let mut lines = lines(world);
    let id = lines.iter().filter_map(|line| line["id"].as_u64()).max().unwrap_or(0) + 1;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    lines.push(json!({
        "schema": 1, "id": id, "event": event, "at_unix_s": 1, "boot_id": boot.trim(),
        "change": change,
    }));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).unwrap();
}

fn lines(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.state().join("changes.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn network() -> u64 {
    fs::metadata("/proc/self/ns/net").unwrap().ino()
}

/// A device with a neighbour.
fn set_up() {
    ip("link add one type veth peer name far-one");
    ip("link set far-one up");
    ip("link set one up");
    ip("address add 192.0.2.1/24 dev one");
}

#[track_caller]
fn ip(words: &str) -> String {
    let said = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(said.status.success(), "ip {words}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}
