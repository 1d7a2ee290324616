//! The pages behind the codes: `lastbyte explain LB101`.

use crate::finding::{Class, Code};

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of what code.
    pub code: Code,
    /// What findings of it are about.
    pub class: Class,
    /// In a few words.
    pub title: &'static str,
    /// What happens, how to see it by hand, how to mend it, where it is written. Markdown.
    pub text: &'static str,
}

/// All pages, by code.
#[must_use]
pub fn pages() -> &'static [Page] {
    PAGES
}

/// The page of a code.
#[must_use]
pub fn explain(code: Code) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.code == code)
}

const PAGES: &[Page] = &[];
