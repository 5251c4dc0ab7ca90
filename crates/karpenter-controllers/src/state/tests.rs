use jiff::Timestamp;
use karpenter_state::pod::Pod;
use serde_json::json;

use super::ClusterState;

fn pod(name: &str, owner: &str) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]});
    serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
}

fn names_on(state: &ClusterState, claim: &str) -> Vec<String> {
    state.reservations_on(claim).into_iter().map(|reservation| reservation.pod.name).collect()
}

#[test]
fn new_reservation_of_a_pod_replaces_the_earlier_one() {
    let state = ClusterState::default();
    state.reserve(&pod("b", "web"), "one", Timestamp::UNIX_EPOCH);
    state.reserve(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    assert_eq!(names_on(&state, "one"), ["a", "b"]);
    state.set_nominated("a", Some("node-1"));
    assert_eq!(
        state.reservation_of("a").and_then(|reservation| reservation.nominated).as_deref(),
        Some("node-1")
    );
    state.reserve(&pod("a", "web"), "two", Timestamp::UNIX_EPOCH);
    assert_eq!((names_on(&state, "one"), names_on(&state, "two")), (vec!["b".into()], vec!["a".into()]));
    assert_eq!(state.reservation_of("a").and_then(|reservation| reservation.nominated), None);
    assert_eq!(state.remove_reservation("a").map(|reservation| reservation.host).as_deref(), Some("two"));
    assert_eq!(state.reservation_of("a"), None);
}

#[test]
fn pod_inherits_the_reservation_of_a_deleted_pod_of_its_controller() {
    let state = ClusterState::default();
    state.reserve(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    state.release_to_successor("a", Timestamp::UNIX_EPOCH);
    assert_eq!(state.inherit_slot(&pod("x", "db"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
    assert_eq!(
        state.inherit_slot(&pod("b", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true).as_deref(),
        Some("one")
    );
    assert_eq!(names_on(&state, "one"), ["b"]);
    assert_eq!(state.inherit_slot(&pod("c", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
    state.release_to_successor("b", Timestamp::UNIX_EPOCH);
    assert_eq!(state.inherit_slot(&pod("c", "web"), Timestamp::UNIX_EPOCH, |_, _, _| false), None);
    state.reserve(&pod("c", "web"), "one", Timestamp::UNIX_EPOCH);
    state.release_to_successor("c", Timestamp::UNIX_EPOCH);
    state.drop_successor_slots("one");
    assert_eq!(state.inherit_slot(&pod("d", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
}

#[test]
fn state_of_deleted_claims_is_removed() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = ClusterState::default();
    state.mark_for_deletion("one");
    assert_eq!(state.record_open("one", at(5)), at(5));
    assert_eq!(state.record_open("one", at(9)), at(5));
    state.reserve(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    state.release_to_successor("a", Timestamp::UNIX_EPOCH);
    state.retain_claims(|claim| claim != "one");
    assert!(!state.is_marked_for_deletion("one"));
    assert_eq!(state.record_open("one", at(9)), at(9));
    assert_eq!(state.inherit_slot(&pod("b", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
}

#[test]
fn node_nomination_expires() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = ClusterState::default();
    state.nominate_node("n", at(20));
    state.nominate_node("n", at(10));
    assert!(state.is_node_nominated("n", at(19)));
    assert!(!state.is_node_nominated("n", at(20)));
    assert!(!state.is_node_nominated("other", at(0)));
}

#[test]
fn successor_of_a_moved_pod_inherits_its_reservation() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = ClusterState::default();
    state.start_command(["old"], [(&pod("a", "web"), "one")], at(1));
    assert!(state.is_marked_for_deletion("old"));
    assert_eq!(state.move_history().moved_onto_at("one"), Some(at(1)));
    state.release_to_successor("a", at(2));
    let is_fresh = |_: &str, since: Timestamp, is_move: bool| is_move && since >= at(2);
    assert_eq!(state.inherit_slot(&pod("b", "web"), at(3), is_fresh).as_deref(), Some("one"));
    let reservation = state.reservation_of("b").expect("a reservation");
    assert_eq!((reservation.is_move, reservation.since), (true, at(3)));
    assert_eq!(state.move_history().pod_moved_at("b"), Some(at(3)));
    state.release_to_successor("b", at(1));
    assert_eq!(state.inherit_slot(&pod("c", "web"), at(3), is_fresh), None);
}
