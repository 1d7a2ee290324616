//! Connects to a host in one call.

use std::sync::OnceLock;

use lastbyte_socket::Stream;

use crate::destination::ToDestination;
use crate::dialer::Dialer;
use crate::error::{DialError, Undialed};
use crate::options::{DialOptions, Dialed};
use crate::resolve::Resolver;

/// Connects to a host by its name or address, with default options:
/// `connect("example.org:443").await?`. It resolves both address families at once, tries addresses
/// in parallel (RFC 8305), and gives up after 30 s.
///
/// All calls of a process share one [`Dialer`] with its history. If the future is dropped, no
/// socket is left. Needs a running runtime with I/O and time.
///
/// # Errors
/// Why there is no connection, and how each attempt failed.
pub async fn connect(to: impl ToDestination) -> Result<Stream, DialError> {
    connect_with(to, &DialOptions::default()).await
}

/// [`connect`] with options.
///
/// ```no_run
/// use std::time::Duration;
/// use lastbyte_dial::{DialOptions, connect_with};
///
/// # async fn example() -> Result<(), lastbyte_dial::DialError> {
/// let options = DialOptions::default().within(Duration::from_secs(5));
/// let stream = connect_with(("example.org", 443), &options).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As those of [`connect`].
pub async fn connect_with(
    to: impl ToDestination,
    options: &DialOptions,
) -> Result<Stream, DialError> {
    let Dialed { stream, .. } = shared_dialer(&to, options)?.dial(to, options).await?;
    Ok(stream)
}

/// The dialer of this process. It asks the system's DNS servers; a forked process starts its own
/// thread for that.
pub(crate) fn shared_dialer(
    to: &impl ToDestination,
    options: &DialOptions,
) -> Result<&'static Dialer, DialError> {
    static DIALER: OnceLock<Dialer> = OnceLock::new();
    if let Some(dialer) = DIALER.get() {
        return Ok(dialer);
    }
    match Resolver::dns() {
        Ok(resolver) => Ok(DIALER.get_or_init(|| Dialer::new(resolver))),
        Err(error) => {
            let why = Undialed::Resolver(error.to_string());
            Err(Dialer::new(Resolver::system()).failed(&to.to_destination(), options, why))
        }
    }
}
