//! Algorithms in the running kernel: each can be loaded, chosen and used, and leaves nothing behind.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use lastbyte_congestion::{
    Algorithm, CongestionError, Given, Holder, Registered, ability, all, available, find, holders,
    load,
};
use lastbyte_sys::tcp;

use crate::names::{self, Turn};

/// More than any algorithm's first windows, and not long at the lowest rate of any.
const BYTES: usize = 3_000_000;

/// Whether this can be tried here, one test at a time; says so if not.
fn machine() -> Option<Turn> {
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root may load a congestion control");
        return None;
    }
    if let Err(error) = ability() {
        lastbyte_testing::not_tested!("{error}");
        return None;
    }
    names::turn()
}

/// Loads one, or finds it in use by somebody else, and says so.
fn loaded(algorithm: &Algorithm) -> Option<Registered> {
    match load(algorithm, Given::default()) {
        Ok(registered) => Some(registered),
        Err(CongestionError::Loaded { name, holder }) => {
            lastbyte_testing::not_tested!("{name} is {holder}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_available(name: &str) -> bool {
    available().unwrap().iter().any(|one| one == name)
}

#[test]
fn each_carries_bytes_and_goes() {
    let Some(_alone) = machine() else { return };
    for algorithm in all() {
        let Some(registered) = loaded(algorithm) else { continue };
        assert!(is_available(algorithm.name));
        assert!(registered.ends_with_process(), "this kernel ties what is loaded to its process");
        carry(algorithm.name, BYTES);
        drop(registered);
        assert!(!is_available(algorithm.name));
    }
}

/// Sends bytes over loopback with an algorithm.
fn carry(name: &str, bytes: usize) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp::set_congestion(&near, name).unwrap();
    assert_eq!(tcp::congestion(&near).unwrap(), name);
    let (mut far, _) = listener.accept().unwrap();
    let sender = thread::spawn(move || {
        let block = [7; 65_536];
        let mut left = bytes;
        while left > 0 {
            left -= near.write(&block[..left.min(block.len())]).unwrap();
        }
    });
    let mut received = 0;
    let mut block = vec![0; 1 << 18];
    while let count @ 1.. = far.read(&mut block).unwrap() {
        received += count;
    }
    sender.join().unwrap();
    assert_eq!(received, bytes, "{name}");
}

#[test]
fn it_is_loaded_once_and_its_holder_is_known() {
    let Some(_alone) = machine() else { return };
    let reno = find("reno").unwrap();
    let Some(registered) = loaded(reno) else { return };
    let held = holders().into_iter().find(|(name, _)| name == reno.name).unwrap().1;
    assert!(matches!(held, Holder::Process { pid, .. } if pid == std::process::id()), "{held}");
    let again = load(reno, Given::default()).err().unwrap();
    assert!(matches!(&again, CongestionError::Loaded { holder, .. } if *holder == held), "{again}");
    let refused = lastbyte_congestion::unregister(reno.name).unwrap_err();
    assert!(matches!(refused, CongestionError::HeldElsewhere { .. }), "{refused}");
    drop(registered);
    let gone = lastbyte_congestion::unregister(reno.name).unwrap_err();
    assert!(matches!(gone, CongestionError::NotLoaded(_)), "{gone}");
}

#[test]
fn a_connection_outlives_what_it_uses() {
    let Some(_alone) = machine() else { return };
    let reno = find("reno").unwrap();
    let Some(registered) = loaded(reno) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp::set_congestion(&near, reno.name).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    drop(registered);
    assert!(!is_available(reno.name));
    near.write_all(b"still here").unwrap();
    let mut room = [0; 10];
    far.read_exact(&mut room).unwrap();
    assert_eq!(tcp::congestion(&near).unwrap(), reno.name);
    // The next of that name is another one, and both live side by side.
    if let Some(_next) = loaded(reno) {
        near.write_all(b"still here").unwrap();
        far.read_exact(&mut room).unwrap();
    }
}

#[test]
fn a_rate_is_for_those_that_take_one() {
    if let Err(error) = ability() {
        lastbyte_testing::not_tested!("{error}");
        return;
    }
    let error = load(find("reno").unwrap(), Given { rate: Some(1) }).err().unwrap();
    assert!(matches!(error, CongestionError::TakesNoRate("reno")), "{error}");
}
