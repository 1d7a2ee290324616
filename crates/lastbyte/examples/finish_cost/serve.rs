//! The server over tokio: one thread, one task for each connection.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lastbyte::{
    AsyncListener, AsyncStream, Carrier, Delivery, FinishOptions, Listener, Tune, UnixListener,
};
use lastbyte_sys::{process, tcp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::{runtime, task, time};

use crate::request::{Ending, REQUEST_BYTES, Request, Usage, pattern};
use crate::words::Words;

/// How long an ending may wait: the default deadline of a finish.
const LONGEST: Duration = Duration::from_secs(30);

pub(crate) fn serve(words: &Words) -> Result<(), Box<dyn Error>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shop = Arc::new(Shop { pattern: pattern(), ..Shop::default() });
        if let Some(address) = words.text("tcp") {
            let listener = Listener::listen(address.parse()?, &Tune::default())?;
            task::spawn(accept(AsyncListener::from_blocking(listener)?, Arc::clone(&shop)));
        }
        if let Some(path) = words.text("unix") {
            let listener = UnixListener::listen_unix(path)?;
            task::spawn(accept(AsyncListener::from_blocking(listener)?, Arc::clone(&shop)));
        }
        shop.quit.notified().await;
        Ok(())
    })
}

async fn accept<S: Carrier>(listener: AsyncListener<S>, shop: Arc<Shop>) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(task::spawn(attend(stream, Arc::clone(&shop)))),
            // Of too many descriptors, say: there may be fewer soon.
            Err(_) => time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// What all connections share.
#[derive(Default)]
struct Shop {
    pattern: Vec<u8>,
    open: AtomicU64,
    all_closed: Notify,
    quit: Notify,
    wake_ups: AtomicU64,
    proven: AtomicU64,
    unproven: AtomicU64,
}

/// A connection that can be finished, whatever lies between it and the socket.
pub(crate) trait Peer: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static {
    fn finish(self, options: FinishOptions) -> impl Future<Output = bool> + Send;
}

impl<S: Carrier> Peer for AsyncStream<S> {
    async fn finish(self, options: FinishOptions) -> bool {
        Self::finish(self, options).await.is_ok()
    }
}

async fn attend<P: Peer>(mut peer: P, shop: Arc<Shop>) {
    let mut line = [0; REQUEST_BYTES];
    if peer.read_exact(&mut line).await.is_err() {
        return;
    }
    match Request::of_line(&line) {
        Some(Request::Answer(ending, bytes)) => {
            shop.open.fetch_add(1, Relaxed);
            answer(peer, ending, bytes, &shop).await;
            if shop.open.fetch_sub(1, Relaxed) == 1 {
                shop.all_closed.notify_one();
            }
        }
        Some(Request::Usage) => {
            let _ = tell_usage(&mut peer, &shop).await;
        }
        Some(Request::Quit) => {
            let _ = tell_usage(&mut peer, &shop).await;
            let _ = peer.finish(FinishOptions::default()).await;
            shop.quit.notify_one();
        }
        None => {}
    }
}

async fn answer<P: Peer>(mut peer: P, ending: Ending, bytes: usize, shop: &Shop) {
    if peer.write_all(&shop.pattern[..bytes]).await.is_err() {
        return;
    }
    let mut end = pin!(end(peer, ending));
    let mut polls = 0;
    let proven = poll_fn(|cx| {
        polls += 1;
        end.as_mut().poll(cx)
    });
    match proven.await {
        Ok(true) => shop.proven.fetch_add(1, Relaxed),
        Ok(false) | Err(_) => shop.unproven.fetch_add(1, Relaxed),
    };
    shop.wake_ups.fetch_add(polls - 1, Relaxed);
}

/// Whether what the ending waits for was seen; a plain close waits for nothing.
async fn end<P: Peer>(peer: P, ending: Ending) -> io::Result<bool> {
    let began = Instant::now();
    match ending {
        Ending::Close => {}
        // A level-triggered event loop that is told of a writable socket comes round at once.
        Ending::Spin => {
            while tcp::unacked(&peer)? > 0 && began.elapsed() < LONGEST {
                task::yield_now().await;
            }
        }
        Ending::Poll => {
            while tcp::unacked(&peer)? > 0 && began.elapsed() < LONGEST {
                time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ending::Acked => return Ok(peer.finish(FinishOptions::wanting(Delivery::Acked)).await),
        Ending::Closed => return Ok(peer.finish(FinishOptions::wanting(Delivery::Closed)).await),
    }
    drop(peer);
    Ok(began.elapsed() < LONGEST)
}

/// Says what was used once no other connection is left.
async fn tell_usage<P: Peer>(peer: &mut P, shop: &Shop) -> io::Result<()> {
    while shop.open.load(Relaxed) > 0 {
        shop.all_closed.notified().await;
    }
    let usage = Usage {
        cpu_ns: u64::try_from(process::thread_cpu_time()?.as_nanos()).unwrap_or(u64::MAX),
        wake_ups: shop.wake_ups.load(Relaxed),
        proven: shop.proven.load(Relaxed),
        unproven: shop.unproven.load(Relaxed),
    };
    peer.write_all(usage.to_string().as_bytes()).await
}
