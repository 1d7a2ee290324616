//! `lastbyte doctor`: watches, and says what it finds.

mod answer;
mod view;
mod words;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lastbyte_doctor::{
    Class, Doctor, Event, Finding, Observer, Plan, Reader, RecordingError, Scope, Summary, Tier,
    Traced, Writer,
};
use lastbyte_host::Proc;
use lastbyte_sandbox::{NOT_STARTED, StoppedProgram, become_program as become_stopped};
use lastbyte_sys::process;

use self::answer::Answer;
pub(crate) use self::answer::lines;
use self::view::View;
use self::words::{CallsWord, WINDOW, WINDOW_EVERY};
pub(crate) use self::words::{DoctorArgs, PatientArgs};
use crate::ends::Ends;
use crate::output::talk;
use crate::verdict::Verdict;

/// Watches what the words say.
pub(crate) fn run(args: &DoctorArgs) -> Result<Verdict> {
    if let Some(file) = &args.replay {
        return replay(args, file);
    }
    if !args.command.is_empty() {
        return watch_program(args);
    }
    if std::env::args_os().any(|word| word == "--") {
        bail!("there is no program after --");
    }
    watch(args)
}

/// Two looks at the sources are no farther apart.
const TURN: Duration = Duration::from_millis(100);
/// Ten times a second.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

// --- what runs already ---------------------------------------------------------------------------

fn watch(args: &DoctorArgs) -> Result<Verdict> {
    let scope = match (args.pid, args.port) {
        (Some(pid), _) => Scope::Process(existing(pid)?),
        (None, Some(port)) => Scope::Port(port),
        (None, None) => Scope::Machine,
    };
    // Before there is a second thread.
    let ends = Ends::new()?;
    let mut session = Session::begin(args, scope)?;
    let mut view = View::new(args);
    let until = until(args);
    let signal = loop {
        let new = session.turn(TURN)?;
        session.answer.say_new(&new)?;
        view.show(&session.doctor, session.began.elapsed());
        if let Some(signal) = ends.wait(Some(Instant::now()))? {
            break Some(signal);
        }
        let is_over = args.pid.is_some_and(|pid| session.has_ended(pid));
        if is_over || until.is_some_and(|until| Instant::now() >= until) {
            break None;
        }
    };
    drop(view);
    let verdict = session.end()?;
    Ok(match signal {
        Some(signal) if verdict == Verdict::Done => {
            Verdict::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
        _ => verdict,
    })
}

/// When it is to end; never, if that is beyond what the clock counts.
fn until(args: &DoctorArgs) -> Option<Instant> {
    Instant::now().checked_add(args.duration?.as_duration())
}

fn existing(pid: u32) -> Result<u32> {
    if Proc::default().has(pid) {
        return Ok(pid);
    }
    bail!("there is no process {pid}")
}

// --- a program -----------------------------------------------------------------------------------

fn watch_program(args: &DoctorArgs) -> Result<Verdict> {
    let mut patient = StoppedProgram::start("doctor-patient", &args.command)?;
    // After the program was made, which has its signals as they were. Those of the terminal go to it as
    // well, being in the same group; what was found is said after its end.
    process::ignore_signal(process::SIGQUIT)?;
    let ends = Ends::new()?;
    let mut session = Session::begin(args, Scope::Process(patient.pid()))?;
    session.turn(Duration::ZERO)?;
    patient.begin()?;
    let code = while_it_runs(&mut session, &mut patient, &ends)?;
    session.follow(args.follow.as_duration(), &ends)?;
    let verdict = session.end()?;
    Ok(match (verdict, code) {
        (Verdict::Done, Some(code)) => Verdict::Of(code),
        _ => verdict,
    })
}

/// Is the process that becomes the program that is watched.
pub(crate) fn become_program(args: &PatientArgs) -> Verdict {
    let error = become_stopped(&args.command, args.parent);
    talk(&format!("lastbyte: {error}"));
    Verdict::Of(error.exit_code().unwrap_or(NOT_STARTED))
}

/// Watches until the program has ended, or the time is over, or somebody asks twice for the end. Returns
/// the program's exit code, if it has one.
fn while_it_runs(
    session: &mut Session<'_>,
    patient: &mut StoppedProgram,
    ends: &Ends,
) -> Result<Option<u8>> {
    let until = until(session.args);
    let mut was_asked = false;
    loop {
        session.turn(TURN)?;
        if let Some(code) = patient.ended()? {
            return Ok(Some(code));
        }
        match ends.wait(Some(Instant::now()))? {
            None | Some(process::SIGINT) => {}
            Some(_) if was_asked => return Ok(None),
            Some(signal) => {
                was_asked = true;
                patient.signal(signal)?;
            }
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
    }
}

// --- a recording -----------------------------------------------------------------------------------

fn replay(args: &DoctorArgs, file: &Path) -> Result<Verdict> {
    let name = file.display();
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let reader = Reader::begin(BufReader::new(opened)).with_context(|| format!("{name}"))?;
    let mut doctor = Doctor::new();
    let mut answer = Answer::open(args)?;
    let mut span: Option<(u64, u64)> = None;
    let mut is_cut = false;
    for event in reader {
        if let Err(cut @ RecordingError::Cut { .. }) = event {
            talk(&format!("doctor: {name}: {cut}; this is what came before"));
            is_cut = true;
            break;
        }
        let event = event.with_context(|| format!("{name}"))?;
        let first = span.map_or(event.at_ns, |span| span.0);
        span = Some((first, event.at_ns.max(first)));
        doctor.take(&event);
    }
    doctor.end();
    let watched = span.map_or(0, |(first, last)| last - first);
    let mut summary = Summary::of(&doctor, Duration::from_nanos(watched));
    summary.sees_each_loss &= !is_cut;
    let verdict = close(args, &mut answer, &doctor, &summary)?;
    if is_cut && args.fail_on.is_some() && verdict == Verdict::Done {
        talk(
            "doctor: the recording was cut off: whether there was what --fail-on names is not known",
        );
        return Ok(Verdict::Failed);
    }
    Ok(verdict)
}

// --- all of these ----------------------------------------------------------------------------------

/// An observer, a doctor, and where they write.
struct Session<'a> {
    args: &'a DoctorArgs,
    observer: Observer,
    doctor: Doctor,
    record: Option<Writer<BufWriter<File>>>,
    flushed: Instant,
    answer: Answer,
    /// What could not be seen, and how many of those sentences were said at the beginning.
    blind: (Vec<String>, usize),
    began: Instant,
}

impl<'a> Session<'a> {
    fn begin(args: &'a DoctorArgs, scope: Scope) -> Result<Self> {
        // Before anything is watched: a file that cannot be written is misuse.
        let answer = Answer::open(args)?;
        let record = args.record.as_deref().map(create).transpose()?;
        let record = record.map(|file| Writer::packed(BufWriter::new(file))).transpose()?;
        if let Some(report) = &args.report {
            create(report)?;
        }
        let (observer, shortfalls) = Observer::start(&plan(args, scope))?;
        // The kernel's description of its types has been read, and is not needed any more.
        process::give_memory_back();
        let (doctor, began) = (Doctor::new(), Instant::now());
        let blind = observer.blind();
        let said = blind.len();
        let blind = (blind, said);
        let flushed = began;
        let mut session = Self { args, observer, doctor, record, flushed, answer, blind, began };
        session.answer.say_begun(session.observer.tier(), scope, &shortfalls)?;
        session.answer.say_blind(&session.blind.0)?;
        Ok(session)
    }

    /// Takes what has come, waiting for at most so long; returns what is newly found.
    fn turn(&mut self, wait: Duration) -> Result<Vec<Finding>> {
        self.take(Some(wait))
    }

    /// Takes what comes in this time; `None`: what has come until now, with a last look.
    fn take(&mut self, wait: Option<Duration>) -> Result<Vec<Finding>> {
        /// From so many events on their memory is worth being given back.
        const MANY: u64 = 10_000;
        /// What a killed doctor leaves of a recording is no older than this.
        const FLUSH: Duration = Duration::from_secs(1);
        /// So many things that could not be seen are told at most.
        const MOST_BLIND: usize = 20;
        let Self { observer, doctor, record, flushed, .. } = self;
        let mut new = Vec::new();
        let mut taken = 0_u64;
        let mut failed = None;
        let mut each = |event: Event| {
            if let Some(Err(error)) = record.as_mut().map(|record| record.add(&event)) {
                failed = failed.take().or(Some(error));
            }
            new.extend(doctor.take(&event));
            taken += 1;
        };
        match wait {
            Some(wait) => observer.take(wait, &mut each)?,
            None => observer.take_last(&mut each)?,
        }
        let (blind, _) = &mut self.blind;
        for why in observer.blind() {
            if blind.len() < MOST_BLIND && !blind.contains(&why) {
                blind.push(why);
            }
        }
        if taken >= MANY {
            process::give_memory_back();
        }
        if let Some(record) = record
            && failed.is_none()
            && flushed.elapsed() >= FLUSH
        {
            *flushed = Instant::now();
            failed = record.flush().err();
        }
        if let Some(error) = failed {
            return Err(error).context("cannot write the recording");
        }
        Ok(new)
    }

    fn has_ended(&self, pid: u32) -> bool {
        self.doctor.facts().process(pid).is_some_and(|process| process.ending.is_some())
            || !Proc::default().has(pid)
    }

    /// After a program's end: what it left is followed until all is known, or the time is over, or
    /// somebody asks for the end.
    fn follow(&mut self, most: Duration, ends: &Ends) -> Result<()> {
        /// What answers the last packet comes within this, on most paths.
        const LEAST: Duration = Duration::from_millis(500);
        /// Counters, by which the tables tell one bad end from another, are looked at once a second.
        const LEAST_OF_TABLES: Duration = Duration::from_millis(1_300);
        let of_tables = self.observer.tier() == Tier::Procfs;
        let least = if of_tables { LEAST_OF_TABLES } else { LEAST };
        let began = Instant::now();
        while began.elapsed() < least.min(most)
            || (began.elapsed() < most && self.doctor.facts().has_orphans())
        {
            self.turn(TURN)?;
            if ends.wait(Some(Instant::now()))?.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<Verdict> {
        self.take(None)?;
        self.doctor.end();
        let (blind, said) = &self.blind;
        self.answer.say_blind(&blind[*said..])?;
        if let Some(record) = self.record.take() {
            record.finish().context("cannot write the recording")?;
        }
        let every = self.observer.intervals().tables;
        let mut summary = Summary {
            looks: Some(self.observer.looks()),
            looks_per_s: every.map(|every| 1.0 / every.as_secs_f64()),
            ..Summary::of(&self.doctor, self.began.elapsed())
        };
        summary.sees_each_loss &= self.observer.sees_each_loss();
        close(self.args, &mut self.answer, &self.doctor, &summary)
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn plan(args: &DoctorArgs, scope: Scope) -> Plan {
    let usual = match scope {
        Scope::Process(_) => CallsWord::Watched,
        Scope::Machine | Scope::Port(_) => CallsWord::Windows,
    };
    let traced = match args.calls.unwrap_or(usual) {
        CallsWord::Watched => Traced::Watched,
        CallsWord::Windows => Traced::Windows { length: WINDOW, every: WINDOW_EVERY },
        CallsWord::Never => Traced::Never,
    };
    Plan { scope, tier: args.tier.map(Into::into), traced, every: SAMPLE_EVERY }
}

/// Says all that was found, and writes the page.
fn close(
    args: &DoctorArgs,
    answer: &mut Answer,
    doctor: &Doctor,
    summary: &Summary,
) -> Result<Verdict> {
    let findings = doctor.findings();
    answer.say_all(&findings, summary)?;
    if let Some(report) = &args.report {
        let page = lastbyte_doctor::page(&findings, summary);
        std::fs::write(report, page)
            .with_context(|| format!("cannot write {}", report.display()))?;
    }
    if summary.dropped > 0 {
        talk(&format!(
            "doctor: {} events came faster than they could be taken: something may be missing",
            summary.dropped
        ));
    }
    let Some(fail_on) = args.fail_on else { return Ok(Verdict::Done) };
    let is_named = |finding: &Finding| !finding.harmless && fail_on.means(finding.class);
    // Nothing may have been lost by it, and one that was not seen may be another program's.
    let is_unknown = |finding: &Finding| finding.evidence.get("exact") == Some(&"not known".into());
    let is_proven = |finding: &&Finding| finding.bytes.is_some() || !is_unknown(finding);
    let named: Vec<&Finding> = findings.iter().filter(|finding| is_named(finding)).collect();
    Ok(if named.iter().any(is_proven) {
        Verdict::No
    } else if !named.is_empty() {
        talk(
            "doctor: whether bytes were lost is not known: connections were reset, and what was still in \
             them was not seen",
        );
        Verdict::Failed
    } else if summary.dropped > 0 {
        talk("doctor: whether there was what --fail-on names is not known");
        Verdict::Failed
    } else if fail_on.means(Class::Loss) && !summary.sees_each_loss {
        let missed = match summary.tier {
            Tier::Tracefs => "bytes in Unix sockets, and after a close, are not seen",
            Tier::Procfs | Tier::Bpf => "short connections are missed",
        };
        talk(&format!(
            "doctor: whether bytes were lost is not known: {missed} {}; root with eBPF (--tier bpf) sees \
             them",
            summary.tier.words()
        ));
        Verdict::Failed
    } else {
        Verdict::Done
    })
}
