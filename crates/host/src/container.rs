//! The container of a process, from the path of its control group (`cgroup(7)`), and its name, from
//! the runtime's files or the command line of its monitor process.

use std::path::Path;

use serde::Deserialize;

use crate::process::{Proc, read};

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// The first 12 digits of a long id, or a name.
    pub id: String,
    /// The long id.
    long: Option<String>,
}

impl Container {
    /// The innermost container that the lines of `/proc/PID/cgroup` (`number:controllers:path`) name.
    /// `root` is the directory of `run`, in which some runtimes keep a directory for each container.
    #[must_use]
    pub fn of(cgroup: &str, root: &Path) -> Option<Self> {
        cgroup.lines().find_map(|line| Self::of_path(line.splitn(3, ':').nth(2)?, root))
    }

    /// The innermost container that the path of a control group names; `root` as for [`Container::of`].
    #[must_use]
    pub fn of_path(path: &str, root: &Path) -> Option<Self> {
        let steps: Vec<&str> = path.split('/').collect();
        let outside = |at: usize| at.checked_sub(1).map_or("", |before| steps[before]);
        (0..steps.len()).rev().find_map(|at| of_step(outside(at), steps[at], root))
    }

    /// The name that its runtime gives it: docker's from its files; podman's and CRI-O's from the
    /// command line of `conmon`, the parent of the container's first process. `pid` is a process in
    /// the container, or the parent of a former one.
    #[must_use]
    pub fn name(&self, proc: &Proc, pid: u32) -> Option<String> {
        let long = self.long.as_deref()?;
        name_by_docker(long, proc.root()).or_else(|| name_by_conmon(long, proc, pid))
    }

    fn of_id(id: &str) -> Self {
        Self { id: id[..12].to_owned(), long: Some(id.to_owned()) }
    }

    fn of_name(name: &str) -> Option<Self> {
        // As `systemd-escape(1)` writes a minus sign.
        let id = name.replace("\\x2d", "-");
        (!id.is_empty()).then_some(Self { id, long: None })
    }
}

impl Proc {
    /// The container that a process is in.
    #[must_use]
    pub fn container(&self, pid: u32) -> Option<Container> {
        let cgroup = read(&self.of(pid).join("cgroup"), 1 << 16).ok()?;
        Container::of(&String::from_utf8_lossy(&cgroup), self.root())
    }
}

/// The container named by one component of the path, with the component before it.
fn of_step(outside: &str, step: &str, root: &Path) -> Option<Container> {
    by_long_id(step).or_else(|| by_manager(outside, step)).or_else(|| by_state(outside, step, root))
}

/// `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`, `libpod-ID`,
/// `SLICE:cri-containerd:ID`, and a bare `ID`, docker's and Kubernetes' without systemd.
fn by_long_id(step: &str) -> Option<Container> {
    let name = step.strip_suffix(".scope").unwrap_or(step);
    let id = name.rsplit(['-', ':']).next().unwrap_or(name);
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Podman's conmon is outside of the container that it monitors.
    (is_id && !name.contains("conmon")).then(|| Container::of_id(id))
}

/// `machine-NAME.scope` and `systemd-nspawn@NAME.service`, systemd's; `lxc.payload.NAME`, and of older
/// LXC `lxc.payload/NAME` and `lxc/NAME`.
fn by_manager(outside: &str, step: &str) -> Option<Container> {
    let scope = || step.strip_suffix(".scope")?.strip_prefix("machine-");
    let service = || step.strip_suffix(".service")?.strip_prefix("systemd-nspawn@");
    let payload = || step.strip_prefix("lxc.payload.");
    let older = || matches!(outside, "lxc" | "lxc.payload").then_some(step);
    let name = scope().or_else(service).or_else(payload).or_else(older)?;
    Container::of_name(name)
}

/// Any name that a runtime was given, if it has a directory of that name: runc and crun, with
/// systemd `runc-NAME.scope`, and containerd, `NAMESPACE/NAME`.
fn by_state(outside: &str, step: &str, root: &Path) -> Option<Container> {
    const UNITS: [&str; 3] = [".scope", ".service", ".slice"];
    let is_one = |name: &str| {
        !matches!(name, "" | "." | "..") && !UNITS.iter().any(|unit| name.ends_with(unit))
    };
    let run = root.join("run");
    let kept_by = |runtime: &str| {
        let of_unit = || step.strip_suffix(".scope")?.strip_prefix(runtime)?.strip_prefix('-');
        let name = of_unit().unwrap_or(step);
        (is_one(name) && run.join(runtime).join(name).is_dir()).then_some(name)
    };
    let task = || {
        let tasks = run.join("containerd/io.containerd.runtime.v2.task");
        let is_task = is_one(outside) && is_one(step) && tasks.join(outside).join(step).is_dir();
        is_task.then_some(step)
    };
    let name = kept_by("runc").or_else(|| kept_by("crun")).or_else(task)?;
    Some(Container { id: name.to_owned(), long: None })
}

fn name_by_docker(id: &str, root: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "Name")]
        name: String,
    }
    let path = root.join("var/lib/docker/containers").join(id).join("config.v2.json");
    let config: Config = serde_json::from_slice(&read(&path, 1 << 20).ok()?).ok()?;
    Some(config.name.trim_start_matches('/').to_owned())
}

/// The name from the process, or its nearest ancestor, that monitors this container and is not in
/// it.
fn name_by_conmon(id: &str, proc: &Proc, pid: u32) -> Option<String> {
    /// Limit on ancestors.
    const MOST: usize = 32;
    let parent = |pid: &u32| proc.stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    let ancestors = std::iter::successors(Some(pid), parent).take(MOST);
    let is_outside = |pid: u32| {
        proc.container(pid).is_none_or(|container| container.long.as_deref() != Some(id))
    };
    ancestors.into_iter().find_map(|pid| {
        proc.stat(pid).filter(|stat| stat.name == "conmon")?;
        let words = proc.arguments(pid, 1 << 14);
        let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1);
        let is_its = after("-c").is_some_and(|word| word == id) && is_outside(pid);
        after("-n").filter(|_| is_its).cloned()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789ab0123456789ab0123456789ab0123456789ab0123456789abcdef";

    fn id_of(cgroup: &str, root: &Path) -> Option<String> {
        Container::of(cgroup, root).map(|container| container.id)
    }

    #[test]
    fn containers_by_their_control_groups() {
        let is_long = [
            "0::/system.slice/docker-ID.scope",
            "12:pids:/docker/ID\n0::/",
            "9:name=systemd:/\n0::/docker/ID",
            "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope/init",
            "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            "0::/kubepods/besteffort/pod1/ID",
            "0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:ID",
            "0::/kubepods.slice/crio-ID.scope",
            "0::/machine.slice/libpod-ID.scope/container",
            "0::/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope/container",
            "9:name=systemd:/libpod_parent/libpod-ID\n0::/libpod_parent/libpod-ID",
            "0::/user.slice/web.service/libpod-payload-ID",
            "0::/../../docker-ID.scope",
        ];
        for cgroup in is_long {
            let container = Container::of(&cgroup.replace("ID", ID), Path::new("/nowhere"));
            assert_eq!(container, Some(Container::of_id(ID)), "{cgroup}");
        }
        let cases = [
            ("0::/machine.slice/machine-web\\x2d1.scope/payload", Some("web-1")),
            ("0::/machine.slice/systemd-nspawn@web.service/payload", Some("web")),
            ("9:name=systemd:/lxc.payload.web\n0::/lxc.payload.web", Some("web")),
            ("0::/lxc.payload.web/system.slice/nginx.service", Some("web")),
            ("0::/lxc.payload/web", Some("web")),
            ("3:cpu:/lxc/101/ns/system.slice/nginx.service", Some("101")),
            ("0::/lxc.monitor.web", None),
            ("0::/lxc.pivot", None),
            ("0::/machine.slice/libpod-conmon-ID.scope", None),
            ("0::/machine.slice/machine-libpod_pod_ID.slice/libpod-conmon-ID.scope", None),
            ("0::/libpod_parent/conmon", None),
            ("0::/user.slice/user-1000.slice/session-2.scope", None),
            ("0::/system.slice/run-u12.service", None),
            ("0::/system.slice/docker.service", None),
            ("0::/payload", None),
            ("0::/", None),
            ("nonsense\n::", None),
        ];
        for (cgroup, expected) in cases {
            let cgroup = cgroup.replace("ID", ID);
            assert_eq!(id_of(&cgroup, Path::new("/nowhere")).as_deref(), expected, "{cgroup}");
        }
    }

    /// A root of one's own, removed when dropped.
    struct Root(PathBuf);

    impl Root {
        fn with(name: &str, folders: &[&str]) -> Self {
            let place = format!("lastbyte-container-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(place);
            folders.iter().for_each(|folder| fs::create_dir_all(root.join(folder)).unwrap());
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn any_name_is_one_where_a_runtime_keeps_it() {
        let tasks = "run/containerd/io.containerd.runtime.v2.task/default/worker";
        let root = Root::with("state", &["run/runc/web", "run/runc/a-b", "run/crun/db", tasks]);
        let cases = [
            ("1:cpu:/web\n0::/web", Some("web")),
            ("0::/system.slice/runc-a-b.scope", Some("a-b")),
            ("0::/user.slice/crun-db.scope", Some("db")),
            ("0::/db/inner", Some("db")),
            ("0::/default/worker", Some("worker")),
            ("0::/other/worker", None),
            ("0::/worker", None),
            ("0::/runc-a-b.scope", Some("a-b")),
            ("0::/elsewhere", None),
            ("0::/system.slice/web.service", None),
            ("0::/../..", None),
        ];
        for (cgroup, expected) in cases {
            assert_eq!(id_of(cgroup, &root.0).as_deref(), expected, "{cgroup}");
        }
    }

    #[test]
    fn docker_keeps_names_in_files() {
        let folder = format!("var/lib/docker/containers/{ID}");
        let root = Root::with("docker", &[&folder]);
        let file = root.0.join(folder).join("config.v2.json");
        for (text, expected) in [
            (r#"{"State":{"Pid":7},"ID":"x","Name":"/web"}"#, Some("web")),
            (r#"{"State":{"Pid":7}}"#, None),
            (r#"{"Name":"/we"#, None),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(name_by_docker(ID, &root.0).as_deref(), expected, "{text}");
        }
    }

    /// A process in an invented `/proc`.
    fn process(root: &Root, (pid, parent): (u32, u32), words: &str, cgroup: &str) {
        let folder = root.0.join("proc").join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let name = words.split('\0').next().unwrap();
        let rest = " 0".repeat(48);
        fs::write(folder.join("stat"), format!("{pid} ({name}) S {parent}{rest}\n")).unwrap();
        fs::write(folder.join("cmdline"), words).unwrap();
        fs::write(folder.join("cgroup"), cgroup).unwrap();
    }

    #[test]
    fn conmon_knows_the_name_and_nobody_inside_is_asked() {
        let root = Root::with("conmon", &["proc"]);
        let inside = format!("0::/libpod_parent/libpod-{ID}\n");
        let conmon = |name: &str| format!("conmon\0--api-version\x001\0-c\0{ID}\0-n\0{name}\0");
        process(&root, (5, 1), &conmon("web"), "0::/libpod_parent/conmon\n");
        process(&root, (6, 5), "sh\0", &inside);
        process(&root, (7, 6), &conmon("forged"), &inside);
        process(&root, (8, 7), "server\0", &inside);
        let proc = Proc::at(root.0.join("proc"));
        let container = proc.container(8).unwrap();
        assert_eq!(container.name(&proc, 8).as_deref(), Some("web"));
        let other = conmon("web").replace(ID, &ID.replace('0', "f"));
        process(&root, (5, 1), &other, "0::/\n");
        assert_eq!(container.name(&proc, 8), None);
        // A process that is its own ancestor, as reused PIDs may make it look.
        process(&root, (5, 8), "sh\0", "0::/\n");
        assert_eq!(container.name(&proc, 8), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_path_is_too_strange(cgroup in "\\PC{0,80}") {
            let _ = Container::of(&cgroup, Path::new("/nowhere"));
        }
    }
}
