//! The catalogue: each algorithm, and what it is good and bad for.

/// A congestion control of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Algorithm {
    /// Its name in papers: `vegas`.
    pub plain: &'static str,
    /// Its name in the kernel: `lb_vegas`.
    pub name: &'static str,
    /// The paper or RFC that it implements.
    pub source: &'static str,
    /// Where to use it.
    pub good_for: &'static str,
    /// Where not to use it.
    pub bad_for: &'static str,
    /// Whether it sends at a rate that the user gives.
    pub wants_rate: bool,
    /// Whether it sets the pacing rate, which the kernel allows since Linux 6.0.
    pub sets_pace: bool,
    /// Whether it is the same algorithm as the kernel's of the plain name.
    pub is_as_kernels: bool,
}

/// The parameters of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The rate of all its connections without a `SO_MAX_PACING_RATE` of their own, in bytes per second.
    pub rate: Option<u64>,
}

/// The catalogue, sorted by plain name.
#[must_use]
pub fn all() -> &'static [Algorithm] {
    ALGORITHMS
}

/// The algorithm of a name, plain (`vegas`) or the kernel's (`lb_vegas`).
#[must_use]
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|one| one.plain == name || one.name == name)
}

/// Whether an algorithm's name in the kernel is one of the catalogue, not the kernel's own.
#[must_use]
pub fn is_of_catalogue(name: &str) -> bool {
    ALGORITHMS.iter().any(|one| one.name == name)
}

const fn row(
    names: (&'static str, &'static str),
    source: &'static str,
    good_for: &'static str,
    bad_for: &'static str,
) -> Algorithm {
    let (plain, name) = names;
    let (wants_rate, sets_pace, is_as_kernels) = (false, false, true);
    Algorithm { plain, name, source, good_for, bad_for, wants_rate, sets_pace, is_as_kernels }
}

const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        sets_pace: true,
        is_as_kernels: false,
        ..row(
            ("bbr", "lb_bbr"),
            "draft-ietf-ccwg-bbr (BBRv3)",
            "long, lossy or policed paths; short queues",
            "deep queues beside cubic; jittery Wi-Fi",
        )
    },
    row(
        ("bic", "lb_bic"),
        "Xu, Harfoush, Rhee 2004",
        "long paths with some loss",
        "full queues: resends much; unfair to reno",
    ),
    Algorithm {
        wants_rate: true,
        sets_pace: true,
        is_as_kernels: false,
        ..row(
            ("brutal", "lb_brutal"),
            "a fixed rate, losses made good",
            "links of your own of known rate, lossy or not",
            "shared links: takes its rate from all others",
        )
    },
    row(
        ("cdg", "lb_cdg"),
        "Hayes, Armitage 2011",
        "short queues with no threshold to choose",
        "long paths: noise in the RTT keeps it slow",
    ),
    row(
        ("cubic", "lb_cubic"),
        "RFC 9438",
        "clean paths, the default of most hosts",
        "long paths with loss; fills queues",
    ),
    row(
        ("dctcp", "lb_dctcp"),
        "RFC 8257",
        "queues that mark early: full rate, no loss",
        "without marks, or one end alone: as reno",
    ),
    row(
        ("highspeed", "lb_highspeed"),
        "RFC 3649",
        "windows over 38 packets, little loss",
        "deep queues: overshoots; else as reno",
    ),
    row(
        ("htcp", "lb_htcp"),
        "draft-leith-tcp-htcp",
        "long paths, with modest resends",
        "random loss; as reno under 1 s between losses",
    ),
    row(
        ("hybla", "lb_hybla"),
        "Caini, Firrincieli 2004",
        "long RTT with loss: grows as if 25 ms",
        "slow start overshoots; takes from others",
    ),
    row(
        ("illinois", "lb_illinois"),
        "Liu, Basar, Srikant 2008",
        "random loss where queues are short",
        "deep queues: as long a delay as cubic's",
    ),
    row(
        ("lp", "lb_lp"),
        "Kuzmanovic, Knightly 2003",
        "background: takes what others leave",
        "anything that has to be quick",
    ),
    row(
        ("nv", "lb_nv"),
        "Brakmo 2010 (TCP-NV)",
        "full rate with almost no queue",
        "beside cubic in deep queues: gets little",
    ),
    row(("reno", "lb_reno"), "RFC 5681", "a reference to compare with", "long or fast paths"),
    row(
        ("scalable", "lb_scalable"),
        "Kelly 2003",
        "very large windows of one's own",
        "full queues: resends much; unfair",
    ),
    row(
        ("vegas", "lb_vegas"),
        "Brakmo, Peterson 1995",
        "low delay: two to four packets queued",
        "jitter, random loss, beside who fills queues",
    ),
    row(
        ("veno", "lb_veno"),
        "Fu, Liew 2003",
        "random loss: 1.7 times reno's rate",
        "deep queues: fills them as reno does",
    ),
    row(
        ("westwood", "lb_westwood"),
        "Grieco, Mascolo 2004 (Westwood+)",
        "short paths with random loss",
        "loss in slow start on long paths",
    ),
    row(
        ("yeah", "lb_yeah"),
        "Baiocchi, Castellani, Vacirca 2007",
        "long, fast paths; drains its own queue",
        "below 640 packets its queue creeps up",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_both_names() {
        for one in all() {
            assert_eq!(one.name, format!("lb_{}", one.plain));
            assert_eq!(find(one.plain), Some(one));
            assert_eq!(find(one.name), Some(one));
            // TCP_CA_NAME_MAX has 16 bytes with the zero, as has the name of a map.
            assert!(one.name.len() < 16, "{}", one.name);
        }
        assert!(all().is_sorted_by_key(|one| one.plain));
        assert_eq!(find("lb_"), None);
    }
}
