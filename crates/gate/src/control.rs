//! The control socket: what can be asked of a gate that runs, and how it answers.
//!
//! One connection is one question: a line of words, and one line of JSON back, an [`Answer`]. An
//! answer without the end of its line was cut.
//!
//! | Words | Answer |
//! | --- | --- |
//! | `stat` | all [`Statistic`]s |
//! | `stat NAME` | that one, or an error that names near ones |
//! | `list` | what statistics there are: a [`Description`] of each |
//! | `flows` | the [`Flow`]s that are open |
//! | `openmetrics` | all statistics as OpenMetrics text |
//! | `version` | who answers: an [`Identity`] |
//! | `reload` | as SIGHUP, and what came of it |
//! | `drain` | as SIGTERM, however often it is said |
//!
//! Only the gate's own user and root are answered: the file has mode 0600, and the kernel says who is
//! there (`SO_PEERCRED`, `unix(7)`).

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

/// What a gate can be told over its control socket, beside being asked.
pub trait Commands: Send + Sync {
    /// Becomes what its file says now. It may wait until that is done.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    fn reload(&self) -> Result<String, String>;

    /// Lets flows come to their end, and then ends.
    fn drain(&self);
}
