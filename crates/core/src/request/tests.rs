//! Laws that hold for every machine that reads requests.

mod pieces;

use proptest::prelude::*;

use self::pieces::by_bytes;
use crate::http_connect::HttpConnect;
use crate::socks5::Socks5;

/// What a fuzzer has found worth keeping: `fuzz/corpus/socks5` and `fuzz/corpus/http_connect`.
#[test]
#[cfg_attr(miri, ignore = "Miri lets nobody look for a file")]
fn the_corpus_of_the_fuzzer_holds() {
    for (name, run) in [
        ("socks5", (|bytes| by_bytes(Socks5::new, bytes)) as fn(&[u8])),
        ("http_connect", |bytes| by_bytes(HttpConnect::new, bytes)),
    ] {
        let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut cases = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            run(&std::fs::read(&path).unwrap());
            cases += 1;
        }
        assert!(cases > 0, "{folder} is empty");
    }
}

/// Words of both protocols, so that chance meets some requests.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(vec![
            &b"\x05\x01\x00"[..],
            b"\x05\x02\x00\x02",
            b"\x01\x01u\x01p",
            b"\x05\x01\x00\x01\x7f\0\0\x01\0\x50",
            b"\x05\x01\x00\x03\x04a.bc\0\x50",
            b"CONNECT a.b:80 HTTP/1.1\r\n",
            b"CONNECT [::1]:443 HTTP/1.0\n",
            b"Host: a\r\n",
            b"Proxy-Authorization: Basic dTpw\r\n",
            b"Content-Length: 1\r\n",
            b"\r\n",
            b"\n",
            b"\r",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri takes its time, and lets nobody look for a file.
        cases: if cfg!(miri) { 4 } else { 2048 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn pieces_change_nothing(
        users in any::<u8>(),
        sizes in prop::collection::vec(0..40_u8, 0..16),
        sent in words(),
    ) {
        let count = u8::try_from(sizes.len()).unwrap();
        let bytes = [&[users, count][..], &sizes, &sent].concat();
        by_bytes(Socks5::new, &bytes);
        by_bytes(HttpConnect::new, &bytes);
    }
}

/// A mebibyte of anything ends at the bound.
#[test]
#[cfg_attr(miri, ignore = "each piece is parsed with all before it: Miri takes an hour")]
fn garbage_ends_early() {
    for byte in [0, 1, 4, 5, b'A', b'\n', b'\r', b' ', 0xFF] {
        let sent = vec![byte; 1 << 20];
        for users in [0, 1] {
            let header = [users, 2, 255, 13];
            by_bytes(Socks5::new, &[&header[..], &sent].concat());
            by_bytes(HttpConnect::new, &[&header[..], &sent].concat());
        }
    }
}
