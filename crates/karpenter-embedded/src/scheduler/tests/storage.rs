//! Claims and volumes.

use karpenter_runtime::object::ObjectKey;
use serde_json::{Value, json};

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";

fn claim(name: &str, over: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("claim-{name}")},
        "spec": {"storageClassName": "wait", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut claim, over);
    claim
}

fn bound(name: &str, volume: &str) -> Value {
    claim(
        name,
        json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}),
    )
}

fn volume(name: &str, zone: &str, over: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": [zone]}]}]}}},
        "status": {"phase": "Available"},
    });
    merge(&mut volume, over);
    volume
}

fn class(name: &str, over: Value) -> Value {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer"});
    merge(&mut class, over);
    class
}

fn using(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod(name, json!({"volumes": volumes}))
}

struct Storage {
    claims: Vec<Value>,
    volumes: Vec<Value>,
    classes: Vec<Value>,
}

fn with_storage(pods: impl IntoIterator<Item = Value>, storage: Storage) -> Snapshot {
    let mut snapshot = cluster([in_zone("a1", "a"), in_zone("b1", "b")], pods);
    storage.claims.into_iter().for_each(|claim| snapshot.apply_claim(&read(claim)));
    storage.volumes.into_iter().for_each(|volume| snapshot.apply_volume(&read(volume)));
    storage.classes.into_iter().for_each(|class| snapshot.apply_storage_class(&read(class)));
    snapshot
}

fn claims_only(claims: Vec<Value>) -> Storage {
    Storage { claims, volumes: Vec::new(), classes: vec![class("wait", json!({}))] }
}

#[test]
fn unusable_claims_have_their_message() {
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![], "persistentvolumeclaim \"data\" not found"),
        (
            vec![claim("data", json!({"spec": {"storageClassName": "now"}}))],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            vec![claim("data", json!({"spec": {"storageClassName": "absent"}}))],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            vec![claim("data", json!({"spec": {"volumeName": "v"}}))],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            vec![claim("data", json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}))],
            "persistentvolumeclaim \"data\" is being deleted",
        ),
        (
            vec![claim("data", json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}))],
            "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"v\"",
        ),
        (vec![bound("data", "v")], "persistentvolume \"v\" not found"),
    ];
    for (claims, reason) in cases {
        let mut storage = claims_only(claims);
        storage.classes.push(class("now", json!({"volumeBindingMode": "Immediate"})));
        assert_eq!(
            message(&mut with_storage([], storage), using("p", &["data"])),
            format!("0/2 nodes are available: {reason}. not found")
        );
    }
}

#[test]
fn ephemeral_claim_must_exist_and_belong_to_the_pod() {
    let spec = json!({"volumes": [{"name": "scratch", "ephemeral": {}}]});
    assert_refused(
        &mut with_storage([], claims_only(vec![])),
        pod("p", spec.clone()),
        "0/2 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim \
         \"p-scratch\".",
    );
    assert_refused(
        &mut with_storage([], claims_only(vec![claim("p-scratch", json!({}))])),
        pod("p", spec.clone()),
        "0/2 nodes are available: PVC default/p-scratch was not created for pod default/p (pod is not owner).",
    );
    let owned = claim(
        "p-scratch",
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p",
            "controller": true}]}}),
    );
    assert_bound(&mut with_storage([], claims_only(vec![owned])), pod("p", spec), "a1");
}

#[test]
fn bound_volume_limits_nodes_by_its_node_affinity() {
    let storage = |zone: &str| Storage {
        claims: vec![bound("data", "v")],
        volumes: vec![volume("v", zone, json!({}))],
        classes: vec![],
    };
    assert_bound(&mut with_storage([], storage("b")), using("p", &["data"]), "b1");
    assert_refused(
        &mut with_storage([], storage("c")),
        using("p", &["data"]),
        "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.",
    );
}

#[test]
fn bound_volume_limits_nodes_by_its_zone_labels() {
    let labelled = |zones: &str| {
        let mut volume = volume("v", "a", json!({"metadata": {"labels": {ZONE: zones}}}));
        volume["spec"]["nodeAffinity"] = Value::Null;
        Storage { claims: vec![bound("data", "v")], volumes: vec![volume], classes: vec![] }
    };
    assert_bound(&mut with_storage([], labelled("b")), using("p", &["data"]), "b1");
    assert_bound(&mut with_storage([], labelled("c__b")), using("p", &["data"]), "b1");
    assert_refused(
        &mut with_storage([], labelled("c")),
        using("p", &["data"]),
        "0/2 nodes are available: 2 node(s) had no available volume zone.",
    );
}

#[test]
fn unbound_claims_use_smallest_matching_volume_or_provisioning() {
    let storage = Storage {
        claims: vec![claim("data", json!({}))],
        volumes: vec![
            volume("large", "b", json!({"spec": {"capacity": {"storage": "5Gi"}}})),
            volume("medium", "b", json!({"spec": {"capacity": {"storage": "2Gi"}}})),
            volume("small", "b", json!({"spec": {"capacity": {"storage": "1Mi"}}})),
            volume("taken", "b", json!({"spec": {"claimRef": {"namespace": "default", "name": "other"}}})),
            volume("block", "b", json!({"spec": {"volumeMode": "Block"}})),
        ],
        classes: vec![class("wait", json!({"provisioner": "kubernetes.io/no-provisioner"}))],
    };
    let mut snapshot = with_storage([], storage);
    let Decision::Bind { node, volumes } = decide(&mut snapshot, using("p", &["data"])) else { panic!() };
    assert_eq!(&*node, "b1");
    assert_eq!(volumes.bindings, [(ObjectKey::new("default", "data"), "medium".into())]);
    // A volume that is assumed to be bound for another pod is not available.
    snapshot.apply_pod(&read(using("p", &["data"])));
    snapshot.assume(&ObjectKey::new("default", "p"), &node, &volumes);
    snapshot.apply_claim(&read(claim("more", json!({}))));
    let Decision::Bind { volumes, .. } = decide(&mut snapshot, using("q", &["more"])) else { panic!() };
    assert_eq!(volumes.bindings, [(ObjectKey::new("default", "more"), "large".into())]);
    snapshot.remove_volume("large");
    assert_refused(
        &mut snapshot,
        using("q", &["more"]),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    );
}

#[test]
fn provisioning_respects_allowed_topologies_and_selected_node() {
    let allowed =
        json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]});
    let storage = Storage {
        claims: vec![claim("data", json!({}))],
        volumes: vec![],
        classes: vec![class("wait", allowed)],
    };
    let Decision::Bind { node, volumes } = decide(&mut with_storage([], storage), using("p", &["data"]))
    else {
        panic!()
    };
    assert_eq!((&*node, volumes.provisions), ("b1", vec![ObjectKey::new("default", "data")]));
    let chosen =
        claim("data", json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b1"}}}));
    assert_bound(&mut with_storage([], claims_only(vec![chosen])), using("p", &["data"]), "b1");
}

#[test]
fn read_write_once_pod_claim_has_one_user() {
    let exclusive = claim(
        "data",
        json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}}),
    );
    let storage = || Storage {
        claims: vec![exclusive.clone()],
        volumes: vec![volume("v", "a", json!({}))],
        classes: vec![],
    };
    assert_bound(&mut with_storage([], storage()), using("p", &["data"]), "a1");
    let user = || on("a1", using("user", &["data"]));
    assert_refused(
        &mut with_storage([user()], storage()),
        using("p", &["data"]),
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
         already in-use by another pod.",
    );
    // A pod of higher priority may preempt the pod that uses the ReadWriteOncePod claim.
    let mut urgent = using("p", &["data"]);
    merge(&mut urgent, json!({"spec": {"priority": 10}}));
    let decision = decide(&mut with_storage([user()], storage()), urgent);
    let Decision::Nominate { node, victims, .. } = decision else { panic!("{decision:?}") };
    assert_eq!((&*node, victims.len()), ("a1", 1));
}

#[test]
fn attach_limits_of_drivers_are_respected() {
    let limited = |attached: &[&str]| {
        let claims = ["one", "two", "three"].map(|name| bound(name, &format!("v-{name}")));
        let volumes = ["one", "two", "three"].map(|name| volume(&format!("v-{name}"), "a", json!({})));
        let storage = Storage { claims: claims.into(), volumes: volumes.into(), classes: vec![] };
        let mut snapshot = with_storage([on("a1", using("old", &["one"]))], storage);
        snapshot.apply_csi_node(&read(json!({"metadata": {"name": "a1"}, "spec": {"drivers": [
            {"name": "disk.example.com", "nodeID": "a1", "allocatable": {"count": 2}}]}})));
        for name in attached {
            snapshot.apply_attachment(&read(json!({"metadata": {"name": name}, "spec": {"nodeName": "a1",
                "attacher": "disk.example.com", "source": {"persistentVolumeName": name}}})));
        }
        snapshot
    };
    let refused = "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) exceed \
                   max volume count.";
    assert_bound(&mut limited(&[]), using("p", &["two"]), "a1");
    assert_bound(&mut limited(&[]), using("p", &["one", "two"]), "a1");
    assert_refused(&mut limited(&[]), using("p", &["two", "three"]), refused);
    // A volume that is attached counts even if no pod uses it; a volume of a pod on the node counts once.
    assert_bound(&mut limited(&["v-one"]), using("p", &["two"]), "a1");
    assert_refused(&mut limited(&["v-three"]), using("p", &["two"]), refused);
}

#[test]
fn inline_disks_conflict_between_pods() {
    let disk = |name: &str, read_only: bool| {
        pod(
            name,
            json!({"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}}]}),
        )
    };
    let one = || [node("a", json!({}))];
    assert_bound(&mut cluster(one(), [on("a", disk("x", true))]), disk("p", true), "a");
    assert_refused(
        &mut cluster(one(), [on("a", disk("x", true))]),
        disk("p", false),
        "0/1 nodes are available: 1 node(s) had no available disk.",
    );
}
