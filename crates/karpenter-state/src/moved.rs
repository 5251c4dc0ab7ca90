//! What the controller has written on objects about pods that it moved, for whoever looks after it: the next process, or
//! somebody with a dump.

use std::collections::BTreeMap;

use jiff::Timestamp;
use karpenter_api::labels::{ANNOTATION_PODS_MOVED, ANNOTATION_PODS_MOVED_AT, ANNOTATION_REPLACES};
use karpenter_api::types::{NodeClaim, NodePool};

/// Pods that were moved from the pool's nodes for savings, by time.
pub fn pods_moved(pool: &NodePool) -> Vec<(Timestamp, u32)> {
    let text = pool.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_PODS_MOVED));
    text.map_or_else(Vec::new, |text| read(text))
}

/// When a command last moved pods to the claim's node, as far as objects tell.
pub fn moved_onto_at(claim: &NodeClaim) -> Option<Timestamp> {
    let annotation = |key: &str| claim.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let noted = annotation(ANNOTATION_PODS_MOVED_AT).and_then(|text| text.parse().ok());
    let launched =
        claim.metadata.creation_timestamp.as_ref().filter(|_| annotation(ANNOTATION_REPLACES).is_some());
    noted.max(launched.map(|time| time.0))
}

/// What [`pods_moved`] reads.
pub fn moves_text(moves: &BTreeMap<Timestamp, u32>) -> String {
    let by_time: BTreeMap<String, u32> = moves.iter().map(|(at, pods)| (at.to_string(), *pods)).collect();
    serde_json::to_string(&by_time).unwrap_or_default()
}

/// What cannot be read was not written by us.
fn read(text: &str) -> Vec<(Timestamp, u32)> {
    let by_time: BTreeMap<String, u32> = serde_json::from_str(text).unwrap_or_default();
    by_time.into_iter().filter_map(|(at, pods)| Some((at.parse().ok()?, pods))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_read_as_they_were_written() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let moves: BTreeMap<Timestamp, u32> = [(at(1_767_268_800), 3), (at(1_767_268_900), 4)].into();
        let text = moves_text(&moves);
        assert_eq!(text, "{\"2026-01-01T12:00:00Z\":3,\"2026-01-01T12:01:40Z\":4}");
        assert_eq!(read(&text), moves.into_iter().collect::<Vec<_>>());
        assert_eq!(read(""), []);
        assert_eq!(read("many"), []);
    }
}
