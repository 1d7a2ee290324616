//! The page of an experiment: what it says, what it must never contain, and how browsers take it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lastbyte_lab::Findings;
use lastbyte_lab::page::page;
use lastbyte_lab::record::Experiment;

use crate::support::experiment::{Made, advice, experiment};

fn shown(experiment: &Experiment) -> String {
    page(experiment, &Findings::of(experiment), &advice())
}

/// Nothing that runs or loads, no figure that is none, every element that was opened is closed.
fn is_sound(page: &str) {
    let small = page.to_lowercase();
    for never in [
        "<script",
        "javascript:",
        "http:",
        "https:",
        "src=",
        "@import",
        "<link",
        "<iframe",
        "nan",
        "inf ",
    ] {
        assert!(!without_data(&small).contains(never), "{never}");
    }
    for url in small.split("url(").skip(1) {
        assert!(url.starts_with("#on-"), "{}", &url[..40]);
    }
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name: String = tag.chars().take_while(|char| !char.is_whitespace()).collect();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None if ["!DOCTYPE", "meta"].contains(&name.as_str()) => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<String>::new());
    let hidden = |char: char| char != '\n' && char.is_control();
    assert!(!page.contains(hidden) && !page.contains(['\u{202e}', '\u{2066}', '\u{200b}']));
}

/// Words of ours that have these letters in them.
fn without_data(small: &str) -> String {
    small.replace("http-equiv", "")
}

#[test]
fn it_says_what_was_found() {
    let experiment = experiment(&Made::default());
    let page = shown(&experiment);
    is_sound(&page);
    for words in [
        "bbr carried 57.0 Mbit/s, 2.2 times cubic.",
        "2026-11-21 05:26 UTC",
        "Linux <bdi>6.18.0-test</bdi>",
        "of the limit",
        "congestion window",
        "queue of 1 BDP",
        "ip route change 10.0.0.0/8 congctl bbr",
        "a link was late",
        "no: the most rounds allowed were not enough",
        "lastbyte lab usa-malaysia --rounds 3",
        "write() returned",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let order = [
        "arrived",
        "figures",
        "limited-by",
        "over-time",
        "fairness",
        "path",
        "certificate",
        "advice",
        "again",
        "reading",
    ];
    let places: Vec<usize> =
        order.iter().map(|id| page.find(&format!("id=\"{id}\"")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(page.matches("<details open>").count(), 2, "the best and the next best");
    assert_eq!(page.matches("<details").count(), experiment.about.subjects.len());
}

#[test]
fn foreign_text_is_shown_and_does_nothing() {
    let hostile =
        "<script>alert(1)</script>\"'&\u{202e}evil\u{1b}[31m\u{0}</title></style><svg onload=x>";
    let mut experiment = experiment(&Made::default());
    let about = &mut experiment.about;
    about.path.name = hostile.to_owned();
    about.path.description = hostile.to_owned();
    about.kernel = hostile.to_owned();
    about.version = hostile.to_owned();
    about.command = vec!["lastbyte".to_owned(), hostile.to_owned(), "a\nb".to_owned()];
    about.subjects[0] = serde_json::from_value(serde_json::json!({
        "command": { "near": hostile, "far": hostile }
    }))
    .unwrap();
    experiment.void[0].why = hostile.to_owned();
    experiment.ended.interrupted = Some(hostile.to_owned());
    for run in &mut experiment.runs {
        for flow in &mut run.flows {
            flow.sent.as_mut().unwrap().failure = Some(hostile.to_owned());
        }
    }
    let mut advice = advice();
    advice.conclusion[0] = hostile.to_owned();
    advice.warnings.push(hostile.to_owned());
    advice.methods.push((hostile.to_owned(), vec![hostile.to_owned(), "one\nline".to_owned()]));
    let page = page(&experiment, &Findings::of(&experiment), &advice);
    is_sound(&page);
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;⟨U+202E⟩evil⟨U+001B⟩[31m⟨U+0000⟩&lt;/title&gt;";
    assert!(page.matches(escaped).count() > 8, "{}", page.matches(escaped).count());
    assert!(page.contains("\\U0000202eevil"), "a command says its characters by number");
    assert!(page.contains("one⟨U+000A⟩line"));
    assert!(!page.contains("<svg onload"));
}

#[test]
fn an_experiment_without_runs_says_so() {
    let mut experiment = experiment(&Made::default());
    experiment.runs.clear();
    experiment.beside.clear();
    let page = page(&experiment, &Findings::of(&experiment), &Default::default());
    is_sound(&page);
    for words in ["No run counts: there is no answer.", "No run counts of:", "a link was late"] {
        assert!(page.contains(words), "{words}");
    }
    experiment.about.subjects.clear();
    experiment.void.clear();
    is_sound(&shown(&experiment));
}

#[test]
fn one_run_is_enough_for_a_page() {
    let mut experiment = experiment(&Made::default());
    experiment.runs.truncate(1);
    let page = page(&experiment, &Findings::of(&experiment), &Default::default());
    is_sound(&page);
    assert!(page.contains("of 1 run"));
}

#[test]
fn odd_figures_do_not_reach_the_page() {
    let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300];
    for odd in odd {
        let mut experiment = experiment(&Made::default());
        let path = &mut experiment.about.path;
        (path.up_limit_bits_per_s, path.up_loss_share) = (Some(odd), Some(odd));
        (experiment.beside[0].subject_bits_per_s, experiment.beside[0].queue_bdp) =
            (odd, Some(odd));
        for run in &mut experiment.runs {
            run.link.as_mut().unwrap().late_max_ms = odd;
            for flow in &mut run.flows {
                let sent = flow.sent.as_mut().unwrap();
                (sent.limited.unknown, sent.limited.pacing) = (odd, odd);
            }
        }
        is_sound(&shown(&experiment));
    }
}

#[test]
fn zero_and_huge_counts_break_nothing() {
    for number in [0, 1, u64::MAX >> 8] {
        let mut experiment = experiment(&Made::default());
        experiment.about.began_unix_s = number;
        for run in &mut experiment.runs {
            for flow in &mut run.flows {
                let received = flow.received.as_mut().unwrap();
                received.bytes = number;
                received.tenths.fill(number);
                let sent = flow.sent.as_mut().unwrap();
                sent.written = number;
                for sample in &mut sent.samples {
                    (sample.cwnd_bytes, sample.unacked_bytes) = (number, number);
                    sample.rtt_us = u32::try_from(number & 0xffff_ffff).unwrap();
                }
            }
        }
        is_sound(&shown(&experiment));
    }
}

#[test]
fn a_subject_that_is_not_in_the_plan_is_named_by_its_number() {
    let mut experiment = experiment(&Made::default());
    experiment.void[0].subject = 77;
    experiment.beside[0].subject = 78;
    assert!(shown(&experiment).contains("subject 77"));
}

#[test]
fn a_large_experiment_makes_a_page_of_two_megabytes_at_most() {
    for (subjects, rounds, samples) in [(9, 10, 600), (2, 3, 6000), (30, 20, 40)] {
        let page = shown(&experiment(&Made { subjects, rounds, samples }));
        eprintln!("{subjects} x {rounds} x {samples}: {} bytes", page.len());
        let most = if subjects > 9 { 6_000_000 } else { 2_000_000 };
        assert!(page.len() < most, "{}", page.len());
    }
}

/// In each width the page is no wider than the window, the parser of the browser finds the elements
/// that are written and no others, the colours follow the scheme, and nothing is complained of.
#[test]
#[ignore = "starts a browser: make test-real"]
fn a_browser_shows_it_whole_and_has_no_complaint() {
    let Some(browser) = Browser::find() else {
        return lastbyte_testing::not_tested!("there is no chromium here");
    };
    let many = experiment(&Made { subjects: 12, rounds: 10, samples: 300 });
    let mut odd = experiment(&Made::default());
    odd.about.subjects[0] = serde_json::from_value(serde_json::json!({
        "command": { "near": format!("{}\u{202e}<b>", "x".repeat(300)) }
    }))
    .unwrap();
    odd.about.path.name = "y".repeat(300);
    odd.about.command = vec!["z".repeat(500)];
    odd.runs.iter_mut().for_each(|run| run.flows.clear());
    let mut none = experiment(&Made::default());
    none.runs.clear();
    for experiment in [experiment(&Made::default()), many, odd, none] {
        let page = shown(&experiment);
        let elements = page.matches('<').count() - page.matches("</").count() - 1;
        let pages = WIDTHS.map(|width| frame(&page, width)).concat();
        let harness = format!("<!DOCTYPE html><title>-</title>{pages}{MEASURE}");
        for (scheme, ground) in [("0", "rgb(20, 23, 26)"), ("1", "rgb(255, 255, 255)")] {
            let colours = format!("--blink-settings=preferredColorScheme={scheme}");
            let (dom, talk) = browser.run(&[&colours, "--dump-dom"], &harness);
            let complaints: Vec<&str> =
                talk.lines().filter(|line| line.contains("CONSOLE")).collect();
            assert_eq!(complaints, Vec::<&str>::new());
            let measured: Vec<&str> =
                dom.lines().filter_map(|line| line.strip_prefix("measured ")).collect();
            let expected =
                WIDTHS.map(|width| format!("{width} px and 0 more, {elements} elements, {ground}"));
            assert_eq!(measured, expected);
        }
    }
}

#[test]
#[ignore = "starts a browser: make test-real"]
fn a_browser_prints_it() {
    let Some(browser) = Browser::find() else {
        return lastbyte_testing::not_tested!("there is no chromium here");
    };
    let pdf = browser.directory.join("page.pdf");
    let print = format!("--print-to-pdf={}", pdf.display());
    browser.run(&[&print], &shown(&experiment(&Made::default())));
    let printed = std::fs::read(&pdf).unwrap();
    assert!(printed.starts_with(b"%PDF") && printed.len() > 20_000, "{}", printed.len());
}

const WIDTHS: [u32; 4] = [320, 360, 390, 1280];

/// A window of this width: a browser without a screen makes none under 500 pixels.
fn frame(page: &str, width: u32) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!("<iframe style='width:{width}px;height:900px;border:0' srcdoc=\"{page}\"></iframe>")
}

/// Says what each frame is like.
const MEASURE: &str = r#"<pre id="measured"></pre><script>
addEventListener("load", () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const ground = getComputedStyle(page.body).backgroundColor;
    document.getElementById("measured").textContent +=
      `\nmeasured ${frame.clientWidth} px and ${root.scrollWidth - root.clientWidth} more, ` +
      `${page.querySelectorAll("*").length} elements, ${ground}\n`;
  }
});
</script>"#;

/// A browser without a screen, with a directory of its own that goes with it.
struct Browser {
    program: &'static str,
    directory: PathBuf,
}

impl Browser {
    fn find() -> Option<Self> {
        let is_here = |program: &&str| {
            Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success())
        };
        let program =
            ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_here)?;
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "lastbyte-page-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        Some(Self { program, directory })
    }

    /// What it prints of a page, and its talk.
    fn run(&self, how: &[&str], page: &str) -> (String, String) {
        let file = self.directory.join("page.html");
        std::fs::write(&file, page).unwrap();
        let output = Command::new("timeout")
            .args(["--kill-after=5", "120", self.program, "--headless", "--no-sandbox"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"])
            .arg("--virtual-time-budget=20000")
            .arg(format!("--user-data-dir={}", self.directory.join("profile").display()))
            .args(how)
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {talk}", output.status);
        (String::from_utf8(output.stdout).unwrap(), talk)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers may still write there; what stays is in the directory for such things.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
