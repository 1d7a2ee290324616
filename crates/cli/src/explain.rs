//! `lastbyte explain`: the page behind a code.

use anyhow::{Result, bail};
use clap::Args;
use lastbyte_doctor::{Code, explain, pages};

use crate::output::{Align, Table, say};
use crate::verdict::Verdict;

/// Explain what a code of `lastbyte doctor` means: what happens, how to see it by hand, how to fix it.
///
/// Without a code: the list.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Such as LB101
    pub(crate) code: Option<Code>,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<Verdict> {
    match args.code {
        None => {
            let mut table =
                Table::new(&[("code", Align::Left), ("about", Align::Left), ("what", Align::Left)]);
            for page in pages() {
                table.row(vec![
                    page.code.to_string(),
                    page.class.to_string(),
                    page.title.to_owned(),
                ]);
            }
            table.say();
        }
        Some(code) => {
            let Some(page) = explain(code) else {
                bail!("no finding is called {code}; `lastbyte explain` lists them all");
            };
            say(&format!("{code} ({}): {}\n", page.class, page.title));
            page.text.lines().for_each(say);
        }
    }
    Ok(Verdict::Done)
}
