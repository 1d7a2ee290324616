//! The control socket: the questions that a running gate answers.
//!
//! One connection is one question: a line of text, and one line of JSON back, an [`Answer`]. An answer
//! without the end of its line was truncated.
//!
//! | Question | Answer |
//! | --- | --- |
//! | `stat` | all [`Statistic`]s |
//! | `stat NAME` | that one, or an error that names near ones |
//! | `list` | what statistics there are: a [`Description`] of each |
//! | `flows` | the [`Flow`]s that are open |
//! | `openmetrics` | all statistics as OpenMetrics text |
//! | `version` | the process that answers: an [`Identity`] |
//! | `reload` | as SIGHUP: what changed, or the error |
//! | `drain` | as SIGTERM; a second one changes nothing |
//!
//! Only the gate's own user and root are answered: the file has mode 0600, and the kernel says whose
//! process connected (`SO_PEERCRED`, `unix(7)`).

mod answer;
mod ask;
mod place;
mod serve;

pub use answer::{
    Answer, Bucket, Description, Distribution, Figure, Flow, Identity, OfRoute, Statistic,
};
pub use ask::{AskError, ask};
pub use place::{BindError, own_path, running, sweep};

pub(crate) use place::ControlSocket;
pub(crate) use serve::serve;

/// Commands over the control socket.
pub trait Commands: Send + Sync {
    /// Reloads the configuration file. It may block until that is done.
    ///
    /// # Errors
    /// One sentence: why it cannot.
    fn reload(&self) -> Result<String, String>;

    /// Lets flows end by themselves, and then ends.
    fn drain(&self);
}
