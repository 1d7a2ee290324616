//! The pages behind the codes: `lastbyte explain LB101`.

use crate::finding::{Class, Code};

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its code.
    pub code: Code,
    /// The class of its findings.
    pub class: Class,
    /// Its title.
    pub title: &'static str,
    /// What happens, how to see it by hand, how to fix it, and the sources. Markdown, without the
    /// title.
    pub text: &'static str,
}

/// All pages, by code.
#[must_use]
pub fn pages() -> &'static [Page] {
    PAGES
}

/// The page for a code.
#[must_use]
pub fn explain(code: Code) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.code == code)
}

const PAGES: &[Page] = &[
    page(101, Class::Loss, include_str!("../pages/LB101.md")),
    page(102, Class::Loss, include_str!("../pages/LB102.md")),
    page(103, Class::Loss, include_str!("../pages/LB103.md")),
    page(104, Class::Loss, include_str!("../pages/LB104.md")),
    page(105, Class::Loss, include_str!("../pages/LB105.md")),
    page(106, Class::Loss, include_str!("../pages/LB106.md")),
    page(107, Class::Loss, include_str!("../pages/LB107.md")),
    page(108, Class::Loss, include_str!("../pages/LB108.md")),
    page(109, Class::Loss, include_str!("../pages/LB109.md")),
    page(110, Class::Loss, include_str!("../pages/LB110.md")),
    page(201, Class::Slow, include_str!("../pages/LB201.md")),
    page(202, Class::Slow, include_str!("../pages/LB202.md")),
    page(203, Class::Slow, include_str!("../pages/LB203.md")),
    page(204, Class::Slow, include_str!("../pages/LB204.md")),
    page(205, Class::Slow, include_str!("../pages/LB205.md")),
    page(206, Class::Slow, include_str!("../pages/LB206.md")),
    page(207, Class::Slow, include_str!("../pages/LB207.md")),
    page(208, Class::Slow, include_str!("../pages/LB208.md")),
    page(209, Class::Slow, include_str!("../pages/LB209.md")),
    page(301, Class::Cpu, include_str!("../pages/LB301.md")),
    page(302, Class::Cpu, include_str!("../pages/LB302.md")),
    page(303, Class::Cpu, include_str!("../pages/LB303.md")),
    page(304, Class::Cpu, include_str!("../pages/LB304.md")),
    page(305, Class::Cpu, include_str!("../pages/LB305.md")),
    page(306, Class::Cpu, include_str!("../pages/LB306.md")),
    page(401, Class::Connect, include_str!("../pages/LB401.md")),
    page(402, Class::Connect, include_str!("../pages/LB402.md")),
    page(403, Class::Connect, include_str!("../pages/LB403.md")),
    page(404, Class::Connect, include_str!("../pages/LB404.md")),
    page(405, Class::Connect, include_str!("../pages/LB405.md")),
];

/// A page, whose title is its first line without the `# `.
const fn page(code: u16, class: Class, text: &'static str) -> Page {
    let bytes = text.as_bytes();
    assert!(bytes[0] == b'#' && bytes[1] == b' ', "a page begins with `# ` and its title");
    let mut end = 2;
    while bytes[end] != b'\n' {
        end += 1;
    }
    let (first, rest) = text.split_at(end);
    let (line_ends, text) = rest.split_at(2);
    assert!(line_ends.as_bytes()[1] == b'\n', "the title of a page is followed by an empty line");
    Page { code: Code(code), class, title: first.split_at(2).1, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_the_order_of_codes_and_have_a_title() {
        assert!(PAGES.is_sorted_by(|one, next| one.code < next.code));
        for page in PAGES {
            assert!(!page.title.is_empty() && !page.title.ends_with('.'), "{}", page.code);
            assert_eq!(explain(page.code), Some(page));
        }
        assert_eq!(explain(Code(999)), None);
    }

    #[test]
    fn each_file_of_a_page_is_a_page() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/pages");
        for file in std::fs::read_dir(folder).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let code = name.strip_suffix(".md").and_then(|code| code.parse().ok());
            assert!(code.and_then(explain).is_some(), "{name}");
        }
    }

    #[test]
    fn a_page_is_short_and_its_lines_are() {
        for page in PAGES {
            let lines = page.text.lines().count();
            assert!((20..=60).contains(&lines), "{}: {lines} lines", page.code);
            let longest = page.text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(108), "{}: a line of {longest:?}", page.code);
        }
    }
}
