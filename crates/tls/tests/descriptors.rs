//! Whatever happens to a stream, no descriptor is left. Each test is a process of its own, so that
//! nobody else opens any.

use std::fs;
use std::time::Duration;

use lastbyte_socket::{ConnectOptions, FinishOptions, Listener, Stream};
use lastbyte_tls::TlsStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::support::{LONG, NAME, SECOND, client, listener, server};

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn cancelled_wherever_it_is_a_stream_leaves_no_descriptor() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = Listener::from_blocking(listener).unwrap();
        let before = open_descriptors();
        // A whole conversation takes some milliseconds: it is cut short at each of 200 moments, and
        // left alone at the end.
        for moment in 0..200_u32 {
            let near = Stream::connect_with(address, &ConnectOptions::default().within(SECOND))
                .await
                .unwrap();
            let far = listener.accept().await.unwrap();
            let server = tokio::spawn(async move {
                let mut far = TlsStream::accept(far, server(), LONG).await?;
                let mut room = [0; 4096];
                while far.read(&mut room).await? > 0 {}
                far.write_all(&[7; 100_000]).await?;
                far.finish_with(FinishOptions::default().within(LONG)).await?;
                Ok::<_, std::io::Error>(())
            });
            let conversation = async {
                let mut near = TlsStream::connect(near, client(), NAME, LONG).await?;
                near.write_all(&[7; 100_000]).await?;
                near.half_close().await?;
                tokio::io::copy(&mut near, &mut tokio::io::sink()).await?;
                near.finish_with(FinishOptions::default().within(LONG)).await?;
                Ok::<_, std::io::Error>(())
            };
            let given = Duration::from_micros(u64::from(moment).pow(2));
            if moment == 199 {
                conversation.await.unwrap();
                server.await.unwrap().unwrap();
            } else {
                let _ = timeout(given, conversation).await;
                // It sees the cut, or finishes.
                let _ = timeout(LONG, server).await.expect("it hangs");
            }
        }
        assert_eq!(open_descriptors(), before);
    });
}
