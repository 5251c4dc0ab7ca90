//! The names of instances. They are derived from the NodeClaim's name and uid, so that a repeated launch gives the same
//! name.

use karpenter_api::types::NodeClaim;
use kube::ResourceExt;

use crate::node::PROVIDER_ID_PREFIX;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// The letters of generated words. There are no vowels among them, so that no real words occur.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";
const WORD_LETTERS: usize = 8;

/// A hash of the NodeClaim's uid, which is the same in every process.
pub(crate) fn number(uid: &str) -> u64 {
    let hash = uid.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    // This makes the last bytes of a uid affect all bits of the number.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The name of a NodeClaim's Node. It is taken from `status.providerID` if another controller or process set it, else
/// derived from the NodeClaim.
pub(crate) fn node_of(claim: &NodeClaim) -> String {
    let known = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
    match known.and_then(|id| id.strip_prefix(PROVIDER_ID_PREFIX)) {
        Some(name) => name.to_owned(),
        None => node_name(&claim.name_any(), &claim.uid().unwrap_or_default()),
    }
}

/// The name `kwok-<claim>-<word>-<number>`, as upstream's kwok provider forms it.
pub fn node_name(claim_name: &str, uid: &str) -> String {
    let number = number(uid);
    let mut rest = number >> 32;
    let base = LETTERS.len() as u64;
    let mut word = String::with_capacity(WORD_LETTERS);
    for _ in 0..WORD_LETTERS {
        word.push(char::from(LETTERS[(rest % base) as usize]));
        rest /= base;
    }
    format!("kwok-{claim_name}-{word}-{}", number & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn node_name_is_stable_and_unique_per_claim() {
        let uid = |last: u32| format!("8d5c1b9e-6f0a-4c52-9f4e-{last:012x}");
        let names: BTreeSet<String> = (0..10_000).map(|last| node_name("claim", &uid(last))).collect();
        assert_eq!(names.len(), 10_000);
        assert_eq!(node_name("claim", &uid(7)), node_name("claim", &uid(7)));
        let name = node_name("claim", &uid(1));
        let parts: Vec<&str> = name.split('-').collect();
        assert_eq!(parts[..2], ["kwok", "claim"]);
        assert!(parts[2].len() == WORD_LETTERS && parts[3].parse::<u32>().is_ok(), "{name}");
    }
}
