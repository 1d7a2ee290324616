//! The longest packet: one of the path's MTU arrives whole, and the kernel refuses one that is a byte
//! longer. Tried on the link of `delay`.

use std::time::Duration;

use lastbyte_link::{Link, LinkError};
use lastbyte_units::Unit;

use super::DELAY_EVERY;
use crate::asked::Asked;
use crate::finding::{Finding, Outcome, Subject};
use crate::probe::{self, Flow, Load, Observed};

/// A packet of the greatest length that takes longer than this to be transmitted is not tried.
const LONGEST_PACKET_WITHIN: Duration = Duration::from_millis(200);
/// Packets of the greatest length: not all of them are lost.
const LONGEST_PACKETS: u32 = 10;

/// Tries packets of the greatest length, and of one byte more; adds their flows and what was observed
/// of them.
pub(super) fn measure(
    both: &[Asked; 2],
    link: &Link,
    flows: &mut Vec<Flow>,
    observed: &mut Vec<Observed>,
) -> Result<Vec<Finding>, LinkError> {
    let mut list = Vec::new();
    for asked in both {
        let time = asked.time_of(asked.mtu);
        let outcome = if time > LONGEST_PACKET_WITHIN {
            let seconds = time.as_secs_f64();
            let why = format!("one of {} bytes takes {seconds:.1} s to send", asked.mtu);
            Outcome::NotMeasured(why)
        } else {
            let refused = probe::refuses_longer(link, asked.way, asked.mtu)?;
            let within = Duration::from_secs(60);
            let load = Load::paced(asked.mtu, (time * 2).max(DELAY_EVERY));
            let load = Load { packets: LONGEST_PACKETS, within, ..load };
            let flow = asked.flow(load, asked.idle_wait() + time);
            let mut one = probe::run(link, &[flow])?;
            let arrived = one.iter().flat_map(|one| &one.arrivals).map(|one| one.ip_bytes);
            let outcome = longest_packet(asked.mtu, refused, arrived.max());
            flows.push(flow);
            observed.append(&mut one);
            outcome
        };
        list.push(Finding { subject: Subject::LongestPacket, way: Some(asked.way), outcome });
    }
    Ok(list)
}

/// The longest packet: one of the length asked that `arrived`, while one a byte longer was `refused`.
fn longest_packet(asked: u32, refused: bool, arrived: Option<u32>) -> Outcome {
    let (got, basis) = match arrived {
        None => return Outcome::NotMeasured("no packet of that length arrived".to_owned()),
        Some(_) if !refused => (asked + 1, "was not refused"),
        Some(got) => (got, "arrived whole, and a byte more was refused (EMSGSIZE)"),
    };
    Outcome::within(Unit::Bytes, asked.into(), got.into(), 0.0, basis.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};

    #[test]
    fn a_packet_may_be_just_so_long() {
        assert!(is_inside(&longest_packet(1400, true, Some(1400))));
        assert!(!is_inside(&longest_packet(1400, false, Some(1400))));
        assert!(!is_inside(&longest_packet(1400, true, Some(1399))));
        assert!(is_not_measured(&longest_packet(1400, true, None)));
    }
}
