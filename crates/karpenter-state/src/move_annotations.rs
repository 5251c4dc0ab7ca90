//! Annotations in which the controller records pods that it moved, for its next process and for readers of a dump.

use std::collections::BTreeMap;

use jiff::Timestamp;
use karpenter_api::labels::{ANNOTATION_PODS_MOVED, ANNOTATION_PODS_MOVED_AT, ANNOTATION_REPLACES};
use karpenter_api::types::{NodeClaim, NodePool};

/// Pods that consolidation moved from the nodes of the NodePool, by time.
pub fn pods_moved(pool: &NodePool) -> Vec<(Timestamp, u32)> {
    let text = pool.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_PODS_MOVED));
    text.map_or_else(Vec::new, |text| read(text))
}

/// When a command last moved pods onto the node of the claim, according to its annotations.
pub fn moved_onto_at(claim: &NodeClaim) -> Option<Timestamp> {
    let annotation = |key: &str| claim.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let noted = annotation(ANNOTATION_PODS_MOVED_AT).and_then(|text| text.parse().ok());
    let launched =
        claim.metadata.creation_timestamp.as_ref().filter(|_| annotation(ANNOTATION_REPLACES).is_some());
    noted.max(launched.map(|time| time.0))
}

/// The text of the annotation that [`pods_moved`] parses.
pub fn moves_text(moves: &BTreeMap<Timestamp, u32>) -> String {
    let by_time: BTreeMap<String, u32> = moves.iter().map(|(at, pods)| (at.to_string(), *pods)).collect();
    serde_json::to_string(&by_time).unwrap_or_default()
}

/// Parses the annotation. An invalid text was not written by the controller and is ignored.
fn read(text: &str) -> Vec<(Timestamp, u32)> {
    let by_time: BTreeMap<String, u32> = serde_json::from_str(text).unwrap_or_default();
    by_time.into_iter().filter_map(|(at, pods)| Some((at.parse().ok()?, pods))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_moves_are_read_back() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let moves: BTreeMap<Timestamp, u32> = [(at(1_767_268_800), 3), (at(1_767_268_900), 4)].into();
        let text = moves_text(&moves);
        assert_eq!(text, "{\"2026-01-01T12:00:00Z\":3,\"2026-01-01T12:01:40Z\":4}");
        assert_eq!(read(&text), moves.into_iter().collect::<Vec<_>>());
        assert_eq!(read(""), []);
        assert_eq!(read("many"), []);
    }
}
