//! The blocking server: one connection after the other.

use std::error::Error;
use std::io::{Read, Write};

use lastbyte::blocking::{Listener, Stream, TcpListener, UnixListener};
use lastbyte::{Delivery, Socket};

use crate::args::Args;
use crate::request::{Ending, REQUEST_BYTES, Request, Usage, pattern};

pub(crate) fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    match (args.text("tcp"), args.text("unix")) {
        (Some(address), None) => attend_all(&TcpListener::bind(address)?),
        (None, Some(path)) => attend_all(&UnixListener::bind(path)?),
        _ => Err("a blocking server listens on one address: tcp=ADDRESS or unix=PATH".into()),
    }
}

fn attend_all<S: Socket>(listener: &Listener<S>) -> Result<(), Box<dyn Error>> {
    let pattern = pattern();
    loop {
        let mut stream = listener.accept()?;
        let mut line = [0; REQUEST_BYTES];
        if stream.read_exact(&mut line).is_err() {
            continue;
        }
        match Request::of_line(&line) {
            Some(Request::Answer(ending, bytes)) => answer(stream, ending, &pattern[..bytes])?,
            Some(Request::Usage) => stream.write_all(Usage::default().to_string().as_bytes())?,
            Some(Request::Quit) => {
                stream.write_all(Usage::default().to_string().as_bytes())?;
                return Ok(());
            }
            None => {}
        }
    }
}

fn answer<S: Socket>(
    mut stream: Stream<S>,
    ending: Ending,
    bytes: &[u8],
) -> Result<(), Box<dyn Error>> {
    stream.write_all(bytes)?;
    let want = match ending {
        Ending::Close => return Ok(()),
        Ending::Acked => Delivery::Acked,
        Ending::Closed => Delivery::Closed,
        Ending::Spin | Ending::Poll => return Err("the blocking server has no such ending".into()),
    };
    stream.finish().want(want).wait()?;
    Ok(())
}
