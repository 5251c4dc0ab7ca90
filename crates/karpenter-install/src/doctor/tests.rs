use super::facts::{Access, Server};
use super::gather::{ahead_secs, read_date};
use super::*;
use crate::controllers::{Controller, Program};
use crate::leases::Lease;
use crate::manifests::Permission;
use jiff::Timestamp;
use karpenter_api::crds;
use karpenter_api::labels::Provider;
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

const NOW: &str = "2026-01-01T12:00:00Z";
const LONG_AGO: &str = "2026-01-01T08:00:00Z";

fn definition(crd: &crds::Crd) -> Value {
    let ours: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
    let schema = &ours["spec"]["versions"][0]["schema"];
    json!({"kind": "CustomResourceDefinition", "metadata": {"name": crd.name},
        "spec": {"names": {"plural": crd.name.split('.').next()},
            "versions": [{"name": crd.version, "served": true, "storage": true, "schema": schema}]},
        "status": {"storedVersions": [crd.version], "conditions": [{"type": "Established", "status": "True"}]}})
}

fn ready(kind: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["creationTimestamp"] = json!(LONG_AGO);
    object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}, {"type": "Registered", "status": "True"},
        {"type": "Launched", "status": "True"}]);
    object
}

fn lease() -> Lease {
    Lease {
        namespace: "kube-system".to_owned(),
        name: "karpenter-leader-election".to_owned(),
        holder: "pod_1".to_owned(),
        renewed: Some(at(NOW)),
        duration_secs: 15,
    }
}

fn controller() -> Controller {
    Controller {
        namespace: "kube-system".to_owned(),
        name: "karpenter".to_owned(),
        provider: Some(Provider::Kwok),
        replicas: 2,
        ready: 2,
        ..Controller::default()
    }
}

/// A cluster without faults, with a NodePool, its node class, a NodeClaim and its Node.
fn healthy() -> Facts {
    let held = json!({"metadata": {"finalizers": ["karpenter.sh/termination"]}});
    let mut claim = ready("NodeClaim", "c", held.clone());
    claim["status"]["nodeName"] = json!("n");
    let mut node = ready("Node", "n", held);
    node["metadata"]["labels"] = json!({"karpenter.sh/nodepool": "p"});
    let reference = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool = json!({"spec": {"template": {"spec": {"nodeClassRef": reference}}}});
    Facts {
        now: at(NOW),
        provider: Some(Provider::Kwok),
        server: Ok(Server { version: "v1.35.0".to_owned(), minor: Some(35), ahead_secs: Some(0) }),
        definitions: Ok(crds::all().iter().map(definition).collect()),
        controllers: Ok(vec![controller()]),
        leases: Ok(vec![lease()]),
        access: Some(Access {
            account: "kube-system/karpenter".to_owned(),
            exists: Ok(true),
            checked_count: 60,
            missing: Vec::new(),
            unanswered: None,
        }),
        pools: Ok(vec![ready("NodePool", "p", pool)]),
        claims: Ok(vec![claim]),
        classes: Ok(vec![ready(
            "KWOKNodeClass",
            "default",
            json!({"apiVersion": "karpenter.kwok.sh/v1alpha1"}),
        )]),
        old: Ok(Vec::new()),
        nodes: Ok(vec![node, ready("Node", "of-others", json!({}))]),
    }
}

fn set(facts: &mut super::facts::Observed<Vec<Value>>, pointer: &str, value: Value) {
    let object = facts.as_mut().expect("observed").first_mut().expect("one");
    match object.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').expect("a path");
            object.pointer_mut(parent).expect("a parent")[key] = value;
        }
    }
}

fn switch_on(facts: &mut Facts, variable: &str, value: &str) {
    let controller = facts.controllers.as_mut().expect("observed").first_mut().expect("one");
    controller.variables.insert(variable.to_owned(), value.to_owned());
}

fn without(facts: &mut Facts, definition: &str) {
    facts.definitions.as_mut().expect("observed").retain(|one| one["metadata"]["name"] != definition);
}

fn stop_controllers(facts: &mut Facts) {
    facts.controllers = Ok(Vec::new());
    facts.leases = Ok(Vec::new());
}

#[test]
fn healthy_cluster_has_only_ok_findings() {
    let found = findings(&healthy());
    let bad: Vec<&Finding> = found.iter().filter(|finding| finding.level != Level::Ok).collect();
    assert!(bad.is_empty(), "{bad:?}");
    for check in [
        "api-server",
        "clock",
        "definitions",
        "controller",
        "lease",
        "permissions",
        "pools",
        "classes",
        "claims",
        "nodes",
        "finalizers",
    ] {
        assert!(found.iter().any(|finding| finding.check == check), "no finding for {check}");
    }
}

/// Each case changes a cluster without faults, and states the check, level and text of the finding that must result.
#[test]
fn every_fault_is_reported_with_a_fix() {
    type Damage = fn(&mut Facts);
    let cases: [(&str, Level, &str, Damage); 40] = [
        ("api-server", Level::Fail, "does not respond: refused", |facts| {
            facts.server = Err("refused".to_owned())
        }),
        ("api-server", Level::Fail, "v1.24.9", |facts| {
            facts.server = Ok(Server { version: "v1.24.9".to_owned(), minor: Some(24), ahead_secs: None });
        }),
        ("clock", Level::Warn, "30 s behind", |facts| {
            facts.server = Ok(Server { ahead_secs: Some(-30), ..facts.server.clone().expect("one") });
        }),
        ("clock", Level::Fail, "600 s ahead of", |facts| {
            facts.server = Ok(Server { ahead_secs: Some(600), ..facts.server.clone().expect("one") });
        }),
        ("clock", Level::Warn, "pod_1 writes a renewal time 60 s in the future", |facts| {
            facts.leases = Ok(vec![Lease { renewed: Some(at("2026-01-01T12:01:00Z")), ..lease() }]);
        }),
        ("definitions", Level::Fail, "nodepools.karpenter.sh is missing", |facts| {
            facts.definitions.as_mut().expect("some").remove(0);
        }),
        (
            "definitions",
            Level::Warn,
            "the CRD nodepools.karpenter.sh in the cluster differs from the one of this Karpenter version",
            |facts| {
                let weight = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight";
                set(&mut facts.definitions, weight, json!({"type": "string"}));
            },
        ),
        ("definitions", Level::Fail, "provisioners.karpenter.sh is missing, and the controller", |facts| {
            switch_on(facts, "LEGACY_API", "true");
        }),
        ("definitions", Level::Fail, "nodeoverlays.karpenter.sh is missing, and the feature gate", |facts| {
            switch_on(facts, "FEATURE_GATES", "NodeOverlay=true");
            without(facts, "nodeoverlays.karpenter.sh");
        }),
        ("definitions", Level::Fail, "is missing, and the feature gate CapacityBuffer is enabled", |facts| {
            switch_on(facts, "FEATURE_GATES", "NodeOverlay=false,CapacityBuffer=true");
            without(facts, "capacitybuffers.autoscaling.x-k8s.io");
        }),
        ("definitions", Level::Fail, "does not serve v1, only v1beta1", |facts| {
            set(&mut facts.definitions, "/spec/versions/0/name", json!("v1beta1"));
        }),
        ("definitions", Level::Warn, "is stored as nothing", |facts| {
            set(&mut facts.definitions, "/spec/versions/0/storage", json!(false));
        }),
        ("definitions", Level::Warn, "may still be stored as v1beta1", |facts| {
            set(&mut facts.definitions, "/status/storedVersions", json!(["v1beta1", "v1"]));
        }),
        ("definitions", Level::Fail, "is not served", |facts| {
            set(&mut facts.definitions, "/status/conditions/0/status", json!("False"));
        }),
        ("definitions", Level::Fail, "webhook kube-system/karpenter", |facts| {
            let service = json!({"namespace": "kube-system", "name": "karpenter"});
            let conversion =
                json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}});
            set(&mut facts.definitions, "/spec/conversion", conversion);
        }),
        ("definitions", Level::Warn, "cannot read: forbidden", |facts| {
            facts.definitions = Err("forbidden".to_owned())
        }),
        ("classes", Level::Warn, "podsPerCore, which Bottlerocket does not support", |facts| {
            let spec = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "kubelet": {"podsPerCore": 4}});
            set(&mut facts.classes, "/spec", spec);
        }),
        ("classes", Level::Warn, "several addresses in spec.kubelet.clusterDNS", |facts| {
            let kubelet = json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"]});
            set(&mut facts.classes, "/spec", json!({"amiFamily": "AL2", "kubelet": kubelet}));
        }),
        ("old-api", Level::Warn, "1 objects of the v1alpha5 API", |facts| facts.old = Ok(vec![json!({})])),
        ("controller", Level::Fail, "no active controller", stop_controllers),
        ("controller", Level::Fail, "0 of 2 replicas", |facts| {
            facts.controllers = Ok(vec![Controller { ready: 0, ..controller() }]);
        }),
        ("controller", Level::Warn, "1 of 2 replicas", |facts| {
            facts.controllers = Ok(vec![Controller { ready: 1, ..controller() }]);
        }),
        ("controller", Level::Fail, "several controllers are installed", |facts| {
            let other = Controller { namespace: "k".to_owned(), program: Program::Other, ..controller() };
            facts.controllers = Ok(vec![controller(), other]);
        }),
        ("lease", Level::Fail, "several controllers hold a lease", |facts| {
            facts.leases = Ok(vec![lease(), Lease { namespace: "other".to_owned(), ..lease() }]);
        }),
        ("lease", Level::Fail, "last renewed 14400 s ago", |facts| {
            facts.leases = Ok(vec![Lease { renewed: Some(at(LONG_AGO)), ..lease() }]);
        }),
        ("permissions", Level::Warn, "not checked", |facts| facts.access = None),
        ("permissions", Level::Fail, "does not exist", |facts| {
            facts.access.as_mut().expect("some").exists = Ok(false);
        }),
        ("permissions", Level::Warn, "cannot review", |facts| {
            facts.access.as_mut().expect("some").unanswered = Some("forbidden".to_owned());
        }),
        ("permissions", Level::Fail, "lacks permissions: create pods/eviction", |facts| {
            facts.access.as_mut().expect("some").missing = vec![Permission {
                group: String::new(),
                resource: "pods".to_owned(),
                subresource: "eviction".to_owned(),
                verb: "create".to_owned(),
                namespace: String::new(),
                name: String::new(),
            }];
        }),
        ("classes", Level::Fail, "SubnetsReady: none match", |facts| {
            let conditions = json!([{"type": "Ready", "status": "False"},
                {"type": "SubnetsReady", "status": "False", "message": "none match"}]);
            set(&mut facts.classes, "/status/conditions", conditions);
        }),
        ("pools", Level::Fail, "names the KWOKNodeClass default, which does not exist", |facts| {
            facts.classes = Ok(Vec::new());
        }),
        ("pools", Level::Warn, "there are no NodePools", |facts| facts.pools = Ok(Vec::new())),
        ("pools", Level::Warn, "has no status", |facts| {
            set(&mut facts.pools, "/status/conditions", json!([]))
        }),
        ("claims", Level::Fail, "has no node after 240 min", |facts| {
            set(&mut facts.claims, "/status/conditions/1/status", json!("Unknown"));
        }),
        ("spot-role", Level::Fail, "ServiceLinkedRoleCreationNotPermitted", |facts| {
            let launched = json!({"type": "Launched", "status": "Unknown", "reason": "LaunchFailed",
                "message": "AuthFailure.ServiceLinkedRoleCreationNotPermitted: no"});
            set(&mut facts.claims, "/status/conditions/2", launched);
        }),
        ("nodes", Level::Fail, "Node n is not ready", |facts| {
            set(&mut facts.nodes, "/status/conditions/0/status", json!("Unknown"));
        }),
        ("nodes", Level::Fail, "karpenter.sh/unregistered after 240 min", |facts| {
            set(
                &mut facts.nodes,
                "/spec",
                json!({"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}),
            );
        }),
        ("nodes", Level::Warn, "no NodeClaim", |facts| facts.claims = Ok(Vec::new())),
        ("finalizers", Level::Warn, "has been terminating for 240 min", |facts| {
            set(&mut facts.claims, "/metadata/deletionTimestamp", json!(LONG_AGO));
        }),
        ("finalizers", Level::Fail, "NodeClaim c terminating", |facts| {
            stop_controllers(facts);
            set(&mut facts.claims, "/metadata/deletionTimestamp", json!(NOW));
        }),
    ];
    for (check, level, text, damage) in cases {
        let mut facts = healthy();
        damage(&mut facts);
        let found = findings(&facts);
        let hit = found.iter().find(|finding| finding.check == check && finding.message.contains(text));
        let hit = hit.unwrap_or_else(|| panic!("{check} {text}: {found:#?}"));
        assert_eq!(hit.level, level, "{hit:?}");
        assert!(hit.fix.as_ref().is_some_and(|fix| !fix.is_empty()), "{hit:?}");
    }
}

/// The controller deletes a NodeClaim after 15 minutes, so a later report would never be made.
#[test]
fn claim_without_node_is_reported_before_the_registration_timeout() {
    let now: jiff::Timestamp = NOW.parse().expect("a time");
    for (minutes, is_reported) in [(4, false), (6, true), (14, true)] {
        let mut facts = healthy();
        let created = now - jiff::SignedDuration::from_mins(minutes);
        set(&mut facts.claims, "/metadata/creationTimestamp", json!(created.to_string()));
        set(&mut facts.claims, "/status/conditions/1/status", json!("Unknown"));
        let found = findings(&facts);
        let hit = found.iter().any(|finding| finding.message.contains("has no node after"));
        assert_eq!(hit, is_reported, "{minutes} minutes: {found:#?}");
    }
}

#[test]
fn taints_and_finalizers_are_faults_only_without_active_controller() {
    let mut facts = healthy();
    set(
        &mut facts.nodes,
        "/spec",
        json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}),
    );
    assert!(!findings(&facts).iter().any(|finding| finding.level == Level::Fail), "it is being disrupted");
    stop_controllers(&mut facts);
    let found = findings(&facts);
    assert!(found.iter().any(|finding| finding.check == "nodes" && finding.message.contains("disrupted")));
    let left = found.iter().find(|finding| finding.check == "finalizers").expect("reported");
    assert_eq!(left.level, Level::Warn);
    assert!(left.message.contains("NodeClaim c") && left.message.contains("Node n"), "{left:?}");
}

#[test]
fn controller_outside_of_the_cluster_is_active_by_its_lease() {
    let facts = Facts { controllers: Ok(Vec::new()), ..healthy() };
    let found = findings(&facts);
    assert!(
        found.iter().any(|finding| finding.check == "controller" && finding.level == Level::Ok),
        "{found:?}"
    );
}

#[test]
fn clock_difference_is_zero_within_the_request() {
    let date = read_date("Thu, 01 Jan 2026 12:00:05 GMT").expect("a date");
    assert_eq!(date, at("2026-01-01T12:00:05Z"));
    assert_eq!(ahead_secs(date, at("2026-01-01T12:00:05.9Z"), at("2026-01-01T12:00:06.1Z")), 0);
    assert_eq!(ahead_secs(date, at("2026-01-01T12:00:01Z"), at("2026-01-01T12:00:02Z")), 3);
    assert_eq!(ahead_secs(date, at("2026-01-01T12:00:10Z"), at("2026-01-01T12:00:11Z")), -5);
    assert_eq!(read_date("yesterday"), None);
}

#[test]
fn known_error_messages_are_explained() {
    let pull = "could not download chart: pulling from host registry.example failed with status code [manifests v0.27.3]: \
                403 Forbidden";
    assert!(explain(pull).and_then(|finding| finding.fix).expect("known").contains("logout"));
    let role =
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted: The provided credentials do not have permission";
    assert!(explain(role).and_then(|finding| finding.fix).expect("known").contains("spot.amazonaws.com"));
    assert_eq!(explain("all is well"), None);
}
