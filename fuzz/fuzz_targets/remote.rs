//! The control connection of `lab serve`. The laws: nobody without the key is heard; what is heard is
//! what was said, in its order, from the beginning; and figures that pass for sane can be reckoned with.
#![no_main]

use lastbyte_lab::Run;
use lastbyte_lab::remote::protocol::{
    Handshake, Hello, Key, PROOF, Request, Response, Role, Session,
};
use serde_json::{Value, json};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => stranger(bytes),
        1 => on_the_way(bytes),
        2 => request(bytes),
        _ => answer(bytes),
    }
});

/// Both sides of one session, the same each time.
fn sessions() -> (Session, Session) {
    let key: Key = "0123-4567-89ab-cdef-ghjk-mnpq-rstv".parse().expect("it is one");
    let hello = |nonce: u8| {
        let mut bytes = [nonce; Hello::LENGTH];
        bytes[..12].copy_from_slice(b"lastbyte lab");
        bytes[12..16].copy_from_slice(&1_u32.to_be_bytes());
        Hello::from_bytes(&bytes).expect("it is one")
    };
    let near = Handshake::new(&key, Role::Near, hello(1), hello(2));
    let far = Handshake::new(&key, Role::Far, hello(2), hello(1));
    assert_eq!((far.check(&near.proof()), near.check(&far.proof())), (Ok(()), Ok(())));
    (near.session().expect("one version"), far.session().expect("one version"))
}

/// Bytes of somebody who has not the key.
fn stranger(bytes: &[u8]) {
    let (mut near, mut far) = sessions();
    if let Some((hello, rest)) = bytes.split_first_chunk::<{ Hello::LENGTH }>()
        && let Ok(hello) = Hello::from_bytes(hello)
    {
        let key: Key = "vtsr-qpnm-kjhg-fedc-ba98-7654-3210".parse().expect("it is one");
        let handshake = Handshake::new(&key, Role::Far, hello, hello);
        if let Some(proof) = rest.first_chunk::<PROOF>() {
            assert!(handshake.check(proof).is_err());
        }
    }
    for piece in bytes.chunks(1 + bytes.len() / 3) {
        far.inbox.put(piece);
        assert!(!matches!(far.inbox.take::<Request>(), Ok(Some(_))));
        near.inbox.put(piece);
        assert!(!matches!(near.inbox.take::<Response>(), Ok(Some(_))));
    }
}

/// Messages that were said, and what can happen to them: two bytes each, which one and what.
fn on_the_way(bytes: &[u8]) {
    let (mut near, mut far) = sessions();
    let said: Vec<Request> = (0..8).map(|number| Request::End { number }).collect();
    let sealed: Vec<Vec<u8>> =
        said.iter().map(|message| near.outbox.seal(message).expect("it is short")).collect();
    let mut heard = 0;
    for step in bytes.chunks_exact(2) {
        let mut message = sealed[usize::from(step[0]) % sealed.len()].clone();
        let place = usize::from(step[1] >> 2) % message.len();
        match step[1] % 4 {
            0 | 1 => {}
            2 => message[place] ^= 1 << (step[0] >> 5),
            _ => message.truncate(place),
        }
        far.inbox.put(&message);
        while let Ok(Some(message)) = far.inbox.take::<Request>() {
            assert_eq!(Some(&message), said.get(heard));
            heard += 1;
        }
    }
}

/// What somebody with the key may say.
fn request(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let (mut near, mut far) = sessions();
    // What can be said can be heard, if it is not too long.
    if let Ok(sealed) = near.outbox.seal(&request) {
        far.inbox.put(&sealed);
        let heard = far.inbox.take::<Request>();
        assert!(matches!(&heard, Ok(Some(_)) | Err(_)), "{heard:?}");
    }
}

/// What a far host may say that lies.
fn answer(bytes: &[u8]) {
    let Ok(Response::Done { flows }) = serde_json::from_slice::<Response>(bytes) else { return };
    if flows.len() > 128 || !flows.iter().all(|flow| flow.is_plausible(64)) {
        return;
    }
    let Ok(flows) = serde_json::to_value(&flows) else { return };
    let run = json!({ "subject": 0, "round": 0, "flows": flows, "latency": Value::Null, "link": Value::Null });
    let Ok(run) = serde_json::from_value::<Run>(run) else { return };
    let _ = (run.received_bits_per_s(), run.claimed_bits_per_s(), run.written_bytes());
    let _ =
        (run.received_bytes(), run.time(), run.resent_share(), run.min_rtt(), run.is_complete());
}
