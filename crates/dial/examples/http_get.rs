//! Fetches a URL with hyper's client over connections of this crate, and says how it was reached.
//!
//!     cargo run -p lastbyte-dial --example http_get -- http://www.example.org/

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it speaks to who runs it")]

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lastbyte_dial::tower::Connector;
use lastbyte_dial::{Dialer, Resolver, Timeline, What};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(url) = std::env::args().nth(1) else {
        return Err("usage: http_get URL".into());
    };
    let connector = Connector::new(Dialer::new(Resolver::dns()?));
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);

    let response = client.get(url.parse()?).await?;
    if let Some(timeline) = response.extensions().get::<Timeline>() {
        say_how(timeline);
    }
    eprintln!("{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&body));
    Ok(())
}

fn say_how(timeline: &Timeline) {
    for event in &timeline.events {
        let at = event.at.as_secs_f64() * 1e3;
        match &event.what {
            What::Started { address, .. } => eprintln!("{at:8.1} ms  tries {address}"),
            What::Failed { error, .. } => eprintln!("{at:8.1} ms  {error}"),
            What::Connected { .. } => eprintln!("{at:8.1} ms  connected"),
            _ => {}
        }
    }
}
