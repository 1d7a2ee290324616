//! The server over tokio: one thread, one task for each connection.

use std::error::Error;
use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lastbyte::tls::{self, TlsStream, rustls};
use lastbyte::{Delivery, FinishOptions, Listener, Socket, Stream, TcpListener, UnixListener};
use lastbyte_sys::{process, tcp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::{runtime, task, time};

use crate::args::Args;
use crate::request::{Ending, NAME, REQUEST_BYTES, Request, Usage, pattern};

/// How long an ending may wait: the default deadline of a finish.
const LONGEST: Duration = Duration::from_secs(30);

pub(crate) fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shop = Arc::new(Shop { pattern: pattern(), ..Shop::default() });
        let plain = |stream, shop| task::spawn(attend(stream, shop));
        if let Some(address) = args.text("tcp") {
            let listener = TcpListener::bind(address).await?;
            task::spawn(accept(listener, Arc::clone(&shop), plain));
        }
        if let (Some(address), Some(path)) = (args.text("tls"), args.text("cert")) {
            let listener = TcpListener::bind(address).await?;
            let config = certified(path)?;
            let secret = move |stream, shop| task::spawn(shake_hands(stream, config.clone(), shop));
            task::spawn(accept(listener, Arc::clone(&shop), secret));
        }
        if let Some(path) = args.text("unix") {
            let listener = UnixListener::bind(path)?;
            let plain = |stream, shop| task::spawn(attend(stream, shop));
            task::spawn(accept(listener, Arc::clone(&shop), plain));
        }
        shop.quit.notified().await;
        Ok(())
    })
}

async fn accept<S: Socket>(
    listener: Listener<S>,
    shop: Arc<Shop>,
    begin: impl Fn(Stream<S>, Arc<Shop>) -> task::JoinHandle<()>,
) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(begin(stream, Arc::clone(&shop))),
            // Of too many descriptors, say: there may be fewer soon.
            Err(_) => time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Makes a certificate for the client to trust, and lays it down for it.
fn certified(path: &str) -> Result<Arc<rustls::ServerConfig>, Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(path, made.cert.der())?;
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    Ok(tls::server_config(vec![made.cert.der().clone()], key)?)
}

async fn shake_hands(stream: Stream, config: Arc<rustls::ServerConfig>, shop: Arc<Shop>) {
    if let Ok(stream) = TlsStream::accept(stream, config, LONGEST).await {
        attend(stream, shop).await;
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
trait Peer: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What is said before a plain close.
    fn say_end(&mut self) -> impl Future<Output = io::Result<()>> + Send;
    fn finish(self, options: FinishOptions) -> impl Future<Output = bool> + Send;
    fn unacked(&self) -> io::Result<u32>;
}

impl<S: Socket> Peer for Stream<S> {
    async fn say_end(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn finish(self, options: FinishOptions) -> bool {
        self.finish_with(options).await.is_ok()
    }

    fn unacked(&self) -> io::Result<u32> {
        tcp::unacked(self)
    }
}

impl Peer for TlsStream {
    async fn say_end(&mut self) -> io::Result<()> {
        self.close_tls().await
    }

    async fn finish(self, options: FinishOptions) -> bool {
        self.finish_with(options).await.is_ok()
    }

    fn unacked(&self) -> io::Result<u32> {
        tcp::unacked(self.transport())
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
    if peer.write_all(&shop.pattern[..bytes]).await.is_err() || peer.flush().await.is_err() {
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
async fn end<P: Peer>(mut peer: P, ending: Ending) -> io::Result<bool> {
    let began = Instant::now();
    if !matches!(ending, Ending::Acked | Ending::Closed) {
        peer.say_end().await?;
    }
    match ending {
        Ending::Close => {}
        // A level-triggered event loop that is told of a writable socket comes round at once.
        Ending::Spin => {
            while peer.unacked()? > 0 && began.elapsed() < LONGEST {
                task::yield_now().await;
            }
        }
        Ending::Poll => {
            while peer.unacked()? > 0 && began.elapsed() < LONGEST {
                time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ending::Acked => {
            return Ok(peer.finish(FinishOptions::default().want(Delivery::Acked)).await);
        }
        Ending::Closed => {
            return Ok(peer.finish(FinishOptions::default().want(Delivery::Closed)).await);
        }
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
    peer.write_all(usage.to_string().as_bytes()).await?;
    peer.say_end().await
}
