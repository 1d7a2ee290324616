//! Runs the engines in turn, in a network namespace of its own, and prints medians.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::ends::Question;
use crate::spec;
use crate::sys::{self, Counters};

type Outcome<T> = Result<T, Box<dyn Error>>;

pub fn run(parts: &[&str]) -> Outcome<()> {
    let parts =
        if parts.is_empty() { &["bulk", "small", "break-even", "veth", "tune"] } else { parts };
    let mut bench = Bench::new(World::loopback()?)?;
    println!("{WORDS}\n{}", about()?);
    for part in parts {
        println!("\n## {part}");
        match *part {
            "bulk" => {
                bench.bulk(&engines(BULK), 1)?;
                bench.bulk(&engines(BULK), 8)?;
            }
            "tune" => {
                bench.bulk(&engines(TUNE), 1)?;
                bench.bulk(&engines(TUNE), 8)?;
            }
            "small" => {
                bench.small(&engines(SMALL), 1)?;
                bench.small(&engines(SMALL), 32)?;
            }
            "break-even" => bench.break_even()?,
            "veth" => {
                let loopback = std::mem::replace(&mut bench.world, World::veth()?);
                bench.bulk(&engines(VETH), 1)?;
                bench.bulk(&engines(VETH), 8)?;
                bench.world = loopback;
            }
            _ => return Err(format!("no part {part}").into()),
        }
    }
    Ok(())
}

const WORDS: &str = "\
# Ways to move bytes from one TCP socket to another
A sender, a relay and a receiver, a process each; cubic. Each engine has its turn in each round;
median (least..most) of the rounds. CPU is the relay's, all its threads; \"all\" is that of the three
processes. \"of haproxy\" is the median of what each round came to beside HAProxy (splice-auto, one
thread) in the same round: other work on the machine comes and goes. calls/MB: system calls, for
io_uring entries too; none counted where the relay is not ours. KB/read: bytes of a read that found
something. csw: context switches.";

const BULK: &str = "direct haproxy haproxy:nosplice haproxy:pipe=1m haproxy:pipe=1m,threads=2 \
    copy:buf=16k copy:buf=64k copy:buf=256k splice:pipe=64k splice:pipe=256k splice:pipe=1m \
    hybrid:buf=32k,pipe=1m,after=16k uring-copy:buf=64k uring-copy:buf=256k uring-ring:buf=32k \
    uring-ring:buf=32k,bundle uring-zc:buf=256k uring-splice:pipe=1m";

const TUNE: &str = "haproxy splice:pipe=1m splice:pipe=1m,fill splice:pipe=1m,len=64k \
    splice:pipe=1m,len=256k splice:pipe=256k,len=256k splice:pipe=512k splice:pipe=1m,lowat=512k \
    splice:pipe=1m,nap=50 splice:pipe=1m,rcvbuf=4m splice:pipe=1m,move splice:pipe=1m,quickack=0";

const VETH: &str = "haproxy copy:buf=64k copy:buf=256k splice:pipe=64k splice:pipe=256k \
    splice:pipe=1m hybrid:buf=32k,pipe=1m,after=16k";

const SMALL: &str = "direct haproxy copy:buf=16k copy:buf=16k,short=0 copy:buf=64k splice:pipe=1m \
    hybrid:buf=32k,pipe=1m,after=16k uring-copy:buf=16k uring-copy:buf=16k,pollfirst \
    uring-ring:buf=16k";

const BREAK_EVEN: &str = "copy:buf=16k copy:buf=64k splice:pipe=256k,copyback \
    splice:pipe=1m,copyback hybrid:buf=32k,pipe=1m,after=16k";

fn engines(usual: &str) -> Vec<String> {
    let chosen = std::env::var("ENGINES").unwrap_or_else(|_| usual.to_owned());
    chosen.split_whitespace().map(str::to_owned).collect()
}

fn about() -> Outcome<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let processors = thread::available_parallelism()?;
    Ok(format!("Linux {}, {processors} processors, load {}", kernel.trim(), load.trim()))
}

/// Where the processes run, and the addresses between them.
struct World {
    /// Network namespaces of the sender and of the receiver; None is the bench's own.
    near: Option<File>,
    far: Option<File>,
    /// Where the relay listens, and where the receiver does.
    entry: Ipv4Addr,
    target: Ipv4Addr,
}

impl World {
    /// A namespace where nobody else listens, and where routes ask for cubic, also for HAProxy,
    /// which cannot be told.
    fn loopback() -> Outcome<Self> {
        // SAFETY: no memory is passed.
        sys::checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        ip("link set lo up")?;
        for network in ["127.0.0.0/8", "127.0.0.1"] {
            ip(&format!(
                "route change table local local {network} dev lo scope host src 127.0.0.1 \
                 congctl cubic"
            ))?;
        }
        let (entry, target) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        Ok(Self { near: None, far: None, entry, target })
    }

    /// Two more namespaces, each joined to the relay's by a pair of veth.
    fn veth() -> Outcome<Self> {
        let (near, far) = (other_network(1)?, other_network(2)?);
        let (entry, target) = (Ipv4Addr::new(10, 9, 1, 2), Ipv4Addr::new(10, 9, 2, 1));
        Ok(Self { near: Some(near), far: Some(far), entry, target })
    }
}

/// A namespace that lasts as long as the file is open: 10.9.`net`.1, here 10.9.`net`.2.
fn other_network(net: u8) -> Outcome<File> {
    let mut holder = Part::ours(&["hold"], None)?;
    holder.line()?;
    let process = holder.child.id();
    let file = File::open(format!("/proc/{process}/ns/net"))?;
    let inside = |arguments: &str| -> Outcome<()> {
        succeed(
            Command::new("nsenter")
                .arg(format!("--net=/proc/{process}/ns/net"))
                .args(arguments.split(' ')),
        )
    };
    ip(&format!("link add here{net} type veth peer name there netns {process}"))?;
    ip(&format!("address add 10.9.{net}.2/24 dev here{net}"))?;
    ip(&format!("link set here{net} up"))?;
    inside(&format!("ip address add 10.9.{net}.1/24 dev there"))?;
    inside("ip link set there up")?;
    let cubic = |device: &str, host: u8| {
        format!(
            "ip route change 10.9.{net}.0/24 dev {device} scope link src 10.9.{net}.{host} congctl cubic"
        )
    };
    inside(&cubic("there", 1))?;
    ip(cubic(&format!("here{net}"), 2).trim_start_matches("ip "))?;
    Ok(file)
}

fn ip(arguments: &str) -> Outcome<()> {
    succeed(Command::new("ip").args(arguments.split(' ')))
}

fn succeed(command: &mut Command) -> Outcome<()> {
    if command.status()?.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}

struct Bench {
    rounds: usize,
    bytes: usize,
    counters: &'static Counters,
    memory: i32,
    world: World,
}

/// What one run of bulk came to, in units of a gigabyte (10^9) where CPU is meant.
#[derive(Clone, Default)]
struct Bulk {
    gbits: f64,
    cpu: f64,
    user: f64,
    system: f64,
    calls: f64,
    chunk: f64,
    switches: f64,
    /// CPU of sender, relay and receiver together.
    all: f64,
}

impl Bench {
    fn new(world: World) -> Outcome<Self> {
        let number = |name: &str, usual: &str| {
            spec::bytes(&std::env::var(name).unwrap_or_else(|_| usual.to_owned()))
        };
        let memory = sys::shared_memory()?;
        Ok(Self {
            rounds: number("ROUNDS", "5")?,
            bytes: number("GIGABYTES", "1")? * 1_000_000_000,
            counters: Counters::mapped(memory)?,
            memory,
            world,
        })
    }

    fn bulk(&mut self, engines: &[String], flows: usize) -> Outcome<()> {
        let mut results = vec![Vec::new(); engines.len()];
        for _ in 0..self.rounds {
            for (engine, results) in engines.iter().zip(&mut results) {
                results.push(self.bulk_once(engine, flows)?);
            }
        }
        println!(
            "\n{flows} flows, {} rounds of {:.1} GB; {}",
            self.rounds,
            self.bytes as f64 / 1e9,
            about()?
        );
        println!(
            "{:<34} {:<22} {:<22} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8}",
            "engine",
            "Gbit/s",
            "CPU s/GB",
            "user",
            "system",
            "all s/GB",
            "calls/MB",
            "KB/read",
            "csw/GB"
        );
        let haproxy = engines.iter().position(|engine| engine == "haproxy");
        let results_of_haproxy = results[haproxy.unwrap_or(0)].clone();
        for (engine, results) in engines.iter().zip(&results) {
            let of = |pick: fn(&Bulk) -> f64| spread(results.iter().map(pick).collect());
            // Of the same round, because other work on the machine comes and goes.
            let beside = |pick: fn(&Bulk) -> f64| {
                let pairs = results.iter().zip(&results_of_haproxy);
                spread(pairs.map(|(one, other)| pick(one) / pick(other)).collect()).1
            };
            println!(
                "{:<34} {:<22} {:>10.2} {:<22} {:>10.2} {:>6.3} {:>6.3} {:>8.3} {:>8.1} {:>8.0} {:>8.0}",
                engine,
                shown(of(|one| one.gbits), 1),
                beside(|one| one.gbits),
                shown(of(|one| one.cpu), 3),
                beside(|one| one.cpu),
                of(|one| one.user).1,
                of(|one| one.system).1,
                of(|one| one.all).1,
                of(|one| one.calls).1,
                of(|one| one.chunk).1,
                of(|one| one.switches).1,
            );
        }
        Ok(())
    }

    fn bulk_once(&mut self, engine: &str, flows: usize) -> Outcome<Bulk> {
        let flows_text = flows.to_string();
        let all = seconds_of_ended_children()?;
        let mut receiver = Part::ours(&["receive", &flows_text], self.world.far.as_ref())?;
        let target = (self.world.target, receiver.number()?).into();
        let mut relay = self.relay(engine, target)?;
        let before = relay.as_ref().map(|relay| Usage::of(relay.child.id())).transpose()?;
        let counted = self.counters.values();
        let entry = relay.as_ref().map_or(target, |relay| relay.entry);
        let words = ["send", &entry.to_string(), &flows_text, &self.bytes.to_string()];
        let mut sender = Part::ours(&words, self.world.near.as_ref())?;
        let line = receiver.line()?;
        let used = match (&relay, before) {
            (Some(relay), Some(before)) => Usage::of(relay.child.id())?.since(&before),
            _ => Usage::default(),
        };
        let now = self.counters.values();
        let [reads, writes, waits, others, idle, ..]: [f64; 7] =
            std::array::from_fn(|index| (now[index] - counted[index]) as f64);
        let (bytes, nanos) = line.trim().split_once(' ').ok_or("two numbers")?;
        let (bytes, nanos): (f64, f64) = (bytes.parse()?, nanos.parse()?);
        if bytes != (self.bytes / flows * flows) as f64 {
            return Err(format!("{engine}: {bytes} bytes of {}", self.bytes).into());
        }
        sender.finish()?;
        receiver.finish()?;
        if let Some(relay) = &mut relay {
            relay.stop()?;
        }
        let gigabytes = bytes / 1e9;
        let all = seconds_of_ended_children()? - all;
        Ok(Bulk {
            gbits: bytes * 8.0 / nanos,
            cpu: used.cpu / gigabytes,
            user: used.cpu * used.user / (used.user + used.system).max(1e-9) / gigabytes,
            system: used.cpu * used.system / (used.user + used.system).max(1e-9) / gigabytes,
            calls: (reads + writes + waits + others) / (bytes / 1e6),
            chunk: if reads > idle { bytes / 1e3 / (reads - idle) } else { 0.0 },
            switches: used.switches / gigabytes,
            all: all / gigabytes,
        })
    }

    fn small(&mut self, engines: &[String], flows: usize) -> Outcome<()> {
        let question = Question { flows, size: 64, answer: 64, rounds: 10_000 / flows };
        // Short rounds, and many: what else runs here is of the same length.
        let rounds = 3 * self.rounds;
        let mut results = vec![Vec::new(); engines.len()];
        for _ in 0..rounds {
            for (engine, results) in engines.iter().zip(&mut results) {
                results.push(self.ask_once(engine, question)?);
            }
        }
        let about = about()?;
        println!(
            "\n64 bytes there and back, {flows} connections, {rounds} rounds of 10,000; {about}"
        );
        println!(
            "{:<34} {:<24} {:>10} {:<26} {:<22} {:>10}",
            "engine", "p50 us", "of haproxy", "p99 us", "CPU us/round trip", "of haproxy"
        );
        let haproxy = engines.iter().position(|engine| engine == "haproxy").unwrap_or(0);
        for (engine, mine) in engines.iter().zip(&results) {
            let of = |index: usize| spread(mine.iter().map(|one| one[index]).collect());
            let beside = |index: usize| {
                let pairs = mine.iter().zip(&results[haproxy]);
                spread(pairs.map(|(one, other)| one[index] / other[index]).collect()).1
            };
            println!(
                "{engine:<34} {:<24} {:>10.2} {:<26} {:<22} {:>10.2}",
                shown(of(0), 1),
                beside(0),
                shown(of(1), 1),
                shown(of(2), 2),
                beside(2),
            );
        }
        Ok(())
    }

    /// The cost of one message of so many bytes, answered with one byte that is copied back.
    fn break_even(&mut self) -> Outcome<()> {
        let sizes = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512].map(|size| size << 10);
        let engines = engines(BREAK_EVEN);
        let mut text = format!(
            "\nrelay's CPU us for one message and a byte back; median (min..max) of {}; {}\n{:<34}",
            self.rounds,
            about()?,
            "engine"
        );
        for size in sizes {
            write!(text, " {:>20}", format!("{} KiB", size >> 10))?;
        }
        println!("{text}");
        let mut results = vec![vec![Vec::new(); sizes.len()]; engines.len()];
        for _ in 0..self.rounds {
            for (index, size) in sizes.into_iter().enumerate() {
                for (engine, results) in engines.iter().zip(&mut results) {
                    let rounds = (50_000_000 / size).clamp(300, 5_000);
                    results[index].push(
                        self.ask_once(engine, Question { flows: 1, size, answer: 1, rounds })?[2],
                    );
                }
            }
        }
        for (engine, results) in engines.iter().zip(&results) {
            let mut text = format!("{engine:<34}");
            for values in results {
                write!(text, " {:>20}", shown(spread(values.clone()), 2))?;
            }
            println!("{text}");
        }
        Ok(())
    }

    /// p50 and p99 in microseconds, and the relay's CPU for a round trip.
    fn ask_once(&mut self, engine: &str, question: Question) -> Outcome<[f64; 3]> {
        let Question { flows, size, answer, rounds } = question;
        let (flows_text, size, answer) = (flows.to_string(), size.to_string(), answer.to_string());
        let mut answerer =
            Part::ours(&["answer", &flows_text, &size, &answer], self.world.far.as_ref())?;
        let target = (self.world.target, answerer.number()?).into();
        let mut relay = self.relay(engine, target)?;
        let before = relay.as_ref().map(|relay| Usage::of(relay.child.id())).transpose()?;
        let entry = relay.as_ref().map_or(target, |relay| relay.entry).to_string();
        let mut asker = Part::ours(
            &["ask", &entry, &flows_text, &size, &answer, &rounds.to_string()],
            self.world.near.as_ref(),
        )?;
        let line = asker.line()?;
        let used = match (&relay, before) {
            (Some(relay), Some(before)) => Usage::of(relay.child.id())?.since(&before),
            _ => Usage::default(),
        };
        let (half, most) = line.trim().split_once(' ').ok_or("two numbers")?;
        asker.finish()?;
        answerer.finish()?;
        if let Some(relay) = &mut relay {
            relay.stop()?;
        }
        let (half, most): (f64, f64) = (half.parse()?, most.parse()?);
        Ok([half / 1e3, most / 1e3, used.cpu * 1e6 / (rounds * flows) as f64])
    }

    /// None is the connection without a relay.
    fn relay(&self, engine: &str, target: SocketAddr) -> Outcome<Option<Part>> {
        if engine == "direct" {
            return Ok(None);
        }
        if let Some(options) = engine.strip_prefix("haproxy") {
            return haproxy(options.trim_start_matches(':'), self.world.entry, target).map(Some);
        }
        let mut part =
            Part::ours(&["relay", engine, &target.to_string(), &self.memory.to_string()], None)?;
        part.entry = (self.world.entry, part.number()?).into();
        Ok(Some(part))
    }
}

fn haproxy(options: &str, entry: Ipv4Addr, target: SocketAddr) -> Outcome<Part> {
    let mut splice = "    option splice-auto\n";
    let mut globals = String::from("    nbthread 1\n");
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            None if option == "nosplice" => splice = "",
            Some(("pipe", size)) => writeln!(globals, "    tune.pipesize {}", spec::bytes(size)?)?,
            Some(("threads", count)) => {
                globals = globals.replace("nbthread 1", &format!("nbthread {count}"))
            }
            _ => return Err(format!("no option {option}").into()),
        }
    }
    let port = 20_000;
    let path = std::env::temp_dir().join(format!("engines-haproxy-{}.cfg", std::process::id()));
    fs::write(
        &path,
        format!(
            "global\n    maxconn 5000\n{globals}defaults\n    mode tcp\n{splice}    timeout connect 5s\n    \
             timeout client 1m\n    timeout server 1m\nlisten bench\n    bind {entry}:{port}\n    \
             server one {target}\n"
        ),
    )?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-q").arg("-f").arg(&path);
    let mut part = Part::start(command, None)?;
    part.entry = (entry, port).into();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !listens(port)? {
        if Instant::now() > deadline {
            return Err("haproxy does not listen".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(path)?;
    Ok(part)
}

/// Asks the kernel, not the port: a connection would reach the receiver.
fn listens(port: u16) -> io::Result<bool> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    Ok(table.contains(&wanted))
}

/// A process of the bench, which ends with it.
struct Part {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    entry: SocketAddr,
}

impl Part {
    fn ours(arguments: &[&str], network: Option<&File>) -> Outcome<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments);
        Self::start(command, network)
    }

    fn start(mut command: Command, network: Option<&File>) -> Outcome<Self> {
        let network = network.map(AsRawFd::as_raw_fd);
        // SAFETY: prctl and setns are safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                network.map_or(Ok(0), |fd| sys::checked(libc::setns(fd, libc::CLONE_NEWNET)))?;
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, output, entry: (Ipv4Addr::UNSPECIFIED, 0).into() })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    fn number(&mut self) -> Outcome<u16> {
        let line = self.line()?;
        line.trim().parse().map_err(|error| format!("{line}: {error}").into())
    }

    fn finish(&mut self) -> Outcome<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a process ended with {status}").into()) }
    }

    fn stop(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has used, with all its threads, those of io_uring too.
#[derive(Default)]
struct Usage {
    /// Seconds, by the scheduler's clock.
    cpu: f64,
    /// Ticks, which only divide `cpu`.
    user: f64,
    system: f64,
    /// Context switches, of both kinds.
    switches: f64,
}

impl Usage {
    fn of(process: u32) -> Outcome<Self> {
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let process_id = i32::try_from(process)?;
        // SAFETY: the kernel's library writes one clock.
        let error = unsafe { libc::clock_getcpuclockid(process_id, &raw mut clock) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error).into());
        }
        // SAFETY: the kernel writes one time.
        sys::checked(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit_once(')').ok_or("stat")?.1.split_whitespace().collect();
        let mut switches = 0.0;
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
            for line in status.lines().filter(|line| line.contains("ctxt_switches:")) {
                switches +=
                    line.rsplit_once(':').map_or("0", |(_, count)| count.trim()).parse::<f64>()?;
            }
        }
        Ok(Self {
            cpu: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            user: fields[11].parse()?,
            system: fields[12].parse()?,
            switches,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            user: self.user - before.user,
            system: self.system - before.system,
            switches: self.switches - before.switches,
        }
    }
}

/// CPU of the children that were waited for.
fn seconds_of_ended_children() -> Outcome<f64> {
    // SAFETY: integers of zero are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage.
    sys::checked(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) })?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// The least, the median, the most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

fn shown((least, median, most): (f64, f64, f64), digits: usize) -> String {
    format!("{median:.digits$} ({least:.digits$}..{most:.digits$})")
}
