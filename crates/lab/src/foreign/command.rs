//! What to run: one program, or one on each host.

use super::error::ForeignError;

/// The programs to run over a path, each with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommand {
    /// Runs on the near host to its end.
    pub near: Vec<String>,
    /// Runs on the far host at the same time, usually a server; it is killed afterwards.
    pub far: Option<Vec<String>>,
}

impl ForeignCommand {
    /// Splits commands into arguments as a POSIX shell does, with quotes, and does nothing else of
    /// a shell: for variables, pipes and redirections use `sh -c '...'`.
    ///
    /// # Errors
    /// [`ForeignError::Command`] for an empty command, or one with an unterminated quote.
    pub fn parse(near: &str, far: Option<&str>) -> Result<Self, ForeignError> {
        Ok(Self { near: split(near)?, far: far.map(split).transpose()? })
    }
}

fn split(command: &str) -> Result<Vec<String>, ForeignError> {
    let wrong = |why| ForeignError::Command { command: command.to_owned(), why };
    // An argument cannot contain one.
    if command.contains('\0') {
        return Err(wrong("has a zero byte in it"));
    }
    let words = shlex::split(command).ok_or_else(|| wrong("has a quote that does not end"))?;
    if words.first().is_none_or(String::is_empty) {
        return Err(wrong("names no program"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Option<Vec<String>> {
        ForeignCommand::parse(command, None).ok().map(|command| command.near)
    }

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let split = |command, parts: &[&str]| {
            let parts = parts.iter().map(|part| (*part).to_owned()).collect();
            assert_eq!(words(command), Some(parts), "{command}");
        };
        split("iperf3 -c far  -t 3", &["iperf3", "-c", "far", "-t", "3"]);
        split(
            r#"sh -c 'head -c 9 "$A" > /dev/null' b\ c"#,
            &["sh", "-c", "head -c 9 \"$A\" > /dev/null", "b c"],
        );
        split("a '' \"\"", &["a", "", ""]);
        for wrong in ["", "  ", "'a", "a \"b", "a \\", "''", "a\0b", "# a"] {
            assert_eq!(words(wrong), None, "{wrong:?}");
        }
        let both = ForeignCommand::parse("curl far", Some("nc -l 80")).unwrap();
        assert_eq!(both.far.unwrap().len(), 3);
        assert!(ForeignCommand::parse("a", Some("'b")).is_err());
    }
}
