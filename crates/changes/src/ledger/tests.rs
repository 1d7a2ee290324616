use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use super::*;

/// A directory that goes away with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lastbyte-ledger-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A ledger in a directory that does not exist yet, in the boot `boot`.
    fn ledger(&self, boot: &str) -> Ledger {
        Ledger::at(self.path("state/changes.jsonl"), boot.to_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn namespace(link: &str) -> Change {
    let path = PathBuf::from("/run/lastbyte").join(link);
    Change::Namespace { link: link.to_owned(), path }
}

fn mover(pid: i32) -> Change {
    let what = "packet mover".to_owned();
    Change::Process { link: "wan".to_owned(), pid, start_ticks: 4711, what }
}

/// The open changes as number and state.
fn open(ledger: &Ledger) -> Vec<(u64, State)> {
    ledger.open_changes().unwrap().iter().map(|entry| (entry.id, entry.state)).collect()
}

fn lines_of(ledger: &Ledger) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(ledger.path()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Appends text as it is.
fn scribble(ledger: &Ledger, text: &str) {
    let mut file = OpenOptions::new().append(true).open(ledger.path()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn message(error: &ChangesError) -> String {
    error.to_string()
}

#[test]
fn many_changes_are_planned_and_made_at_once() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    assert_eq!(ledger.plan_all(&[]).unwrap(), [0; 0]);
    assert!(!ledger.path().exists() || lines_of(&ledger).is_empty());
    ledger.plan(&mover(99)).unwrap();
    let bad = Change::Namespace { link: "bad".to_owned(), path: PathBuf::from("relative") };
    assert!(ledger.plan_all(&[namespace("wan"), bad]).is_err(), "all or none");
    let ids = ledger.plan_all(&[namespace("wan"), namespace("lan")]).unwrap();
    assert_eq!(ids, [2, 3]);
    assert!(ledger.made_all(&[2, 9]).is_err(), "there is no 9");
    let planned = State::Planned;
    assert_eq!(open(&ledger), [(1, planned), (2, planned), (3, planned)]);
    ledger.made_all(&[3, 1]).unwrap();
    assert_eq!(open(&ledger), [(1, State::Made), (2, planned), (3, State::Made)]);
    assert_eq!(lines_of(&ledger).len(), 5);
}

#[test]
fn a_change_goes_from_planned_to_made_to_undone() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    assert_eq!(open(&ledger), []);
    assert!(!ledger.path().exists(), "reading makes nothing");

    assert_eq!(ledger.plan(&namespace("wan")).unwrap(), 1);
    assert_eq!(ledger.plan(&mover(99)).unwrap(), 2);
    assert_eq!(open(&ledger), [(1, State::Planned), (2, State::Planned)]);
    ledger.made(1).unwrap();
    assert_eq!(open(&ledger), [(1, State::Made), (2, State::Planned)]);
    ledger.undone(1).unwrap();
    ledger.undone(2).unwrap();
    assert_eq!(open(&ledger), []);

    let changes = ledger.changes().unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!((&changes[1].change, changes[1].state), (&mover(99), State::Undone));
    assert!(changes[0].planned_at_unix_s > 1_700_000_000);
    assert_eq!(ledger.plan(&namespace("wan")).unwrap(), 3, "no number is used twice");
}

#[test]
fn the_file_looks_as_documented() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(99)).unwrap();
    ledger.made(1).unwrap();
    let mut lines = lines_of(&ledger);
    for line in &mut lines {
        assert!(line["at_unix_s"].is_u64());
        line["at_unix_s"] = 0.into();
    }
    let line = |event: &str| {
        serde_json::json!({
            "schema": 1, "id": 1, "event": event, "at_unix_s": 0, "boot_id": "boot-1",
            "change": {
                "kind": "process", "link": "wan", "pid": 99, "start_ticks": 4711,
                "what": "packet mover",
            },
        })
    };
    assert_eq!(lines, [line("planned"), line("made")]);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(ledger.path()), 0o600);
    assert_eq!(mode(ledger.path().parent().unwrap()), 0o700);
}

#[test]
fn writing_the_same_twice_adds_nothing() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(99)).unwrap();
    for _ in 0..2 {
        ledger.made(1).unwrap();
    }
    for _ in 0..2 {
        ledger.undone(1).unwrap();
    }
    assert_eq!(lines_of(&ledger).len(), 3);
    assert!(message(&ledger.made(2).unwrap_err()).contains("there is no change 2 in "));
}

#[test]
fn what_is_made_after_an_undo_is_open_again() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&namespace("wan")).unwrap();
    ledger.undone(1).unwrap();
    ledger.made(1).unwrap();
    assert_eq!(open(&ledger), [(1, State::Made)]);
}

#[test]
fn a_change_that_could_not_be_undone_is_not_planned() {
    use std::os::unix::ffi::OsStringExt;

    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    let at = |path: PathBuf| Change::Namespace { link: "wan".to_owned(), path };
    let odd = PathBuf::from(OsString::from_vec(b"/run/\xff".to_vec()));
    for change in [at("relative".into()), at(odd), mover(0), mover(-1)] {
        assert!(ledger.plan(&change).is_err(), "{change}");
    }
    assert!(!ledger.path().exists());
}

#[test]
fn a_reboot_ends_changes() {
    let scratch = Scratch::new();
    let before = scratch.ledger("boot-1");
    before.plan(&namespace("wan")).unwrap();
    before.plan(&namespace("lan")).unwrap();
    before.made(1).unwrap();

    let after = scratch.ledger("boot-2");
    assert_eq!(open(&after), []);
    assert!(after.changes().unwrap().iter().all(|entry| entry.state == State::Gone));
    let report = after.undo_where_with(&|_| true, &mut |_| panic!("nothing to take back")).unwrap();
    assert!(report.undone.is_empty() && report.failed.is_empty());
    assert_eq!(after.undo(1, &mut |_| {}).unwrap().state, State::Gone);

    // The next writer records it, once.
    after.plan(&namespace("new")).unwrap();
    after.made(3).unwrap();
    let gone = lines_of(&after).iter().filter(|line| line["event"] == "gone").count();
    assert_eq!(gone, 2);
    assert_eq!(open(&after), [(3, State::Made)]);
}

/// The boot that counts is that of the last `planned` or `made`.
#[test]
fn what_is_made_in_this_boot_is_not_gone() {
    let scratch = Scratch::new();
    scratch.ledger("boot-1").plan(&namespace("wan")).unwrap();
    let after = scratch.ledger("boot-2");
    after.made(1).unwrap();
    assert_eq!(open(&after), [(1, State::Made)]);
}

#[test]
fn undo_takes_back_newest_first_and_goes_on_after_a_failure() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    for pid in 1..=3 {
        ledger.plan(&mover(pid)).unwrap();
    }
    ledger.made(1).unwrap();
    let mut asked = Vec::new();
    let report = ledger
        .undo_where_with(&|_| true, &mut |change| {
            asked.push(change.clone());
            if *change == mover(2) { Err(refused("it will not go")) } else { Ok(()) }
        })
        .unwrap();
    assert_eq!(asked, [mover(3), mover(2), mover(1)]);
    let undone: Vec<_> = report.undone.iter().map(|entry| (entry.id, entry.state)).collect();
    assert_eq!(undone, [(3, State::Undone), (1, State::Undone)]);
    let [(entry, error)] = &report.failed[..] else { panic!("{report:?}") };
    assert_eq!((entry.id, entry.state), (2, State::Planned));
    assert_eq!(
        message(error),
        "cannot undo change 2, process 2 (packet mover) of link wan: it will not go"
    );
    assert_eq!(open(&ledger), [(2, State::Planned)]);
}

#[test]
fn one_change_is_undone_by_its_number_and_once() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    ledger.plan(&mover(2)).unwrap();
    let mut asked = 0;
    for _ in 0..2 {
        let entry = ledger
            .undo_with(1, &mut |change| {
                assert_eq!(*change, mover(1));
                asked += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!((entry.id, entry.state), (1, State::Undone));
    }
    assert_eq!(asked, 1);
    assert_eq!(open(&ledger), [(2, State::Planned)]);
    let error = ledger.undo_with(7, &mut |_| Ok(())).unwrap_err();
    assert!(message(&error).contains("there is no change 7 in "));
}

#[test]
fn a_cut_line_is_ignored_and_the_next_record_starts_afresh() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    // Zeros are what a power failure can leave.
    for cut in ["{\"schema\":1,\"id\":2,\"eve", "x", "\0\0\0", "{\"schema\":9}"] {
        scribble(&ledger, cut);
        assert_eq!(open(&ledger).len(), 1, "{cut:?}");
        ledger.made(1).unwrap();
        let id = ledger.plan(&mover(2)).unwrap();
        assert_eq!(open(&ledger).len(), 2, "{cut:?}");
        ledger.undone(id).unwrap();
    }
}

#[test]
fn a_damaged_line_is_named() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    for damage in ["{\"schema\":1,\"id\":2,\"eve\n", "\n", "\0\0\n", "{}\n", "[]\n", "\u{fffd}\n"] {
        ledger.plan(&mover(1)).unwrap();
        scribble(&ledger, damage);
        let place = format!("{}:2: this line is damaged", ledger.path().display());
        for error in [ledger.changes().unwrap_err(), ledger.plan(&mover(2)).unwrap_err()] {
            assert!(message(&error).starts_with(&place), "{damage:?}: {error}");
        }
        fs::remove_file(ledger.path()).unwrap();
    }
}

#[test]
fn a_number_planned_twice_is_damage() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    let line = fs::read_to_string(ledger.path()).unwrap();
    scribble(&ledger, &line);
    let error = message(&ledger.changes().unwrap_err());
    assert!(error.ends_with(":2: change 1 is planned a second time"), "{error}");
}

#[test]
fn records_of_a_newer_lastbyte_are_not_guessed() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    let line = fs::read_to_string(ledger.path()).unwrap();
    let reason = |from: &str, to: &str| {
        assert!(line.contains(from));
        fs::write(ledger.path(), line.replace(from, to)).unwrap();
        let error = ledger.changes().unwrap_err();
        assert!(ledger.plan(&mover(2)).is_err());
        let place = format!("{}:1: a newer lastbyte wrote this line", ledger.path().display());
        assert!(message(&error).starts_with(&place), "{error}");
        message(&error)
    };
    assert!(reason("\"schema\":1", "\"schema\":2").contains("its schema is 2, the newest known"));
    assert!(reason("\"process\"", "\"tunnel\"").contains("unknown variant `tunnel`"));
    assert!(reason("\"planned\"", "\"moved\"").contains("unknown variant `moved`"));
    // What only adds is read.
    fs::write(ledger.path(), line.replace("\"pid\"", "\"more\":1,\"pid\"")).unwrap();
    assert_eq!(open(&ledger), [(1, State::Planned)]);
}

#[test]
fn writers_take_turns() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    let write = |pid| {
        let id = ledger.plan(&mover(pid)).unwrap();
        ledger.made(id).unwrap();
        id
    };
    let ids: BTreeSet<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (1..=8).map(|pid| scope.spawn(move || write(pid))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(ids, (1..=8).collect());
    let made: Vec<_> = (1..=8).map(|id| (id, State::Made)).collect();
    assert_eq!(open(&ledger), made);
}

/// What a program does, step by step: a kill may come between any two, and within a `Write`.
#[derive(Clone, Copy)]
enum Step {
    Plan(i32),
    Make(i32),
    Made(u64),
    Unmake(i32),
    Undone(u64),
}

/// Two changes, the second undone while a third is being made; here number and pid are the same.
const SESSION: [Step; 13] = [
    Step::Plan(1),
    Step::Make(1),
    Step::Made(1),
    Step::Plan(2),
    Step::Make(2),
    Step::Made(2),
    Step::Plan(3),
    Step::Unmake(2),
    Step::Undone(2),
    Step::Make(3),
    Step::Made(3),
    Step::Unmake(1),
    Step::Undone(1),
];

/// At every how many bytes of a cut the ledger is also used further, which waits for the disk.
const BYTES_BETWEEN_USES: usize = 32;

/// Runs the session and cuts the file at every byte that each step adds: whatever is there at that
/// moment must be listed, the ledger must go on, and undoing must leave nothing behind.
#[test]
fn a_kill_at_any_byte_leaves_nothing_unknown() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    let cut = Ledger::at(scratch.path("cut.jsonl"), "boot-1".to_owned());
    let mut world = BTreeSet::new();
    let mut cuts = 0;
    for step in SESSION {
        let before = fs::metadata(ledger.path()).map_or(0, |file| file.len());
        match step {
            Step::Plan(pid) => assert_eq!(ledger.plan(&mover(pid)).unwrap(), pid as u64),
            Step::Make(pid) => assert!(world.insert(pid)),
            Step::Made(id) => ledger.made(id).unwrap(),
            Step::Unmake(pid) => assert!(world.remove(&pid)),
            Step::Undone(id) => ledger.undone(id).unwrap(),
        }
        let text = fs::read(ledger.path()).unwrap();
        for end in usize::try_from(before).unwrap()..=text.len() {
            fs::write(cut.path(), &text[..end]).unwrap();
            let listed = cut.open_changes().unwrap();
            let listed: BTreeSet<i32> = listed.iter().map(|entry| pid_of(&entry.change)).collect();
            assert!(world.is_subset(&listed), "{world:?} {listed:?} at byte {end}");
            if (text.len() - end).is_multiple_of(BYTES_BETWEEN_USES) {
                use_after_kill(&cut, world.clone(), listed.len());
            }
            cuts += 1;
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

fn use_after_kill(ledger: &Ledger, mut world: BTreeSet<i32>, listed: usize) {
    let highest = ledger.changes().unwrap().last().map_or(0, |entry| entry.id);
    assert_eq!(ledger.plan(&mover(9)).unwrap(), highest + 1);
    let report = ledger
        .undo_where_with(&|_| true, &mut |change| {
            world.remove(&pid_of(change));
            Ok(())
        })
        .unwrap();
    assert_eq!((report.undone.len(), report.failed.len()), (listed + 1, 0));
    assert!(world.is_empty());
    assert_eq!(open(ledger), []);
}

fn pid_of(change: &Change) -> i32 {
    match change {
        Change::Process { pid, .. } => *pid,
        _ => panic!("{change}"),
    }
}

/// The same from the file alone: cut anywhere, every change whose `made` line is whole and whose
/// `undone` line is not is listed as made.
#[test]
fn every_made_change_is_listed_from_any_part_of_the_file() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    for step in SESSION {
        match step {
            Step::Plan(pid) => drop(ledger.plan(&mover(pid)).unwrap()),
            Step::Made(id) => ledger.made(id).unwrap(),
            Step::Undone(id) => ledger.undone(id).unwrap(),
            Step::Make(_) | Step::Unmake(_) => {}
        }
    }
    let text = fs::read(ledger.path()).unwrap();
    let cut = Ledger::at(scratch.path("cut.jsonl"), "boot-1".to_owned());
    for end in 0..=text.len() {
        fs::write(cut.path(), &text[..end]).unwrap();
        let mut made = BTreeSet::new();
        for line in text[..end].split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            let id = line["id"].as_u64().unwrap();
            match line["event"].as_str().unwrap() {
                "made" => drop(made.insert(id)),
                "undone" => drop(made.remove(&id)),
                _ => {}
            }
        }
        let mut listed = open(&cut);
        listed.retain(|(_, state)| *state == State::Made);
        assert_eq!(listed.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>(), made, "at {end}");
    }
}

/// Writes `count` closed changes of the time `at_unix_s`, numbered from `from`.
fn write_closed(ledger: &Ledger, ids: std::ops::Range<u64>, at_unix_s: u64) {
    let mut text = String::new();
    for id in ids {
        for event in [State::Planned, State::Made, State::Undone] {
            let record = Record { at_unix_s, ..ledger.record(id, event, &mover(1)) };
            text += &lines(&[record]).unwrap();
        }
    }
    scribble(ledger, &text);
}

#[test]
fn a_large_file_loses_what_was_closed_long_ago() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&namespace("stays")).unwrap();
    let long_ago = 1_000_000_000;
    let stays = ledger.record(1, State::Planned, &namespace("stays"));
    fs::write(ledger.path(), lines(&[Record { at_unix_s: long_ago, ..stays }]).unwrap()).unwrap();
    write_closed(&ledger, 2..3000, long_ago);
    let old = fs::metadata(ledger.path()).unwrap();
    assert!(old.len() > COMPACT_FROM_BYTES);
    write_closed(&ledger, 3000..3010, now_unix_s());

    thread::scope(|scope| {
        let writers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| ledger.plan(&mover(7)).unwrap())).collect();
        let ids: BTreeSet<u64> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        assert_eq!(ids, (3010..3014).collect());
    });
    let new = fs::metadata(ledger.path()).unwrap();
    assert!(new.len() < 20_000, "{}", new.len());
    assert_ne!(new.ino(), old.ino());
    assert_eq!(new.mode() & 0o777, 0o600);
    let ids: Vec<u64> = ledger.changes().unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [1].into_iter().chain(3000..3014).collect::<Vec<_>>());
    assert_eq!(open(&ledger).len(), 5);
    assert!(!scratch.path("state/changes.jsonl.new").exists());
}

/// A writer opens the file, waits for its lock, and gets it when another file is in its place.
#[test]
fn a_writer_that_waited_for_a_replaced_file_writes_to_the_new_one() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    let old = ledger.lock().unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| ledger.plan(&mover(2)).unwrap());
        wait_for_waiter(&old);
        let beside = scratch.path("state/new");
        fs::copy(ledger.path(), &beside).unwrap();
        fs::rename(&beside, ledger.path()).unwrap();
        drop(old);
        assert_eq!(writer.join().unwrap(), 2);
    });
    assert_eq!(open(&ledger).len(), 2);
}

/// Waits until somebody waits for the lock of `file`: `/proc/locks` marks that with an arrow.
fn wait_for_waiter(file: &File) {
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs() < 10 {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        if locks.lines().any(|line| line.contains("->") && line.contains(&inode)) {
            return;
        }
        thread::yield_now();
    }
    panic!("nobody waits for the lock");
}

#[test]
fn the_highest_number_outlives_its_record() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    ledger.undone(1).unwrap();
    write_closed(&ledger, 2..3000, 1_000_000_000);
    ledger.made(1).unwrap();
    ledger.undone(1).unwrap();
    let ids: Vec<u64> = ledger.changes().unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [1, 2999]);
    assert_eq!(ledger.plan(&mover(1)).unwrap(), 3000);
}

#[test]
fn a_small_file_is_kept_as_it_is() {
    let scratch = Scratch::new();
    let ledger = scratch.ledger("boot-1");
    ledger.plan(&mover(1)).unwrap();
    write_closed(&ledger, 2..100, 1_000_000_000);
    ledger.made(1).unwrap();
    assert_eq!(ledger.changes().unwrap().len(), 99);
}

#[test]
fn the_directory_follows_the_environment() {
    let at = |variables: &[(&str, &str)], root| {
        let value = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        state_directory(value, root).map(|path| path.display().to_string())
    };
    let home = ("HOME", "/people/ada");
    let xdg = ("XDG_STATE_HOME", "/state");
    let told = ("LASTBYTE_STATE_DIR", "/told");
    for (variables, root, path) in [
        (&[home, xdg, told][..], false, "/told"),
        (&[home, xdg, told], true, "/told"),
        (&[home, xdg], true, "/var/lib/lastbyte"),
        (&[home, xdg], false, "/state/lastbyte"),
        (&[home], false, "/people/ada/.local/state/lastbyte"),
        (&[home, ("XDG_STATE_HOME", "")], false, "/people/ada/.local/state/lastbyte"),
        (&[home, ("XDG_STATE_HOME", "here")], false, "/people/ada/.local/state/lastbyte"),
        (&[home, ("LASTBYTE_STATE_DIR", "")], false, "/people/ada/.local/state/lastbyte"),
    ] {
        assert_eq!(at(variables, root).unwrap(), path);
    }
    assert!(at(&[], false).unwrap_err().to_string().contains("HOME is not set"));
    assert!(at(&[("HOME", "")], false).is_err());
}

#[test]
fn this_boot_is_known() {
    let boot_id = Ledger::of_this_user().unwrap().boot_id;
    assert_eq!(boot_id.len(), 36, "{boot_id:?}");
}
