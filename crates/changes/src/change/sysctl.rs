//! Settings of the kernel that hold for the whole machine: now, and from the next boot on by a file.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{NotMade, network, present};
use crate::error::{ChangesError, Doing, Result, must, refused};

/// New files, and the values in `/proc/sys` that they ask for, set at once.
///
/// What a value does besides cannot be read and is not taken back: a congestion control that was the
/// default once may be chosen by every program until the next boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlFile {
    /// That of `sysctl.d(5)`; for a module also one of `modules-load.d(5)`.
    pub files: Vec<NewFile>,
    /// The values that the files ask for.
    pub values: Vec<LiveValue>,
    /// The network namespace whose values were set, as the inode number of its file in `/proc`.
    pub network: u64,
}

/// A file that was not there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// A value in `/proc/sys`; lists with one space between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveValue {
    /// As `sysctl(8)` has it: `net.ipv4.tcp_congestion_control`.
    pub key: String,
    /// Its file in `/proc/sys`.
    pub path: PathBuf,
    /// What it was.
    pub before: String,
    /// What it was set to.
    pub after: String,
}

impl SysctlFile {
    /// Makes the files, then sets the values; takes back what was done if one fails.
    pub(crate) fn make(&self) -> Result<(), NotMade> {
        let mut done = Self { files: Vec::new(), values: Vec::new(), network: self.network };
        self.make_all(&mut done).map_err(|error| {
            let left = done.take_back(&mut |_| {}).err().map(Box::new);
            NotMade { error, left }
        })
    }

    /// Sets the values back that are still as they were set, and removes the files. Nothing of
    /// this if a file is no longer as it was made. `tell` hears of values that were left alone.
    pub(super) fn take_back(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        for NewFile { path, text } in &self.files {
            must(is_absent_or(path, &|found| found == text.as_bytes())?, || {
                format!(
                    "{} is not as lastbyte wrote it: it is left alone, and so are the values; \
                     remove it, then undo this again",
                    path.display()
                )
            })?;
        }
        let here = network()? == self.network;
        for value in self.values.iter().rev() {
            if here {
                value.set_back(tell)?;
            } else if value.before != value.after {
                let key = &value.key;
                tell(&format!("{key} was set in another network namespace: it is left alone"));
            }
        }
        self.files.iter().rev().try_for_each(NewFile::remove)
    }

    /// Refuses what could not be taken back from its record.
    pub(super) fn check(&self) -> Result<()> {
        let files = self.files.iter().map(|file| &file.path);
        for path in files.chain(self.values.iter().map(|value| &value.path)) {
            must(path.is_absolute(), || format!("{} is not an absolute path", path.display()))?;
            must(path.to_str().is_some(), || format!("{} is not UTF-8", path.display()))?;
        }
        Ok(())
    }

    fn make_all(&self, done: &mut Self) -> Result<()> {
        for file in &self.files {
            file.create()?;
            done.files.push(file.clone());
        }
        for value in &self.values {
            // What was not set is found to be as it was before.
            done.values.push(value.clone());
            value.set()?;
        }
        Ok(())
    }
}

/// `net.ipv4.tcp_congestion_control = bbr in /etc/sysctl.d/90-lastbyte-bbr.conf`.
impl fmt::Display for SysctlFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, value) in self.values.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{} = {}", value.key, value.after)?;
        }
        for (place, file) in self.files.iter().enumerate() {
            let before = if place == 0 { " in " } else { " and " };
            write!(f, "{before}{}", file.path.display())?;
        }
        Ok(())
    }
}

impl NewFile {
    /// Whole or not at all, and never in place of another file: it is written under another name,
    /// made durable, and gets its name by a link.
    fn create(&self) -> Result<()> {
        let beside = self.beside();
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&beside);
        let mut file = file.map_err(|error| cannot("make", &beside, &error))?;
        let linked = self.write(&mut file);
        let gone = fs::remove_file(&beside);
        linked.map_err(|error| cannot("make", &self.path, &error))?;
        gone.and_then(|()| self.sync_directory()).map_err(|error| {
            let _ = fs::remove_file(&self.path);
            cannot("make", &self.path, &error)
        })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        file.write_all(self.text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::hard_link(self.beside(), &self.path)
    }

    /// Removes the file, and what a kill has left of it under its other name.
    fn remove(&self) -> Result<()> {
        let beside = self.beside();
        let is_part = |found: &[u8]| self.text.as_bytes().starts_with(found);
        if is_absent_or(&beside, &is_part)? {
            present(fs::remove_file(&beside), &beside)?;
        }
        let removed = fs::remove_file(&self.path);
        match removed.and_then(|()| self.sync_directory()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(cannot("remove", &self.path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Where it is written at first. The name does not end in `.conf`, without which nobody reads it.
    fn beside(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".new");
        path.into()
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()
    }
}

impl LiveValue {
    /// What the value at `path` is now.
    pub(crate) fn read(path: &Path) -> io::Result<String> {
        let text = fs::read_to_string(path)?;
        Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn set(&self) -> Result<()> {
        self.write(&self.after)?;
        let now = Self::read(&self.path).doing_with(|| format!("cannot read {}", self.key))?;
        must(now == self.after, || {
            format!("the kernel made {now} of {} = {}", self.key, self.after)
        })
    }

    fn set_back(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let now = Self::read(&self.path).doing_with(|| format!("cannot read {}", self.key))?;
        if now == self.before {
            return Ok(());
        }
        if now != self.after {
            let Self { key, after, .. } = self;
            tell(&format!("{key} is {now} now, not {after} as lastbyte set it: it is left alone"));
            return Ok(());
        }
        self.write(&self.before)
    }

    fn write(&self, value: &str) -> Result<()> {
        // Not made if it is not there, as `fs::write` would.
        let written = OpenOptions::new().write(true).open(&self.path);
        match written.and_then(|mut file| file.write_all(value.as_bytes())) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(format!(
                "cannot set {} = {value}: it needs root, and in a container one of the names \
                     of net.ipv4.tcp_allowed_congestion_control",
                self.key
            ))),
            Err(error) => Err(refused(format!("cannot set {} = {value}: {error}", self.key))),
        }
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> ChangesError {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => refused(format!(
            "cannot {what} {path}: settings of the whole machine need root: run it with sudo"
        )),
        io::ErrorKind::AlreadyExists => {
            refused(format!("there is a file {path} that lastbyte did not make: it is left alone"))
        }
        _ => refused(format!("cannot {what} {path}: {error}")),
    }
}

/// Whether there is nothing at `path`, or a file whose content `is_it`.
fn is_absent_or(path: &Path, is_it: &dyn Fn(&[u8]) -> bool) -> Result<bool> {
    /// Ours are far smaller, and another's need not be read whole to know it.
    const MOST_BYTES: u64 = 1 << 16;
    let Some(found) = present(fs::symlink_metadata(path), path)? else { return Ok(true) };
    if !found.is_file() || found.len() > MOST_BYTES {
        return Ok(false);
    }
    Ok(present(fs::read(path), path)?.is_none_or(|text| is_it(&text)))
}
