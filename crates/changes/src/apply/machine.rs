//! Settings of the whole machine: which files and values they are.

use std::fs;
use std::path::{Path, PathBuf};

use lastbyte_units::ByteSize;

use crate::change::{LiveValue, NewFile, SysctlFile, network};
use crate::error::{Doing, Result, must, refused};

const CONGESTION_KEY: &str = "net.ipv4.tcp_congestion_control";

/// Where a machine keeps its settings.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) sysctl_d: PathBuf,
    /// Other directories of the kind; a file is read in the order of its name, wherever it is.
    pub(super) read_too: Vec<PathBuf>,
    pub(super) modules_load_d: PathBuf,
    pub(super) proc_sys: PathBuf,
    /// The modules that are loaded.
    pub(super) modules: PathBuf,
}

impl Places {
    pub(super) fn of_this_machine() -> Self {
        Self {
            sysctl_d: "/etc/sysctl.d".into(),
            read_too: ["/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"]
                .map(PathBuf::from)
                .into(),
            modules_load_d: "/etc/modules-load.d".into(),
            proc_sys: "/proc/sys".into(),
            modules: MODULES.into(),
        }
    }

    fn value(&self, key: &str) -> PathBuf {
        self.proc_sys.join(key.replace('.', "/"))
    }
}

/// The values that are set, as `sysctl(8)` names them.
pub(super) fn keys(congestion: Option<&str>, buffers: Option<ByteSize>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    keys.extend(congestion.map(|_| CONGESTION_KEY));
    keys.extend(buffers.iter().flat_map(|_| BUFFER_KEYS));
    keys
}

/// The files to make and the values to set. Nothing is changed.
///
/// # Errors
/// A file that is there already, one that takes a value back at boot, a value that cannot be read.
pub(super) fn plan(
    places: &Places,
    congestion: Option<&str>,
    buffers: Option<ByteSize>,
) -> Result<SysctlFile> {
    let mut values = Vec::new();
    if let Some(congestion) = congestion {
        values.push(value(places, CONGESTION_KEY, &|_| Some(congestion.to_owned()))?);
    }
    if let Some(limit) = buffers {
        for key in BUFFER_KEYS {
            values.push(value(places, key, &|now| up_to(limit, now))?);
        }
    }
    must(!values.is_empty(), || "nothing to set for the whole machine".to_owned())?;
    let name = [congestion, buffers.map(|_| "buffers")];
    let name = name.into_iter().flatten().collect::<Vec<_>>().join("-");
    let mut text = HEADING.to_owned();
    for LiveValue { key, after, .. } in &values {
        text += &format!("{key} = {after}\n");
    }
    let path = places.sysctl_d.join(format!("90-lastbyte-{name}.conf"));
    values.iter().try_for_each(|value| is_last(places, &path, value))?;
    let mut files = vec![NewFile { path, text }];
    if let Some(congestion) = congestion.filter(|name| is_module(&places.modules, name)) {
        files.push(module_file(places, congestion));
    }
    files.iter().try_for_each(|file| is_new(&file.path))?;
    Ok(SysctlFile { files, values, network: network()? })
}

const HEADING: &str = "\
# Written by lastbyte, because its user asked it to apply what it had found.
# `lastbyte changes` lists this with its number, `lastbyte undo NUMBER` takes it back.
";

pub(super) const BUFFER_KEYS: [&str; 2] = ["net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"];

/// The three sizes of `tcp_wmem` or `tcp_rmem` with the greatest at least `limit`.
pub(super) fn up_to(limit: ByteSize, now: &str) -> Option<String> {
    let mut sizes = now.split_whitespace().map_while(|size| size.parse::<u64>().ok());
    let (least, first) = (sizes.next()?, sizes.next()?);
    let most = sizes.next()?.max(limit.bytes());
    Some(format!("{least} {first} {most}"))
}

/// Where the kernel lists its modules (`proc_modules(5)`).
pub(super) const MODULES: &str = "/proc/modules";

/// Whether a kernel with these modules has the congestion control from one, which the next boot has to
/// load.
pub(super) fn is_module(modules: &Path, congestion: &str) -> bool {
    let modules = fs::read_to_string(modules).unwrap_or_default();
    modules.lines().any(|line| line.starts_with(&format!("tcp_{congestion} ")))
}

fn module_file(places: &Places, congestion: &str) -> NewFile {
    let path = places.modules_load_d.join(format!("90-lastbyte-{congestion}.conf"));
    NewFile { path, text: format!("{HEADING}tcp_{congestion}\n") }
}

fn value(places: &Places, key: &str, after: &dyn Fn(&str) -> Option<String>) -> Result<LiveValue> {
    let path = places.value(key);
    let before = LiveValue::read(&path).doing_with(|| format!("cannot read {key}"))?;
    let after =
        after(&before).ok_or_else(|| refused(format!("{key} is `{before}`: not three sizes")))?;
    Ok(LiveValue { key: key.to_owned(), path, before, after })
}

/// Refuses a value that would be another one after the next boot, as a file that is read later says so
/// (`sysctl.d(5)`).
fn is_last(places: &Places, ours: &Path, value: &LiveValue) -> Result<()> {
    let directories = std::iter::once(&places.sysctl_d).chain(&places.read_too);
    let entries = directories.flat_map(|directory| fs::read_dir(directory).into_iter().flatten());
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_later = path.file_name() > ours.file_name();
        if !is_later || path.extension().is_none_or(|extension| extension != "conf") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let last = text.lines().filter_map(|line| setting(line, &value.key)).next_back();
        if let Some(theirs) = last.filter(|theirs| *theirs != value.after) {
            return Err(refused(format!(
                "{} has {} = {theirs}, and is read after what lastbyte would write: change it \
                 there",
                path.display(),
                value.key
            )));
        }
    }
    Ok(())
}

/// The value in a line `KEY = VALUE`, with one space between the parts of a list. A `-` before the key
/// lets a failure pass; slashes may stand for its dots.
fn setting(line: &str, key: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let name = name.strip_prefix('-').unwrap_or(name);
    (name.replace('/', ".") == key).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Refuses a name that is taken, also by a link that leads nowhere.
fn is_new(path: &Path) -> Result<()> {
    must(fs::symlink_metadata(path).is_err(), || {
        format!("there is a file {} already: it is left alone, and nothing is set", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_as_sysctl_does() {
        let key = "net.ipv4.tcp_rmem";
        for line in [
            "net.ipv4.tcp_rmem = 1 2 3",
            "net.ipv4.tcp_rmem=1\t2   3 ",
            "-net/ipv4/tcp_rmem = 1 2 3",
        ] {
            assert_eq!(setting(line, key).unwrap(), "1 2 3", "{line}");
        }
        for line in ["", "net.ipv4.tcp_rmem", "# net.ipv4.tcp_rmem = 1", "net.ipv4.tcp_wmem = 1"] {
            assert_eq!(setting(line, key), None, "{line}");
        }
    }

    #[test]
    fn no_maximum_is_lowered() {
        let limit: ByteSize = "8MiB".parse().unwrap();
        assert_eq!(up_to(limit, "4096\t16384\t4194304\n").unwrap(), "4096 16384 8388608");
        assert_eq!(up_to(limit, "4096 131072 33554432").unwrap(), "4096 131072 33554432");
        assert_eq!(up_to(limit, "4096 131072"), None);
        assert_eq!(up_to(limit, "rubbish"), None);
    }
}
