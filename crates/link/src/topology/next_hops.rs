//! Next hops: for each host, its link towards each other host.

use std::collections::VecDeque;

/// For each host and each destination the place of the attachment, among those of the host, that
/// packets leave by; `None` from a host to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextHops {
    next: Vec<Vec<Option<usize>>>,
}

impl NextHops {
    /// The routes over the fewest links; of two equal ones, the one whose first attachment comes first.
    /// `neighbours` has for each host those at the other end of its attachments, in order. There is no
    /// next hop towards a host that cannot be reached.
    pub(super) fn shortest(neighbours: &[Vec<usize>]) -> Self {
        let mut next = vec![vec![None; neighbours.len()]; neighbours.len()];
        for to in 0..neighbours.len() {
            let links = links_to(neighbours, to);
            for (host, next) in next.iter_mut().enumerate() {
                let nearer = |neighbour: &usize| {
                    links[*neighbour].is_some_and(|left| links[host] == Some(left + 1))
                };
                next[to] = neighbours[host].iter().position(nearer);
            }
        }
        Self { next }
    }

    /// The place of the attachment that a host's packets to another leave by.
    pub(super) fn next(&self, host: usize, to: usize) -> Option<usize> {
        self.next[host][to]
    }

    /// Lets a host's packets to another leave by this attachment.
    pub(super) fn set(&mut self, host: usize, to: usize, attachment: usize) {
        self.next[host][to] = Some(attachment);
    }

    /// A routing loop: the destination that packets never reach, and the hosts that forward them in a
    /// circle, the first of which is also the last. Every host has a next hop towards every other.
    pub(super) fn find_loop(&self, neighbours: &[Vec<usize>]) -> Option<(usize, Vec<usize>)> {
        let hosts = 0..neighbours.len();
        let starts = hosts.clone().flat_map(|to| hosts.clone().map(move |from| (from, to)));
        starts.into_iter().find_map(|(from, to)| {
            let mut passed = vec![from];
            loop {
                let at = *passed.last()?;
                // `None`: the packet has arrived.
                let following = neighbours[at][self.next(at, to)?];
                let before = passed.iter().position(|host| *host == following);
                passed.push(following);
                if let Some(start) = before {
                    return Some((to, passed.split_off(start)));
                }
            }
        })
    }
}

/// How many links each host is away from `to`.
fn links_to(neighbours: &[Vec<usize>], to: usize) -> Vec<Option<usize>> {
    let mut links = vec![None; neighbours.len()];
    links[to] = Some(0);
    let mut edge = VecDeque::from([(to, 0)]);
    while let Some((host, away)) = edge.pop_front() {
        for &neighbour in &neighbours[host] {
            if links[neighbour].is_none() {
                links[neighbour] = Some(away + 1);
                edge.push_back((neighbour, away + 1));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many links the way has.
    fn length(next_hops: &NextHops, neighbours: &[Vec<usize>], from: usize, to: usize) -> usize {
        let hop = |at: usize| next_hops.next(at, to).map(|attachment| neighbours[at][attachment]);
        std::iter::successors(hop(from), |at| hop(*at)).take(1000).count()
    }

    fn neighbours_of(hosts: usize, links: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); hosts];
        for (near, far) in links {
            neighbours[*near].push(*far);
            neighbours[*far].push(*near);
        }
        neighbours
    }

    proptest! {
        /// A tree in any form and links across it, some of them parallel.
        #[test]
        fn every_host_reaches_every_other_on_a_shortest_way(
            parents in proptest::collection::vec(0_usize..1000, 0..30),
            across in proptest::collection::vec((0_usize..1000, 0_usize..1000), 0..30),
        ) {
            let hosts = parents.len() + 1;
            let tree = parents.iter().enumerate().map(|(host, parent)| (host + 1, parent % (host + 1)));
            let across = across.iter().map(|(near, far)| (near % hosts, far % hosts));
            let links: Vec<_> = tree.chain(across.filter(|(near, far)| near != far)).collect();
            let neighbours = neighbours_of(hosts, &links);
            let next_hops = NextHops::shortest(&neighbours);
            prop_assert_eq!(next_hops.find_loop(&neighbours), None);
            // Floyd's and Warshall's, which finds the same in another way.
            let mut away = vec![vec![hosts; hosts]; hosts];
            for (host, away) in away.iter_mut().enumerate() {
                away[host] = 0;
                neighbours[host].iter().for_each(|neighbour| away[*neighbour] = 1);
            }
            for over in 0..hosts {
                for from in 0..hosts {
                    for to in 0..hosts {
                        away[from][to] = away[from][to].min(away[from][over] + away[over][to]);
                    }
                }
            }
            for (from, away) in away.iter().enumerate() {
                for (to, away) in away.iter().enumerate() {
                    let links = length(&next_hops, &neighbours, from, to);
                    prop_assert_eq!(links, *away, "{} to {}", from, to);
                }
            }
        }

        /// Whatever routes say: either a circle is found, or every host reaches every other.
        #[test]
        fn a_circle_is_found_or_there_is_none(
            turns in proptest::collection::vec((0_usize..6, 0_usize..6, 0_usize..2), 0..12),
        ) {
            let ring: Vec<_> = (0..6).map(|host| (host, (host + 1) % 6)).collect();
            let neighbours = neighbours_of(6, &ring);
            let mut next_hops = NextHops::shortest(&neighbours);
            for (host, to, attachment) in turns {
                if host != to {
                    next_hops.set(host, to, attachment);
                }
            }
            let all = |to| (0..6).all(|from| length(&next_hops, &neighbours, from, to) < 6);
            match next_hops.find_loop(&neighbours) {
                None => prop_assert!((0..6).all(all)),
                Some((to, circle)) => {
                    prop_assert!(!all(to));
                    prop_assert_eq!(circle.first(), circle.last());
                    prop_assert!(circle.len() > 2);
                }
            }
        }
    }

    #[test]
    fn of_two_ways_the_first_is_taken() {
        // A ring of four: from 0 to 2 there are two, and 0's first link leads to 1.
        let neighbours = neighbours_of(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
        let next_hops = NextHops::shortest(&neighbours);
        assert_eq!(
            (next_hops.next(0, 2), next_hops.next(0, 3), next_hops.next(0, 0)),
            (Some(0), Some(1), None)
        );
        // Parallel links.
        let next_hops = NextHops::shortest(&neighbours_of(2, &[(0, 1), (0, 1)]));
        assert_eq!(next_hops.next(1, 0), Some(0));
    }

    #[test]
    fn what_cannot_be_reached_has_no_way() {
        let next_hops = NextHops::shortest(&neighbours_of(4, &[(0, 1), (2, 3)]));
        assert_eq!(
            (next_hops.next(0, 2), next_hops.next(3, 1), next_hops.next(0, 1)),
            (None, None, Some(0))
        );
    }
}
