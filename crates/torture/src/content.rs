//! The bytes that are sent: they differ at every position.

/// An endless stream of bytes, the same for the same key. A reader that knows the key needs no copy
/// and no digest: it detects the first byte that is wrong, lost, duplicated or out of order.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    key: u64,
}

impl Content {
    /// The content with this key.
    #[must_use]
    pub fn new(key: u64) -> Self {
        Self { key: mixed(key) }
    }

    /// Fills `buffer` with the bytes from position `at` on.
    pub fn fill(&self, at: u64, buffer: &mut [u8]) {
        let mut at = at;
        let mut buffer = buffer;
        while !buffer.is_empty() {
            let word = mixed(self.key.wrapping_add(at / WORD)).to_le_bytes();
            let word = word.get(within_word(at)..).unwrap_or_default();
            let (now, later) = buffer.split_at_mut(word.len().min(buffer.len()));
            now.copy_from_slice(&word[..now.len()]);
            at += now.len() as u64;
            buffer = later;
        }
    }

    /// The position of the first of `bytes`, read from position `at` on, that is not what was sent.
    #[must_use]
    pub fn first_wrong(&self, at: u64, bytes: &[u8]) -> Option<u64> {
        let mut right = vec![0; bytes.len()];
        self.fill(at, &mut right);
        let index = right.iter().zip(bytes).position(|(right, read)| right != read)?;
        Some(at + index as u64)
    }
}

/// The bytes of one number.
const WORD: u64 = 8;

#[allow(clippy::cast_possible_truncation, reason = "less than a word")]
fn within_word(at: u64) -> usize {
    (at % WORD) as usize
}

/// The output function of `SplitMix64` (Steele, Lea, Flood 2014): its outputs for neighbouring
/// inputs are unrelated.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole() {
        let content = Content::new(7);
        let mut whole = [0; 100];
        content.fill(0, &mut whole);
        for (from, to) in [(0, 100), (3, 4), (7, 9), (8, 16), (13, 99)] {
            let mut piece = vec![0; to - from];
            content.fill(from as u64, &mut piece);
            assert_eq!(piece, whole[from..to]);
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found() {
        let content = Content::new(8);
        let mut bytes = [0; 64];
        content.fill(1_000, &mut bytes);
        assert_eq!(content.first_wrong(1_000, &bytes), None);
        bytes[40] ^= 1;
        bytes[50] ^= 1;
        assert_eq!(content.first_wrong(1_000, &bytes), Some(1_040));
        assert!(Content::new(9).first_wrong(1_000, &bytes).is_some());
    }
}
