use super::*;
use jiff::Timestamp;
use serde_json::json;

fn pod(name: &str, cpu: &str, nominated: Option<&str>) -> Arc<Pod> {
    let resources = json!({"requests": {"cpu": cpu}});
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"nominatedNodeName": nominated},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn waiting(name: &str, cpu: &str, nominated: Option<&str>) -> (Place, Arc<Pod>) {
    let pod = pod(name, cpu, nominated);
    let state = crate::state::State::default();
    state.expect(&pod, "claim", Timestamp::UNIX_EPOCH);
    (state.place_of(name).expect("a place"), pod)
}

fn judged(on_it: &[Arc<Pod>], waiting: Vec<(Place, Arc<Pod>)>) -> (Vec<String>, Vec<String>) {
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}});
    let node: Node = serde_json::from_value(node).expect("a node");
    let Judged { lost, crowded_out } = judge(&node, on_it, waiting);
    let names = |places: Vec<Place>| places.into_iter().map(|place| place.pod.name).collect();
    (names(lost), names(crowded_out))
}

#[test]
fn pods_without_the_name_are_told_as_far_as_there_is_room() {
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let three = || vec![waiting("a", "2", None), waiting("b", "1", None), waiting("c", "1", None)];
    assert_eq!(judged(&[], three()), (names(&["a", "b", "c"]), names(&[])));
    // A stranger took two of four.
    assert_eq!(judged(&[pod("x", "2", None)], three()), (names(&["a"]), names(&["b", "c"])));
    // What was named keeps its room, whatever its name sorts after.
    let named = vec![waiting("a", "2", None), waiting("z", "3", Some("n"))];
    assert_eq!(judged(&[], named), (names(&[]), names(&["a"])));
    // The name is of no use beside a stranger that stays; one that goes makes room.
    let named = || vec![waiting("a", "3", Some("n"))];
    let mut stranger = (*pod("x", "2", None)).clone();
    assert_eq!(judged(&[Arc::new(stranger.clone())], named()), (names(&[]), names(&["a"])));
    stranger.deleted_at = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(judged(&[Arc::new(stranger)], named()), (names(&[]), names(&[])));
    // The scheduler has other plans with it.
    assert_eq!(judged(&[], vec![waiting("a", "1", Some("other"))]), (names(&[]), names(&[])));
}

#[test]
fn pods_are_told_again_a_few_times_and_nothing_is_kept_where_none_was() {
    let mut tries = BTreeMap::new();
    let lost = || vec![waiting("a", "1", None).0];
    assert!(count_tries(&mut tries, "claim", Vec::new()).is_empty());
    assert!(tries.is_empty(), "a node that opened and had nobody to tell again");
    for _ in 0..TRIES_MAX {
        assert_eq!(count_tries(&mut tries, "claim", lost()).len(), 1);
        assert!(count_tries(&mut tries, "claim", Vec::new()).is_empty());
    }
    assert!(count_tries(&mut tries, "claim", lost()).is_empty(), "also if it knew it in between");
}
