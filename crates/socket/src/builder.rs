//! A finish before it begins: what it has to prove.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use lastbyte_core::Delivery;
use lastbyte_core::finish::{Drain, FinishOptions};

/// A finish before it begins: how long it may take, and what it has to prove. Over tokio, `.await`
/// it; on a blocking stream, call [`Finish::wait`].
///
/// ```
/// # use std::time::Duration;
/// use lastbyte_socket::{Delivery, blocking::TcpListener, blocking::TcpStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let peer = std::thread::spawn(move || drop(listener.accept().unwrap()));
/// let stream = TcpStream::connect(address)?;
/// let receipt = stream.finish().within(Duration::from_secs(5)).want(Delivery::Acked).wait()?;
/// # peer.join().unwrap();
/// assert_eq!(receipt.unacked, Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it begins when it is awaited, or by `wait`"]
pub struct Finish<T> {
    of: T,
    options: FinishOptions,
}

impl<T> Finish<T> {
    /// A finish of `of`, with default options.
    pub fn new(of: T) -> Self {
        Self { of, options: FinishOptions::default() }
    }

    /// How long it may take: [`FinishOptions::deadline`].
    pub fn within(self, deadline: Duration) -> Self {
        Self { options: self.options.within(deadline), ..self }
    }

    /// The level to wait for: [`FinishOptions::want`](field@FinishOptions::want).
    pub fn want(self, want: Delivery) -> Self {
        Self { options: self.options.want(want), ..self }
    }

    /// What to do with bytes that the peer still sends:
    /// [`FinishOptions::drain`](field@FinishOptions::drain).
    pub fn drain(self, drain: Drain) -> Self {
        Self { options: self.options.drain(drain), ..self }
    }

    /// Whether each acknowledgement restarts the deadline:
    /// [`FinishOptions::patient`](field@FinishOptions::patient).
    pub fn patient(self, patient: bool) -> Self {
        Self { options: self.options.patient(patient), ..self }
    }
}

impl<T: FinishBlocking> Finish<T> {
    /// Finishes the stream and waits for the proof.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub fn wait(self) -> Result<T::Receipt, T::Error> {
        self.of.run(self.options)
    }
}

impl<T: FinishAsync> IntoFuture for Finish<T> {
    type Output = <T::Future as Future>::Output;
    type IntoFuture = T::Future;

    fn into_future(self) -> T::Future {
        self.of.run(self.options)
    }
}

/// A blocking stream that [`Finish::wait`] can finish. A mutable reference to one is proven and
/// stays open.
pub trait FinishBlocking: Sized {
    /// What a finish proves.
    type Receipt;
    /// Why a finish proved less.
    type Error;

    /// Finishes the stream.
    ///
    /// # Errors
    /// When less than the wanted level could be proven.
    fn run(self, options: FinishOptions) -> Result<Self::Receipt, Self::Error>;
}

/// A stream over tokio whose [`Finish`] can be awaited. A mutable reference to one is proven and
/// stays open.
pub trait FinishAsync: Sized {
    /// The finish itself.
    type Future: Future;

    /// Begins the finish.
    fn run(self, options: FinishOptions) -> Self::Future;
}
