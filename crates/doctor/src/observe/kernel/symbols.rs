//! The address of a kernel function: from `/proc/kallsyms` (`kallsyms(8)`), which shows addresses
//! to privileged users only.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

/// The addresses of a function's code; `None` if the kernel does not show them.
pub(super) fn function(proc: &Path, name: &str) -> Option<Range<u64>> {
    let symbols = File::open(proc.join("kallsyms")).ok()?;
    among(BufReader::new(symbols).lines(), name)
}

/// From its address to that of the next symbol, in lines such as `ffffffff81c3a5f0 t
/// unix_release_sock`, in any order.
fn among(lines: impl Iterator<Item = io::Result<String>>, name: &str) -> Option<Range<u64>> {
    let mut code = Vec::new();
    let mut begin = None;
    for line in lines {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace();
        let (address, kind, symbol) = (words.next()?, words.next()?, words.next()?);
        if !kind.eq_ignore_ascii_case("t") {
            continue;
        }
        let address = u64::from_str_radix(address, 16).ok()?;
        if symbol == name {
            begin = Some(address);
        }
        code.push(address);
    }
    let begin = begin.filter(|begin| *begin != 0)?;
    let end = code.into_iter().filter(|address| *address > begin).min()?;
    Some(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<Range<u64>> {
        among(text.lines().map(|line| Ok(line.to_owned())), "unix_release_sock")
    }

    #[test]
    fn it_ends_where_the_next_begins() {
        let text = "0000000000000000 A fixed_percpu_data\n\
                    ffffffff81c3a9c0 t unix_release\n\
                    ffffffff81c3a5f0 t unix_release_sock\n\
                    ffffffff81c3a700 d unix_release_data\n\
                    ffffffff81c3a000 T unix_peer_get\n\
                    ffffffffc0400000 t veth_close\t[veth]\n";
        assert_eq!(found(text), Some(0xffff_ffff_81c3_a5f0..0xffff_ffff_81c3_a9c0));
    }

    #[test]
    fn what_is_hidden_or_missing_is_not_known() {
        let hidden = "0000000000000000 t unix_release_sock\n0000000000000000 t unix_release\n";
        assert_eq!(found(hidden), None);
        assert_eq!(found("ffffffff81c3a9c0 t unix_release\n"), None);
        assert_eq!(found("ffffffff81c3a9c0 t unix_release_sock\n"), None);
        assert_eq!(found("of another form"), None);
    }
}
