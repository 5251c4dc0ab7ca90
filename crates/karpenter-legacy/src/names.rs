//! Names of derived objects. They end up in label values, which hold 63 characters.

use std::collections::BTreeSet;

const LENGTH_MAX: usize = 63;
const KEPT: usize = 54;

/// The name itself, or its beginning and a hash of the whole where it is too long for a label value.
pub(crate) fn for_label(name: &str) -> String {
    if name.len() <= LENGTH_MAX {
        return name.to_owned();
    }
    let mut end = KEPT;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &name[..end], hash(name))
}

/// The name, or one with a hash behind it where the name is taken.
pub(crate) fn free(name: &str, taken: &BTreeSet<String>) -> String {
    let name = for_label(name);
    if taken.contains(&name) { for_label(&format!("{name}-{}", hash(&name))) } else { name }
}

/// Eight hexadecimal digits of FNV-1a: stable for ever, and not meant to resist anybody.
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
    fn long_names_are_cut_and_stay_different() {
        assert_eq!(for_label("default"), "default");
        let (one, other) = (format!("{}-1", "a".repeat(70)), format!("{}-2", "a".repeat(70)));
        assert_eq!(for_label(&one).len(), LENGTH_MAX);
        assert_ne!(for_label(&one), for_label(&other));
        assert!(for_label(&one).starts_with(&"a".repeat(KEPT)));
    }

    #[test]
    fn a_known_hash() {
        // The published test vector of 32-bit FNV-1a for "foobar".
        assert_eq!(hash("foobar"), "bf9cf968");
    }

    #[test]
    fn a_taken_name_gets_a_tail() {
        let taken = BTreeSet::from(["a-b".to_owned()]);
        assert_eq!(free("a-c", &taken), "a-c");
        assert_eq!(free("a-b", &taken), format!("a-b-{}", hash("a-b")));
    }
}
