//! How each congestion control shares with a flow of cubic.

use maud::{Markup, html};

use super::View;
use super::text::{count, number, percent};
use crate::findings::Row;
use crate::share::Share;

pub(super) fn section(view: &View<'_>) -> Markup {
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    let sound = |share: &Share| is_share(&share.share.min) && is_share(&share.share.max);
    let rows = view.subjects.iter().map(|subject| subject.row);
    let all = rows.flat_map(|row| row.shares.iter().map(move |share| (row, share)));
    let shares: Vec<(&Row, &Share)> = all.filter(|(_, share)| sound(share)).collect();
    if shares.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="fairness" {
            h2 id="fairness" { "Beside a flow of cubic" }
            p.note {
                "Two flows over the same path for the same time: each receiver's share of the bytes of both, the median "
                "over the rounds, and the minimum and maximum below it. The mark is the fair share: as much for each "
                "connection. A queue of 1 BDP is one bandwidth-delay product, what is in flight without a queue."
            }
            div.rows { @for (row, share) in shares { (bar(row, share)) } }
        }
    }
}

fn bar(row: &Row, of: &Share) -> Markup {
    let name = row.setting.to_string();
    let place = |share: f64| format!("{:.2}%", share * 100.0);
    let (share, queue) = (of.share, queue(of.queue_bdp));
    let streams = f64::from(row.own().map_or(1, |settings| settings.streams.max(1)));
    let fair = place(streams / (streams + 1.0));
    html! {
        div.row {
            div.name { bdi { (name) } " " small { (queue) } }
            div.plotted {
                svg.stack width="100%" height="44" role="img" {
                    title {
                        (name) " with a " (queue) ": " (percent(share.median)) " for it, "
                        (percent(1.0 - share.median)) " for cubic"
                    }
                    rect.bar x="0" y="6" width=(place(share.median)) height="18" {}
                    rect.application x=(place(share.median)) y="6" width=(place(1.0 - share.median)) height="18" {}
                    rect fill="url(#on-application)" x=(place(share.median)) y="6" width=(place(1.0 - share.median)) height="18" {}
                    line.range x1=(place(share.min)) x2=(place(share.max)) y1="30" y2="30" {}
                    @for end in [share.min, share.max] { circle.dot cx=(place(end)) cy="30" r="2.5" {} }
                    line.limit x1=(fair) x2=(fair) y1="0" y2="40" {}
                }
            }
            div.value {
                b { (percent(share.median)) }
                span { (percent(1.0 - share.median)) " for cubic" }
                span { (count(share.n, "round")) }
            }
        }
    }
}

fn queue(bdp: Option<f64>) -> String {
    match bdp {
        Some(bdp) if bdp.fract() == 0.0 && bdp.abs() < 1e6 => format!("queue of {bdp:.0} BDP"),
        Some(bdp) => format!("queue of {} BDP", number(bdp)),
        None => "the path's own queue".to_owned(),
    }
}
