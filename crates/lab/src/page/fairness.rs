//! What each congestion control leaves to a flow of cubic beside it.

use maud::{Markup, html};

use super::View;
use super::text::{count, number, percent};
use crate::fairness::Share;
use crate::findings::Row;

pub(super) fn section(view: &View<'_>) -> Markup {
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    let mut shares: Vec<(&Row, &Share)> = view.shares.clone();
    shares.retain(|(_, share)| is_share(&share.share.min) && is_share(&share.share.max));
    if shares.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="fairness" {
            h2 id="fairness" { "Beside a flow of cubic" }
            p.note {
                "Two flows over the same path for the same time: what each receiver got of what both got. The mark "
                "is at one half. A queue of 1 is one bandwidth-delay product, what the path holds without a queue."
            }
            div.rows { @for (row, share) in shares { (bar(row, share)) } }
        }
    }
}

fn bar(row: &Row, of: &Share) -> Markup {
    let name = row.setting.to_string();
    let place = |share: f64| format!("{:.2}%", share * 100.0);
    let (share, queue) = (of.share, queue(of.queue_bdp));
    html! {
        div.row {
            div.name { bdi { (name) } " " small { (queue) } }
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
