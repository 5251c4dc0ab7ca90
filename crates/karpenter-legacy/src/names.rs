//! The names of derived objects. They are used as label values, so they have at most 63 characters.

use std::collections::BTreeSet;

const LENGTH_MAX: usize = 63;
/// How many characters of a long name are kept; a `-` and the eight digits of a hash follow them.
const PREFIX_LENGTH: usize = 54;

/// The name itself, or, if it is too long for a label value, its beginning and a hash.
pub(crate) fn for_label(name: &str) -> String {
    if name.len() <= LENGTH_MAX {
        return name.to_owned();
    }
    let mut end = PREFIX_LENGTH;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &name[..end], hash(name))
}

/// The name itself, or, if it is in use, the name with a hash appended.
pub(crate) fn unused(name: &str, taken: &BTreeSet<String>) -> String {
    let name = for_label(name);
    if taken.contains(&name) { for_label(&format!("{name}-{}", hash(&name))) } else { name }
}

/// The 32-bit FNV-1a hash in eight hexadecimal digits. Names of objects depend on it, so it must never change.
fn hash(text: &str) -> String {
    let mut state: u32 = 0x811c_9dc5;
    for byte in text.bytes() {
        state = (state ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{state:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_truncated_and_stay_distinct() {
        assert_eq!(for_label("default"), "default");
        let (one, other) = (format!("{}-1", "a".repeat(70)), format!("{}-2", "a".repeat(70)));
        assert_eq!(for_label(&one).len(), LENGTH_MAX);
        assert_ne!(for_label(&one), for_label(&other));
        assert!(for_label(&one).starts_with(&"a".repeat(PREFIX_LENGTH)));
    }

    #[test]
    fn hash_matches_published_test_vector() {
        // This is the published test vector of 32-bit FNV-1a for "foobar".
        assert_eq!(hash("foobar"), "bf9cf968");
    }

    #[test]
    fn name_in_use_gets_a_hash_suffix() {
        let taken = BTreeSet::from(["a-b".to_owned()]);
        assert_eq!(unused("a-c", &taken), "a-c");
        assert_eq!(unused("a-b", &taken), format!("a-b-{}", hash("a-b")));
    }
}
