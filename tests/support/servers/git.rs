//! git, that knows nothing of who runs it.

use std::path::Path;
use std::process::Command;

use super::succeed;
use crate::support::Answer;

pub(crate) fn commit_all(repository: &Path) {
    git(repository, &["add", "."]);
    git(repository, &["commit", "-q", "-m", "more"]);
}

#[track_caller]
pub(crate) fn git(place: &Path, words: &[&str]) -> Answer {
    succeed(git_command(place).args(words))
}

/// A git that knows nothing of its user's habits, nor of a repository that these tests run in.
pub(crate) fn git_command(place: &Path) -> Command {
    let mut git = Command::new("git");
    git.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
    // What looks random gets no smaller.
    git.envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.compression")]);
    git.env("GIT_CONFIG_VALUE_0", "0");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "test").env(format!("GIT_{who}_EMAIL"), "test@example");
    }
    git.current_dir(place);
    git
}
