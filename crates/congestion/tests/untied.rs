//! The way of kernels before 6.4, which later ones still take: registered until somebody unregisters it.
//!
//! The names of algorithms are those of the whole machine: this one has a name of its own, and is loaded
//! beside all others.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use lastbyte_bpf::{Attached, Object, unload_kept};
use lastbyte_congestion::{
    BPFFS, CongestionError, Holder, ability, available, holder_of, keeps, unregister,
};
use lastbyte_sys::{process, tcp};
use lastbyte_testing::this_test;

use crate::names::{self, Turn};

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// As long as `lb_reno`, in the place of which it stands.
const NAME: &str = "lb_left";
/// Says to a child that it is one.
const CHILD: &str = "LASTBYTE_TEST_LEAVES";

#[test]
fn it_goes_with_what_holds_it() {
    let Some(_alone) = machine() else { return };
    let attached = load();
    assert!(!attached.is_tied());
    let holder = holder_of(NAME);
    assert!(matches!(holder, Holder::Process { pid, .. } if pid == std::process::id()), "{holder}");
    let refused = unregister(NAME).unwrap_err();
    assert!(matches!(refused, CongestionError::HeldElsewhere { .. }), "{refused}");
    drop(attached);
    assert!(!is_available());
}

#[test]
fn what_a_killed_process_has_left_is_unloaded() {
    if env::var_os(CHILD).is_some() {
        let _left = load();
        // Without what an orderly end does.
        std::process::exit(0);
    }
    let Some(_alone) = machine() else { return };
    leave();
    assert_eq!(holder_of(NAME), Holder::Nobody);
    unregister(NAME).unwrap();
    assert!(!is_available());

    // One that connections still have is not the one that is registered.
    leave();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp::set_congestion(&near, NAME).unwrap();
    unregister(NAME).unwrap();
    let attached = load();
    let holder = holder_of(NAME);
    assert!(matches!(holder, Holder::Process { pid, .. } if pid == std::process::id()), "{holder}");
    drop(attached);
    leave();
    assert_eq!(holder_of(NAME), Holder::Nobody);
    unregister(NAME).unwrap();
    assert!(!is_available());
    assert_eq!(tcp::congestion(&near).unwrap(), NAME);
}

/// Files are of bpffs: where none is mounted, or it cannot be written to, this is not tried.
#[test]
fn a_file_keeps_it_and_goes_with_it() {
    let Some(_alone) = machine() else { return };
    let folder = Path::new(BPFFS).join(format!("lastbyte-test-{}", std::process::id()));
    if !keeps() || fs::create_dir(&folder).is_err() {
        lastbyte_testing::not_tested!("no bpffs at {BPFFS}, or not for us");
        return;
    }
    let file = load().keep(&folder).unwrap();
    assert_eq!(file, folder.join("lb_left-map"));
    assert!(is_available());
    unload_kept(&file).unwrap();
    assert!(!is_available() && !file.exists());

    // Somebody has unregistered what it kept.
    let file = load().keep(&folder).unwrap();
    unregister(NAME).unwrap();
    assert!(!is_available() && file.exists());
    unload_kept(&file).unwrap();
    assert!(!file.exists());
    fs::remove_dir(folder).unwrap();
}

/// Whether this can be tried here, one test at a time; says so if not.
fn machine() -> Option<Turn> {
    if process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root may load a congestion control");
        return None;
    }
    if let Err(error) = ability() {
        lastbyte_testing::not_tested!("{error}");
        return None;
    }
    let turn = names::turn()?;
    if is_available() && unregister(NAME).is_err() {
        lastbyte_testing::not_tested!("another program has {NAME}");
        return None;
    }
    Some(turn)
}

/// Has a process load it, and end.
fn leave() {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", &this_test()]).env(CHILD, "1");
    assert!(child.stdout(Stdio::null()).status().unwrap().success());
    assert!(is_available());
}

fn load() -> Attached {
    let (_, image) = OBJECTS.unwrap().iter().find(|(name, _)| *name == "reno").unwrap();
    let mut image = image.to_vec();
    let (from, to) = (b"lb_reno", NAME.as_bytes());
    for at in 0..image.len() - from.len() {
        if image[at..].starts_with(from) {
            image[at..at + to.len()].copy_from_slice(to);
        }
    }
    let mut object = Object::open(NAME, &image).unwrap();
    object.untie().unwrap();
    object.load().unwrap().attach(NAME).unwrap()
}

fn is_available() -> bool {
    available().unwrap().iter().any(|one| one == NAME)
}
