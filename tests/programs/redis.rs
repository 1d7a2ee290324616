//! Redis: redis-benchmark has an answer to each of its questions, a large value comes back as it was
//! sent, and a subscriber has each message, in order.

use std::process::Command;

use super::place::Gate;
use crate::support::servers::{digest_of, first_word, redis_server, shell, succeed, write_random};
use crate::support::{LATER, Running, Scratch, holds_within};

#[test]
#[ignore = "needs redis-tools"]
fn redis_benchmark_has_all_its_answers() {
    let scratch = Scratch::new();
    let (_server, port) = redis_server(&scratch);
    let gate = Gate::before(port, &scratch);
    for words in ["-c 50 -t ping_mbulk,set,get,lpush,lrange_100", "-c 50 -P 16 -t set,get -d 4096"]
    {
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.args(["-n", "20000", "--csv", "-p", &gate.port.to_string()]);
        let told = succeed(benchmark.args(words.split(' ')));
        assert!(!told.stderr.contains("rror"), "{told:#?}");
        let rates: Vec<f64> = told.stdout.lines().skip(1).map(rate_of).collect();
        assert!(rates.len() >= 2 && rates.iter().all(|rate| *rate > 0.0), "{told:#?}");
    }
    // A new connection for each question.
    let words = "-n 2000 -c 20 -k 0 -t ping_mbulk --csv -p";
    let mut benchmark = Command::new("redis-benchmark");
    succeed(benchmark.args(words.split(' ')).arg(gate.port.to_string()));
    gate.assert_flows(2000..);
}

/// The second column of redis-benchmark's table.
fn rate_of(line: &str) -> f64 {
    line.split(',').nth(1).unwrap().trim_matches('"').parse().unwrap()
}

#[test]
#[ignore = "needs redis-tools"]
fn a_large_value_comes_back_as_it_was_sent() {
    let scratch = Scratch::new();
    let (_server, port) = redis_server(&scratch);
    let gate = Gate::before(port, &scratch);
    let file = scratch.path().join("value");
    write_random(&file, 64 << 20, 7);
    let client = format!("redis-cli -p {}", gate.port);
    let told = shell(&format!("{client} -x set large < {}", file.display()));
    assert_eq!(told.stdout.trim(), "OK");
    // redis-cli adds the end of a line.
    let told = shell(&format!("{client} --raw get large | head -c -1 | sha256sum"));
    assert_eq!(first_word(&told), digest_of(&file));
    gate.assert_complete(2..=2);
}

#[test]
#[ignore = "needs redis-tools"]
fn a_subscriber_has_each_message_in_order() {
    const MESSAGES: usize = 20_000;
    let scratch = Scratch::new();
    let (_server, port) = redis_server(&scratch);
    let gate = Gate::before(port, &scratch);
    let words = ["-p", &gate.port.to_string()].map(str::to_owned);
    let messages: Vec<String> = (0..MESSAGES).map(|number| format!("message {number}")).collect();
    let publish: Vec<String> =
        messages.iter().map(|message| format!("PUBLISH news \"{message}\"\n")).collect();
    let script = scratch.file("publish", publish.concat());

    // It ends when it has that many lines: three for the subscription and for each message.
    let lines = 3 * (MESSAGES + 1);
    let line = format!("redis-cli {} subscribe news | head -n {lines}", words.join(" "));
    let subscriber = Running::start(Command::new("bash").args(["-c", &line]));
    let mut subscribers = Command::new("redis-cli");
    subscribers.args(&words).args(["--raw", "pubsub", "numsub", "news"]);
    let subscribed = holds_within(LATER, &mut || {
        succeed(&mut subscribers).stdout.split_whitespace().last() == Some("1")
    });
    assert!(subscribed, "nobody subscribed");
    let told = shell(&format!("redis-cli {} < {script}", words.join(" ")));
    assert_eq!(told.stdout.lines().filter(|line| *line == "1").count(), MESSAGES);
    // Told once more after the last line, redis-cli notices that nobody reads.
    shell(&format!("redis-cli {} publish news end", words.join(" ")));
    let told = subscriber.answer_within(LATER).with_code(0);
    let came: Vec<&str> = told.stdout.lines().skip(3).collect();
    let came: Vec<&str> = came.chunks(3).map(|message| message[2]).collect();
    assert_eq!(came, messages);
    gate.assert_flows(4..);
}
