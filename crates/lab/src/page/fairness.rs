//! What each congestion control leaves to a flow of cubic beside it.

use lastbyte_stats::Summary;
use maud::{Markup, html};

use super::View;
use super::text::{count, number, percent};
use crate::record::Beside;

pub(super) fn section(view: &View<'_>) -> Markup {
    let groups = groups(&view.experiment.beside);
    if groups.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="fairness" {
            h2 id="fairness" { "Beside a flow of cubic" }
            p.note {
                "Two flows over the same path for the same time: what each receiver got of what both got. The mark "
                "is at one half. A queue of 1 is one bandwidth-delay product, what the path holds without a queue."
            }
            div.rows { @for group in &groups { (row(view, group)) } }
        }
    }
}

/// Runs of one subject beside cubic with one queue.
struct Group {
    subject: usize,
    queue_bdp: Option<f64>,
    /// What the subject got of both, 0 to 1; over the rounds.
    share: Summary,
}

fn groups(beside: &[Beside]) -> Vec<Group> {
    let mut kinds: Vec<(usize, Option<f64>)> =
        beside.iter().map(|one| (one.subject, one.queue_bdp)).collect();
    let key = |queue: Option<f64>| queue.unwrap_or(f64::NEG_INFINITY);
    kinds.sort_by(|a, b| a.0.cmp(&b.0).then(key(a.1).total_cmp(&key(b.1))));
    kinds.dedup();
    let group = |(subject, queue_bdp): (usize, Option<f64>)| {
        let of_kind =
            beside.iter().filter(|one| (one.subject, one.queue_bdp) == (subject, queue_bdp));
        let share =
            |one: &Beside| one.subject_bits_per_s / (one.subject_bits_per_s + one.cubic_bits_per_s);
        let shares: Vec<f64> =
            of_kind.map(share).filter(|share| (0.0..=1.0).contains(share)).collect();
        Some(Group { subject, queue_bdp, share: Summary::of(&shares)? })
    };
    kinds.into_iter().filter_map(group).collect()
}

fn row(view: &View<'_>, group: &Group) -> Markup {
    let name = view.name_of(group.subject);
    let place = |share: f64| format!("{:.2}%", share * 100.0);
    let (share, queue) = (group.share, queue(group.queue_bdp));
    html! {
        div.row {
            div.name { bdi { (name) } small { (queue) } }
            div.plotted {
                svg.stack width="100%" height="36" role="img" {
                    title {
                        (name) " with a " (queue) ": " (percent(share.median)) " for it, "
                        (percent(1.0 - share.median)) " for cubic"
                    }
                    rect.bar x="0" y="6" width=(place(share.median)) height="18" {}
                    rect.application x=(place(share.median)) y="6" width=(place(1.0 - share.median)) height="18" {}
                    rect fill="url(#on-application)" x=(place(share.median)) y="6" width=(place(1.0 - share.median)) height="18" {}
                    line.range x1=(place(share.min)) x2=(place(share.max)) y1="30" y2="30" {}
                    @for end in [share.min, share.max] { circle.dot cx=(place(end)) cy="30" r="2.5" {} }
                    line.limit x1="50%" x2="50%" y1="0" y2="36" {}
                }
            }
            div.value {
                b { (percent(share.median)) } " : " (percent(1.0 - share.median))
                span { "it : cubic, " (count(share.n, "round")) }
            }
        }
    }
}

fn queue(bdp: Option<f64>) -> String {
    match bdp {
        Some(bdp) => format!("queue of {} BDP", number(bdp)),
        None => "queue as it is".to_owned(),
    }
}
