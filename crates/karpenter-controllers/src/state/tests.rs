use jiff::Timestamp;
use karpenter_state::pod::Pod;
use serde_json::json;

use super::State;

fn pod(name: &str, owner: &str) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]});
    serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
}

fn names_on(state: &State, claim: &str) -> Vec<String> {
    state.places_on(claim).into_iter().map(|place| place.pod.name).collect()
}

#[test]
fn a_pod_has_one_place() {
    let state = State::default();
    state.expect(&pod("b", "web"), "one", Timestamp::UNIX_EPOCH);
    state.expect(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    assert_eq!(names_on(&state, "one"), ["a", "b"]);
    state.set_nominated("a", Some("node-1"));
    assert_eq!(state.place_of("a").and_then(|place| place.nominated).as_deref(), Some("node-1"));
    state.expect(&pod("a", "web"), "two", Timestamp::UNIX_EPOCH);
    assert_eq!((names_on(&state, "one"), names_on(&state, "two")), (vec!["b".into()], vec!["a".into()]));
    assert_eq!(state.place_of("a").and_then(|place| place.nominated), None);
    assert_eq!(state.forget_pod("a").map(|place| place.claim).as_deref(), Some("two"));
    assert_eq!(state.place_of("a"), None);
}

#[test]
fn a_pod_that_comes_back_takes_the_place_of_its_predecessor() {
    let state = State::default();
    state.expect(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    state.vacate("a", Timestamp::UNIX_EPOCH);
    assert_eq!(state.take_vacancy(&pod("x", "db"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
    assert_eq!(
        state.take_vacancy(&pod("b", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true).as_deref(),
        Some("one")
    );
    assert_eq!(names_on(&state, "one"), ["b"]);
    assert_eq!(state.take_vacancy(&pod("c", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
    state.vacate("b", Timestamp::UNIX_EPOCH);
    assert_eq!(state.take_vacancy(&pod("c", "web"), Timestamp::UNIX_EPOCH, |_, _, _| false), None);
    state.expect(&pod("c", "web"), "one", Timestamp::UNIX_EPOCH);
    state.vacate("c", Timestamp::UNIX_EPOCH);
    state.drop_vacancies("one");
    assert_eq!(state.take_vacancy(&pod("d", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
}

#[test]
fn claims_that_are_gone_are_forgotten() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = State::default();
    state.mark_leaving("one");
    assert_eq!(state.opened("one", at(5)), at(5));
    assert_eq!(state.opened("one", at(9)), at(5));
    state.expect(&pod("a", "web"), "one", Timestamp::UNIX_EPOCH);
    state.vacate("a", Timestamp::UNIX_EPOCH);
    state.retain_claims(|claim| claim != "one");
    assert!(!state.is_leaving("one"));
    assert_eq!(state.opened("one", at(9)), at(9));
    assert_eq!(state.take_vacancy(&pod("b", "web"), Timestamp::UNIX_EPOCH, |_, _, _| true), None);
}

#[test]
fn nominations_of_nodes_run_out() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = State::default();
    state.nominate_node("n", at(20));
    state.nominate_node("n", at(10));
    assert!(state.is_node_nominated("n", at(19)));
    assert!(!state.is_node_nominated("n", at(20)));
    assert!(!state.is_node_nominated("other", at(0)));
}

#[test]
fn a_moved_pod_hands_its_place_to_its_successor() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let state = State::default();
    state.depart(["old"], [(&pod("a", "web"), "one")], at(1));
    assert!(state.is_leaving("old"));
    assert_eq!(state.moves().moved_onto_at("one"), Some(at(1)));
    state.vacate("a", at(2));
    let is_fresh = |_: &str, since: Timestamp, is_move: bool| is_move && since >= at(2);
    assert_eq!(state.take_vacancy(&pod("b", "web"), at(3), is_fresh).as_deref(), Some("one"));
    let place = state.place_of("b").expect("a place");
    assert_eq!((place.is_move, place.since), (true, at(3)));
    assert_eq!(state.moves().pod_moved_at("b"), Some(at(3)));
    state.vacate("b", at(1));
    assert_eq!(state.take_vacancy(&pod("c", "web"), at(3), is_fresh), None);
}
