//! Settings of the whole machine: files in a directory of the test's own, values of a network of its own.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use lastbyte_congestion::{allowed, available, default_algorithm};
use lastbyte_sys::namespace;

use super::*;
use crate::change::LiveValue;

/// Names and contents of the files that were made.
fn files(host: &Host) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for directory in ["sysctl.d", "modules-load.d"] {
        for entry in fs::read_dir(host.scratch.path(directory)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(host.scratch.path("")).unwrap().to_str().unwrap();
            files.push((name.to_owned(), fs::read_to_string(&path).unwrap_or_default()));
        }
    }
    files.sort();
    files
}

fn value(host: &Host, key: &str) -> String {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    host.run(|| LiveValue::read(Path::new(&path)).unwrap())
}

#[test]
fn settings_are_made_at_once_and_by_a_file_and_taken_back() {
    let Some(host) = Host::new("") else { return };
    host.set("net.ipv4.tcp_wmem", "4096 16384 100000");
    host.set("net.ipv4.tcp_rmem", "4096 131072 9000000");
    let qdisc = fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap();
    for (what, name, lines) in [
        (machine_wide(OTHER, None), "reno", "net.ipv4.tcp_congestion_control = reno\n"),
        (
            machine_wide("", Some("8MiB")),
            "buffers",
            "net.ipv4.tcp_wmem = 4096 16384 8388608\nnet.ipv4.tcp_rmem = 4096 131072 9000000\n",
        ),
        (
            machine_wide(OTHER, Some("8MiB")),
            "reno-buffers",
            "net.ipv4.tcp_congestion_control = reno\nnet.ipv4.tcp_wmem = 4096 16384 8388608\n\
             net.ipv4.tcp_rmem = 4096 131072 9000000\n",
        ),
    ] {
        let before = live(&host);
        let applied = host.apply(&what).unwrap();
        let made = files(&host);
        assert_eq!(made.len(), 1, "{made:?}");
        let (path, text) = &made[0];
        assert_eq!(*path, format!("sysctl.d/90-lastbyte-{name}.conf"));
        let (comment, settings) = text.split_at(text.find("\nnet").unwrap() + 1);
        assert!(comment.starts_with("# Written by lastbyte"), "{comment}");
        assert!(comment.contains("`lastbyte undo NUMBER`"), "{comment}");
        assert!(comment.lines().all(|line| line.starts_with("# ")), "{comment}");
        assert_eq!(settings, lines);
        let mode = fs::metadata(host.scratch.path(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        for (key, set) in settings.lines().map(|line| line.split_once(" = ").unwrap()) {
            assert_eq!(value(&host, key), set, "{key}");
        }
        let told = applied.to_string();
        assert!(told.contains("from now on and after each boot: net.ipv4.tcp_"), "{told}");
        let kept = serde_json::to_string(&applied.change).unwrap();
        assert!(kept.starts_with("{\"kind\":\"sysctl_file\","), "{kept}");
        assert_eq!(serde_json::from_str::<Change>(&kept).unwrap(), applied.change);
        // It is still there after a boot.
        let rebooted = Ledger::at(host.ledger.path().to_owned(), "boot-2".to_owned());
        assert_eq!(rebooted.open_changes().unwrap().len(), 1);

        assert_eq!(host.undo(applied.id).unwrap().state, State::Undone);
        assert_eq!(host.told_at_take_back(&applied.change), Vec::<String>::new());
        assert_eq!((files(&host), live(&host)), (Vec::new(), before));
    }
    assert_eq!(fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap(), qdisc);
}

/// All values that could have been set.
fn live(host: &Host) -> Vec<String> {
    let keys = ["tcp_congestion_control", "tcp_wmem", "tcp_rmem"];
    keys.into_iter().map(|key| value(host, &format!("net.ipv4.{key}"))).collect()
}

#[test]
fn a_kill_anywhere_leaves_what_undo_takes_back() {
    let Some(host) = Host::new("") else { return };
    let what = machine_wide(OTHER, Some("64MiB"));
    let before = live(&host);
    // Nothing yet; part of the file under its other name; the file; some values; all of it.
    for reached in 0..5 {
        let change = host.run(|| plan(&host.places(), &host.ledger, &what)).unwrap();
        let id = host.ledger.plan(&change).unwrap();
        let Change::SysctlFile(settings) = &change else { panic!("{change}") };
        let file = &settings.files[0];
        let mut part = settings.clone();
        match reached {
            0 => {}
            1 => fs::write(file.path.with_extension("conf.new"), &file.text[..20]).unwrap(),
            2 | 3 => {
                part.values.truncate(if reached == 2 { 0 } else { 1 });
                host.run(|| part.make()).unwrap();
                fs::hard_link(&file.path, file.path.with_extension("conf.new")).unwrap();
            }
            _ => host.run(|| part.make()).unwrap(),
        }
        let entry = host.undo(id).unwrap();
        assert_eq!(entry.state, State::Undone);
        assert_eq!((files(&host), live(&host)), (Vec::new(), before.clone()), "{reached}");
    }
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    let path = host.scratch.path("sysctl.d/90-lastbyte-reno.conf");
    let theirs = "# somebody's\n";
    for leads_nowhere in [false, true] {
        if leads_nowhere {
            std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
        } else {
            fs::write(&path, theirs).unwrap();
        }
        let there = files(&host);
        let error = host.refused(&machine_wide(OTHER, None));
        assert!(error.contains("90-lastbyte-reno.conf already: it is left alone"), "{error}");
        assert_eq!((files(&host), live(&host)), (there, before.clone()));
        fs::remove_file(&path).unwrap();
    }
    // One that was faster.
    let change =
        host.run(|| plan(&host.places(), &host.ledger, &machine_wide(OTHER, None))).unwrap();
    fs::write(&path, theirs).unwrap();
    let not_made = host.run(|| make(&change)).unwrap_err();
    assert!(not_made.left.is_none(), "{not_made:?}");
    assert!(not_made.error.to_string().contains("that lastbyte did not make"), "{not_made:?}");
    let there = vec![("sysctl.d/90-lastbyte-reno.conf".to_owned(), theirs.to_owned())];
    assert_eq!((files(&host), live(&host)), (there, before));
}

#[test]
fn a_file_that_is_read_later_would_win_and_is_named() {
    let Some(host) = Host::new("") else { return };
    fs::create_dir(host.scratch.path("read-too")).unwrap();
    for (name, text, wins) in [
        ("sysctl.d/99-theirs.conf", "net.ipv4.tcp_congestion_control=cubic\n", true),
        ("read-too/99-theirs.conf", "-net/ipv4/tcp_congestion_control = cubic\n", true),
        ("sysctl.d/99-theirs.conf", "net.ipv4.tcp_congestion_control=reno\n", false),
        ("sysctl.d/99-theirs.conf.old", "net.ipv4.tcp_congestion_control=cubic\n", false),
        ("sysctl.d/10-theirs.conf", "net.ipv4.tcp_congestion_control=cubic\n", false),
    ] {
        let path = host.scratch.path(name);
        fs::write(&path, text).unwrap();
        if wins {
            let error = host.refused(&machine_wide(OTHER, None));
            assert!(
                error.contains("theirs.conf has net.ipv4.tcp_congestion_control = cubic, and is")
            );
        } else {
            let applied = host.apply(&machine_wide(OTHER, None)).unwrap();
            host.undo(applied.id).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_changed_since_stays_with_the_values_until_its_owner_removes_it() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    let applied = host.apply(&machine_wide(OTHER, None)).unwrap();
    let path = host.scratch.path("sysctl.d/90-lastbyte-reno.conf");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"vm.swappiness = 1\n").unwrap();
    let (there, now) = (files(&host), live(&host));
    let report = host.run(|| host.ledger.undo_all(&mut |_| {})).unwrap();
    assert_eq!(report.failed.len(), 1);
    let error = report.failed[0].1.to_string();
    assert!(error.contains("is not as lastbyte wrote it: it is left alone"), "{error}");
    assert_eq!((files(&host), live(&host)), (there, now));
    assert_eq!(host.states(), [State::Made]);

    fs::remove_file(&path).unwrap();
    host.undo(applied.id).unwrap();
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
}

#[test]
fn a_value_changed_since_is_left_alone_and_the_rest_is_taken_back() {
    let Some(host) = Host::new("") else { return };
    host.set("net.ipv4.tcp_wmem", "4096 16384 100000");
    let default = host.congestion_now();
    let applied = host.apply(&machine_wide(OTHER, Some("8MiB"))).unwrap();
    host.set("net.ipv4.tcp_wmem", "4096 16384 200000");
    assert_eq!(
        host.told_at_take_back(&applied.change),
        [
            "net.ipv4.tcp_wmem is 4096 16384 200000 now, not 4096 16384 8388608 as lastbyte set it: it is \
          left alone"
        ]
    );
    assert_eq!(files(&host), []);
    assert_eq!(host.congestion_now(), default);
    assert_eq!(value(&host, "net.ipv4.tcp_wmem"), "4096 16384 200000");
    assert_eq!(host.undo(applied.id).unwrap().state, State::Undone);

    // Values of another network are not these.
    let applied = host.apply(&machine_wide(OTHER, None)).unwrap();
    let elsewhere = Namespace::create().unwrap();
    let there = || {
        fs::write("/proc/sys/net/ipv4/tcp_congestion_control", OTHER).unwrap();
        host.ledger.undo(applied.id, &mut |_| {}).unwrap();
        default_algorithm().unwrap()
    };
    assert_eq!(elsewhere.run(there).unwrap(), OTHER);
    assert_eq!(host.congestion_now(), OTHER);
    assert_eq!(files(&host), []);
}

#[test]
fn one_value_is_set_by_one_change_at_a_time() {
    let Some(host) = Host::new("") else { return };
    // The only other name that a network beside the first one may have.
    let default = host.congestion_now();
    let applied = host.apply(&machine_wide(OTHER, None)).unwrap();
    let (there, now) = (files(&host), live(&host));
    let error = host.apply(&machine_wide(&default, None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "net.ipv4.tcp_congestion_control is lastbyte's already: `lastbyte undo 1` takes that back"
    );
    assert_eq!((files(&host), live(&host)), (there, now));
    host.apply(&machine_wide("", Some("64MiB"))).unwrap();
    host.undo(applied.id).unwrap();
    host.apply(&machine_wide(&default, None)).unwrap();
    let report = host.run(|| host.ledger.undo_all(&mut |_| {})).unwrap();
    assert_eq!((report.undone.len(), report.failed.len()), (2, 0));
    assert_eq!(files(&host), []);
}

/// The file and two values are made when the third cannot be.
#[test]
fn what_fails_half_way_is_taken_back() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    let change = host
        .run(|| plan(&host.places(), &host.ledger, &machine_wide(OTHER, Some("64MiB"))))
        .unwrap();
    let Change::SysctlFile(mut settings) = change else { panic!("{change}") };
    settings.values[2].after = "rubbish".to_owned();
    let not_made = host.run(|| settings.make()).unwrap_err();
    let error = not_made.error.to_string();
    assert!(error.contains("cannot set net.ipv4.tcp_rmem = rubbish: Invalid argument"), "{error}");
    assert!(not_made.left.is_none(), "{not_made:?}");
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
}

#[test]
fn a_module_is_loaded_at_boot_by_a_file_of_the_same_change() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    fs::write(host.scratch.path("modules"), "tcp_reno 16384 2 - Live 0x0\n").unwrap();
    let applied = host.apply(&machine_wide(OTHER, None)).unwrap();
    let made = files(&host);
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["modules-load.d/90-lastbyte-reno.conf", "sysctl.d/90-lastbyte-reno.conf"]);
    let settings: Vec<&str> = made[0].1.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(settings, ["tcp_reno"]);
    // Either of them changed since: nothing is taken back.
    let (module, _) = &made[0];
    fs::write(host.scratch.path(module), "theirs").unwrap();
    assert!(host.undo(applied.id).is_err());
    assert_eq!(files(&host).len(), 2);
    fs::write(host.scratch.path(module), &made[0].1).unwrap();
    host.undo(applied.id).unwrap();
    assert_eq!((files(&host), live(&host)), (Vec::new(), before.clone()));

    // The second file cannot be made: the first goes again.
    let places = Places { modules_load_d: host.scratch.path("no/such"), ..host.places() };
    let what = machine_wide(OTHER, None);
    let error =
        host.run(|| apply_at(&places, &host.ledger, &what, &mut |_| {})).unwrap_err().to_string();
    assert!(error.contains("no/such/90-lastbyte-reno.conf.new: No such file"), "{error}");
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
    assert_eq!(host.ledger.open_changes().unwrap(), []);
}

/// Runs `work` on a thread whose mounts are its own, with a file system of one page in memory at the
/// path that it is given.
fn on_a_small_disk<T: Send>(host: &Host, work: impl FnOnce(&Path) -> T + Send) -> T {
    let small = host.scratch.path("small");
    fs::create_dir(&small).unwrap();
    let alone = || {
        namespace::unshare_mounts().unwrap();
        lastbyte_sys::mount::make_all_private().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=4k,nr_inodes=16", "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(&small).status().unwrap();
        assert!(mounted.success(), "mount: {mounted}");
        work(&small)
    };
    host.run(|| thread::scope(|scope| scope.spawn(alone).join().unwrap()))
}

/// Fills a file system by one file; how many bytes it holds.
fn fill(path: &Path) -> u64 {
    let error = fs::write(path, vec![b'x'; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    fs::metadata(path).unwrap().len()
}

#[test]
fn on_a_full_disk_nothing_is_changed() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    let what = machine_wide(OTHER, None);
    on_a_small_disk(&host, |small| {
        fill(&small.join("filling"));
        // No room for the file.
        let places = Places { sysctl_d: small.to_owned(), ..host.places() };
        let error = apply_at(&places, &host.ledger, &what, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("90-lastbyte-reno.conf: No space left on device"), "{error}");
        // None for the ledger.
        let ledger = Ledger::at(small.join("changes.jsonl"), "boot-1".to_owned());
        let error = apply_at(&host.places(), &ledger, &what, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("cannot write the ledger"), "{error}");
        // The filling, and the ledger without a whole line.
        assert_eq!(fs::read_dir(small).unwrap().count(), 2);
        assert_eq!(ledger.changes().unwrap(), []);
    });
    assert_eq!(host.states(), [State::Undone]);
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
}

#[test]
fn what_the_ledger_cannot_call_made_is_taken_back() {
    let Some(host) = Host::new("") else { return };
    let before = live(&host);
    let what = machine_wide(OTHER, None);
    let change = host.run(|| plan(&host.places(), &host.ledger, &what)).unwrap();
    host.ledger.plan(&change).unwrap();
    let length = fs::metadata(host.ledger.path()).unwrap().len();
    // Another change, with a name so long that one record fits behind it and not two.
    let filling =
        |name: usize| Change::Namespace { link: "x".repeat(name), path: "/nowhere".into() };
    host.ledger.plan(&filling(0)).unwrap();
    let empty = fs::metadata(host.ledger.path()).unwrap().len() - length;
    on_a_small_disk(&host, |small| {
        let ledger = Ledger::at(small.join("changes.jsonl"), "boot-1".to_owned());
        let room = fill(ledger.path());
        // Not removed: a child of another test may hold it open, and its room with it.
        fs::OpenOptions::new().write(true).open(ledger.path()).unwrap().set_len(0).unwrap();
        let name = room - empty - length * 3 / 2;
        ledger.plan(&filling(name.try_into().unwrap())).unwrap();
        let error = apply_at(&host.places(), &ledger, &what, &mut |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("taken back, as the ledger does not take that"), "{error}");
        let states: Vec<State> = ledger.changes().unwrap().iter().map(|e| e.state).collect();
        assert_eq!(states, [State::Planned, State::Planned]);
    });
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
}

/// Outside of the machine's first network the kernel lets nobody choose any name, root neither.
#[test]
fn a_name_that_the_kernel_refuses_here_leaves_nothing() {
    let Some(host) = Host::new("") else { return };
    let allowed = allowed().unwrap();
    let Some(refused) = available().unwrap().into_iter().find(|name| !allowed.contains(name))
    else {
        lastbyte_testing::not_tested!("all are allowed here");
        return;
    };
    let before = live(&host);
    let error = host.refused(&machine_wide(&refused, None));
    assert!(error.contains("names of net.ipv4.tcp_allowed_congestion_control"), "{error}");
    assert_eq!((files(&host), live(&host)), (Vec::new(), before));
    assert_eq!(host.states(), [State::Undone]);
}

#[test]
fn unknown_names_and_nothing_at_all_are_refused() {
    let Some(host) = Host::new("") else { return };
    let error = host.refused(&machine_wide("no-such-thing", None));
    assert!(error.contains("`no-such-thing` is not known: this kernel offers"), "{error}");
    assert_eq!(host.refused(&machine_wide("", None)), "nothing to set for the whole machine");
    let places = Places { sysctl_d: host.scratch.path("no/such"), ..host.places() };
    let apply = || apply_at(&places, &host.ledger, &machine_wide(OTHER, None), &mut |_| {});
    let error = host.run(apply).unwrap_err().to_string();
    assert!(error.contains("90-lastbyte-reno.conf.new: No such file or directory"), "{error}");
    assert_eq!(host.states(), [State::Undone]);
    assert_eq!(host.run(default_algorithm).unwrap(), default_algorithm().unwrap());
}
