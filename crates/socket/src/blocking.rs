//! The same without an event loop: a call returns when it is done.

pub(crate) mod halves;
pub(crate) mod listener;
pub(crate) mod stream;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
pub use listener::{Listener, TcpListener, UnixListener};
pub use stream::{Stream, TcpStream, UnixStream};
