//! Identifiers that the server generates: uids, and the random suffixes of names with `metadata.generateName`.
//!
//! Identifiers are computed from a seed and a counter, so the same requests in the same order get the same identifiers.
//!
//! Upstream: k8s.io/apiserver/pkg/storage/names/generate.go

use std::sync::atomic::{AtomicU64, Ordering};

/// The characters of generated suffixes. There are no vowels among them, so that suffixes do not form words.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LETTERS: usize = 5;
/// The length of the longest prefix to which the suffix can be added in a name of 63 characters.
const NAME_PREFIX_LETTERS_MAX: usize = 63 - NAME_SUFFIX_LETTERS;

#[derive(Debug)]
pub struct Ids {
    seed: u64,
    next: AtomicU64,
}

impl Ids {
    pub fn new(seed: u64) -> Self {
        Self { seed, next: AtomicU64::new(0) }
    }

    /// Advances the counter after a restart. `used` must be at least the number of identifiers that were generated
    /// before, for example the revision.
    pub fn skip_past(&self, used: u64) {
        self.next.fetch_max(used.saturating_mul(16), Ordering::Relaxed);
    }

    fn number(&self) -> u64 {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        splitmix64(self.seed ^ splitmix64(count))
    }

    /// A version 4 UUID.
    pub fn uid(&self) -> String {
        let high = (self.number() & !0xf000) | 0x4000;
        let low = (self.number() & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Generates a name from a prefix, the value of `metadata.generateName`.
    pub fn name(&self, prefix: &str) -> String {
        let mut end = prefix.len().min(NAME_PREFIX_LETTERS_MAX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = prefix[..end].to_string();
        let mut number = self.number();
        let base = NAME_LETTERS.len() as u64;
        for _ in 0..NAME_SUFFIX_LETTERS {
            name.push(char::from(NAME_LETTERS[(number % base) as usize]));
            number /= base;
        }
        name
    }
}

/// The hash SplitMix64, which is bijective, so different inputs give different outputs.
fn splitmix64(input: u64) -> u64 {
    let mut mixed = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn uids_are_version_4_and_differ() {
        let ids = Ids::new(7);
        let uids: BTreeSet<String> = (0..1000).map(|_| ids.uid()).collect();
        assert_eq!(uids.len(), 1000);
        for uid in uids {
            assert_eq!(uid.len(), 36);
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }

    #[test]
    fn generated_names_depend_on_seed_and_fit_length_limit() {
        let (one, two) = (Ids::new(3), Ids::new(3));
        let long = "x".repeat(80);
        for prefix in ["web-", "", long.as_str()] {
            let name = one.name(prefix);
            assert_eq!(name, two.name(prefix));
            assert!(name.len() <= 63);
        }
        assert_ne!(Ids::new(4).name("web-"), Ids::new(3).name("web-"));
    }
}
