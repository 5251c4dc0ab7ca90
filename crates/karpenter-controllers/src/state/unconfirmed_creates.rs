//! NodeClaims whose create request got no clear response, so that it is unknown whether they exist; and the generation
//! of names for new NodeClaims.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// The characters of generated suffixes. There are no vowels, so that suffixes contain no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The maximum length of the prefix: the name with its suffix must be a valid label value.
const PREFIX_LENGTH_MAX: usize = 58;

/// The unconfirmed NodeClaims by name, and since when each is unconfirmed. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct UnconfirmedCreates {
    names: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    count: Arc<AtomicU64>,
}

impl UnconfirmedCreates {
    pub(crate) fn names(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_name(&self, prefix: &str, now: Timestamp) -> String {
        generate_name(prefix, now, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// Generates a name from the time and a counter.
fn generate_name(prefix: &str, now: Timestamp, count: u64) -> String {
    let kept = prefix
        .char_indices()
        .map(|(at, one)| at + one.len_utf8())
        .take_while(|end| *end <= PREFIX_LENGTH_MAX);
    let kept = &prefix[..kept.last().unwrap_or(0)];
    // Only the low bits of the time differ between calls, and the suffix is made of few bits, so all bits are mixed
    // first.
    let mut mixed = (now.as_nanosecond() as u64) ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let letters = ALPHABET.len() as u64;
    let suffix = (0..SUFFIX_LENGTH).map(|_| {
        let letter = ALPHABET[(mixed % letters) as usize];
        mixed /= letters;
        char::from(letter)
    });
    format!("{kept}{}", suffix.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn generated_names_differ_and_are_valid_label_values() {
        let now = Timestamp::UNIX_EPOCH;
        let names: BTreeSet<String> = (0..1_000).map(|count| generate_name("default-", now, count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.starts_with("default-") && name.len() == 13));
        let long = "x".repeat(80);
        assert_eq!(generate_name(&long, now, 0).len(), 63);
    }
}
