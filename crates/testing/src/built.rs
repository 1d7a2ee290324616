//! What cargo builds beside the tests, and no test can have built for it by cargo alone: libraries for
//! C, and examples.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file that cargo has built, `name` from the directory where it puts what it built for this test.
///
/// Tests do not run cargo: it would wait for the cargo that runs them, and build with other features.
///
/// # Panics
///
/// If the file is missing, or older than a source that it was built of. The message names the
/// command that builds it.
pub fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this process knows its program");
    // It is in `deps` there.
    let file = here.ancestors().nth(2).expect("cargo puts a test two below").join(name);
    if let Some(what) = complaint_about(&file) {
        panic!("{} {what}: run `{COMMAND}` first", file.display());
    }
    file
}

/// What `make test` builds everything by. With the features of one package alone, cargo would build
/// the libraries of others once more.
const COMMAND: &str = "cargo build --workspace --exclude lastbyte-python --all-targets --locked";

/// Cargo lists what it built a file of in another one beside it, whose name ends with `.d`.
fn complaint_about(file: &Path) -> Option<String> {
    let Some(built) = changed(file) else { return Some("is missing".into()) };
    let Ok(list) = fs::read_to_string(file.with_extension("d")) else {
        return Some("has no list of its sources".into());
    };
    let is_newer = |source: &PathBuf| changed(source).is_none_or(|changed| changed > built);
    let source = sources_in(&list).into_iter().find(is_newer)?;
    Some(format!("is older than {}", source.display()))
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|it| it.modified()).ok()
}

/// Of lines such as `built: source source`, as make reads them: a space in a name has a backslash
/// before it.
fn sources_in(list: &str) -> Vec<PathBuf> {
    let sources = list.lines().filter_map(|line| Some(line.split_once(": ")?.1));
    let names = sources.flat_map(|sources| {
        let sources = sources.replace("\\ ", "\0");
        let names: Vec<String> = sources.split(' ').map(|name| name.replace('\0', " ")).collect();
        names
    });
    names.filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::{complaint_about, sources_in};
    use std::fs::{self, File};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    #[test]
    fn sources_are_read() {
        let list = "/t/x.so: /a/lib.rs /a/with\\ space.rs\n\n/t/x.a: /b.rs\n";
        let sources = sources_in(list);
        assert_eq!(sources, ["/a/lib.rs", "/a/with space.rs", "/b.rs"].map(PathBuf::from));
        assert!(sources_in("/t/x.so:\n").is_empty());
    }

    #[test]
    fn what_is_missing_or_old_is_said() {
        let place = std::env::temp_dir().join(format!("lastbyte-built-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory for a moment");
        let (file, source) = (place.join("x.so"), place.join("lib.rs"));
        let say = || complaint_about(&file).unwrap_or_default();
        assert_eq!(say(), "is missing");
        fs::write(&file, "").expect("it is written");
        assert_eq!(say(), "has no list of its sources");
        fs::write(place.join("x.d"), format!("x.so: {}\n", source.display())).expect("written");
        assert_eq!(say(), format!("is older than {}", source.display()), "a source that is gone");
        fs::write(&source, "").expect("it is written");
        let at = |file, time| {
            let file = File::options().append(true).open(file).expect("it is there");
            file.set_modified(time).expect("its time is set");
        };
        let then = SystemTime::now();
        at(&file, then);
        at(&source, then);
        assert_eq!(say(), "");
        at(&source, then + Duration::from_secs(1));
        assert_eq!(say(), format!("is older than {}", source.display()));
        fs::remove_dir_all(&place).expect("it is removed");
    }
}
