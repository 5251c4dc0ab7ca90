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

fn pending(name: &str, cpu: &str, nominated: Option<&str>) -> (PodReservation, Arc<Pod>) {
    let pod = pod(name, cpu, nominated);
    let state = crate::state::ClusterState::default();
    state.reserve(&pod, "claim", Timestamp::UNIX_EPOCH);
    (state.reservation_of(name).expect("a reservation"), pod)
}

fn decided(on_it: &[Arc<Pod>], pending: Vec<(PodReservation, Arc<Pod>)>) -> (Vec<String>, Vec<String>) {
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}});
    let node: Node = serde_json::from_value(node).expect("a node");
    let RenominationDecision { to_renominate, no_capacity } = decide(&node, on_it, pending);
    let names = |reservations: Vec<PodReservation>| {
        reservations.into_iter().map(|reservation| reservation.pod.name).collect()
    };
    (names(to_renominate), names(no_capacity))
}

#[test]
fn pods_without_nomination_are_nominated_while_they_fit() {
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let three = || vec![pending("a", "2", None), pending("b", "1", None), pending("c", "1", None)];
    assert_eq!(decided(&[], three()), (names(&["a", "b", "c"]), names(&[])));
    // Another pod uses two of the four CPUs of the node.
    assert_eq!(decided(&[pod("x", "2", None)], three()), (names(&["a"]), names(&["b", "c"])));
    // The capacity of a nominated pod is counted first, whatever the names of the pods.
    let nominated = vec![pending("a", "2", None), pending("z", "3", Some("n"))];
    assert_eq!(decided(&[], nominated), (names(&[]), names(&["a"])));
    // A nominated pod loses its reservation if another pod uses the capacity, unless that pod is terminating.
    let nominated = || vec![pending("a", "3", Some("n"))];
    let mut other_pod = (*pod("x", "2", None)).clone();
    assert_eq!(decided(&[Arc::new(other_pod.clone())], nominated()), (names(&[]), names(&["a"])));
    other_pod.deleted_at = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(decided(&[Arc::new(other_pod)], nominated()), (names(&[]), names(&[])));
    // A pod for which the kube-scheduler nominated another node is not nominated again.
    assert_eq!(decided(&[], vec![pending("a", "1", Some("other"))]), (names(&[]), names(&[])));
}

#[test]
fn renominations_per_pod_are_limited() {
    let mut attempts = BTreeMap::new();
    let to_renominate = || vec![pending("a", "1", None).0];
    assert!(count_attempts(&mut attempts, "claim", Vec::new()).is_empty());
    assert!(attempts.is_empty(), "no pod had to be nominated again");
    for _ in 0..NOMINATION_ATTEMPTS_MAX {
        assert_eq!(count_attempts(&mut attempts, "claim", to_renominate()).len(), 1);
        assert!(count_attempts(&mut attempts, "claim", Vec::new()).is_empty());
    }
    assert!(
        count_attempts(&mut attempts, "claim", to_renominate()).is_empty(),
        "attempts count even if the pod had the nomination in between"
    );
}
