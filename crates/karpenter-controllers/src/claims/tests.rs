use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::{NodePool as PlannedPool, Problem};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use serde_json::{Value, json};

use super::*;

fn pool(patch: Value) -> NodePool {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "general", "uid": "pool-uid"},
        "spec": {
            "limits": {"cpu": "10"},
            "template": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
                "spec": {
                    "taints": [{"key": "t", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "s", "effect": "NoExecute"}],
                    "requirements": [],
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "720h", "terminationGracePeriod": "1h",
                },
            },
        },
    });
    for (key, value) in patch.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).expect("a pool")
}

fn instance_type(name: &str, offerings: &[(&str, bool)]) -> InstanceType {
    let offering = |(capacity_type, available): &(&str, bool)| Offering {
        requirements: [
            Requirement::in_values(labels::CAPACITY_TYPE, [*capacity_type]),
            Requirement::in_values(labels::ZONE, ["zone-a"]),
        ]
        .into_iter()
        .collect(),
        price_per_hour: 1.0,
        available: *available,
        ..Offering::default()
    };
    InstanceType {
        name: name.into(),
        requirements: Requirements::new(),
        offerings: offerings.iter().map(offering).collect(),
        capacity: ResourceList::new(),
        overhead: ResourceList::new(),
        volume_attachment_limits: BTreeMap::new(),
    }
}

fn claim(requirements: Vec<Requirement>) -> NodeClaim {
    let catalog = vec![
        instance_type("large", &[("on-demand", true)]),
        instance_type("small", &[("spot", false), ("on-demand", true)]),
        instance_type("unused", &[("reserved", true)]),
    ];
    let mut problem = Problem { catalogs: vec![Arc::new(catalog)], ..Problem::default() };
    problem.well_known = [labels::INSTANCE_TYPE, labels::CAPACITY_TYPE, labels::ZONE, labels::NODEPOOL]
        .map(Arc::from)
        .into_iter()
        .collect();
    problem.pools.push(PlannedPool {
        name: "general".into(),
        weight: 0,
        requirements: Requirements::new(),
        labels: Default::default(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    });
    let planned = PlannedNode {
        pool: 0,
        instance_type: 1,
        offering: 1,
        price_per_hour: 1.0,
        instance_type_options: vec![1, 0],
        requirements: requirements.into_iter().collect(),
        requests: [("cpu", 1500), ("memory", 1 << 30), ("pods", 3), ("gpu", 0)]
            .map(|(name, amount)| (Arc::from(name), amount))
            .into_iter()
            .collect(),
        pods: Vec::new(),
        min_values_relaxed: false,
    };
    claim_from_plan(&problem, &planned, &pool(json!({})))
}

fn requirements_of(claim: &NodeClaim) -> Vec<String> {
    let line = |one: &ApiRequirement| {
        let minimum = one.min_values.map(|count| format!(" min {count}")).unwrap_or_default();
        format!("{} {} {}{minimum}", one.key, one.operator, one.values.join(","))
    };
    claim.spec.requirements.iter().map(line).collect()
}

#[test]
fn nodeclaim_has_template_of_nodepool_and_requirements_of_plan() {
    let claim = claim(vec![
        Requirement::in_values(labels::ZONE, ["zone-a"]),
        Requirement::in_values(labels::NODEPOOL, ["general"]),
        Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(2)),
        Requirement::in_values(labels::HOSTNAME, ["planned-1"]),
        Requirement::in_values(labels::REGISTERED, ["true"]),
    ]);
    assert_eq!(
        requirements_of(&claim),
        [
            "karpenter.sh/capacity-type In on-demand",
            "karpenter.sh/nodepool In general",
            "node.kubernetes.io/instance-type In large,small min 2",
            "topology.kubernetes.io/zone In zone-a",
        ]
    );
    let written = serde_json::to_value(&claim).expect("JSON");
    assert_eq!(
        written["metadata"]["ownerReferences"],
        json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "general", "uid": "pool-uid",
            "blockOwnerDeletion": true}])
    );
    assert_eq!(written["metadata"]["generateName"], "general-");
    assert_eq!(
        written["metadata"]["labels"],
        json!({"team": "a", "karpenter.sh/nodepool": "general", "karpenter.kwok.sh/kwoknodeclass": "default"})
    );
    let hash = node_pool_hash(&pool(json!({}))).to_string();
    assert_eq!(
        written["metadata"]["annotations"],
        json!({"note": "b", "karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3",
            "karpenter.sh/nodeclaim-min-values-relaxed": "false"})
    );
    let spec = &written["spec"];
    assert_eq!(spec["resources"]["requests"], json!({"cpu": "1500m", "memory": "1Gi", "pods": "3"}));
    assert_eq!((&spec["expireAfter"], &spec["terminationGracePeriod"]), (&json!("720h"), &json!("1h0m0s")));
    assert_eq!((&spec["taints"][0]["key"], &spec["startupTaints"][0]["key"]), (&json!("t"), &json!("s")));
    assert_eq!(spec["nodeClassRef"]["name"], "default");
}

#[test]
fn user_defined_labels_get_one_value() {
    let claim = claim(vec![
        Requirement::in_values("example.com/rack", ["r2", "r1"]),
        Requirement::new("example.com/size", Operator::Gt, ["3"]),
        Requirement::does_not_exist("example.com/none"),
        Requirement::in_values("team", ["ignored: the template decides"]),
        Requirement::in_values("karpenter.kwok.sh/instance-cpu", ["4"]),
    ]);
    let labels = claim.metadata.labels.as_ref().expect("labels");
    let custom: Vec<_> = labels
        .iter()
        .filter(|(key, _)| !key.starts_with("karpenter."))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(custom, ["example.com/rack=r1", "example.com/size=4", "team=a"]);
}

#[test]
fn bounds_and_exclusions_are_separate_requirements() {
    let mut both = Requirement::new("cpu", Operator::Gt, ["3"]);
    both = both.intersection(&Requirement::new("cpu", Operator::Lte, ["9"]));
    both = both.intersection(&Requirement::new("cpu", Operator::NotIn, ["5"])).with_min_values(Some(2));
    let lines: Vec<_> = super::to_api_requirements(&both)
        .iter()
        .map(|one| (one.operator.clone(), one.values.join(","), one.min_values))
        .collect();
    let text = |operator: &str, value: &str, minimum| (operator.to_owned(), value.to_owned(), minimum);
    assert_eq!(lines, [text("Gte", "4", Some(2)), text("Lte", "9", None), text("NotIn", "5", None)]);
    assert_eq!(super::to_api_requirements(&Requirement::exists("a"))[0].operator, "Exists");
    assert_eq!(super::to_api_requirements(&Requirement::does_not_exist("a"))[0].operator, "DoesNotExist");
}

#[test]
fn nodeclaim_is_not_created_if_nodepool_changed_or_exceeds_limits() {
    let usage = |cpu: i64| [(Arc::from("cpu"), cpu)].into_iter().collect::<ResourceList>();
    let planned = pool(json!({}));
    assert_eq!(check_still_launchable(&planned, &planned, &usage(10_000)), None);
    let over = check_still_launchable(&planned, &planned, &usage(10_001)).expect("over the limit");
    assert_eq!(over, "cpu resource usage of 10001m exceeds limit of 10");
    let changed = pool(json!({"weight": 3}));
    assert!(check_still_launchable(&changed, &planned, &usage(0)).expect("changed").contains("has changed"));
    let mut deleted = planned.clone();
    deleted.metadata.uid = Some("another".to_owned());
    assert!(check_still_launchable(&deleted, &planned, &usage(0)).expect("gone").contains("is gone"));
}

#[test]
fn nodeclaim_of_static_nodepool_has_requirements_of_template() {
    let pool = pool(json!({"replicas": 3}));
    let mut with = pool.clone();
    with.spec.template.spec.requirements = serde_json::from_value(json!([
        {"key": "example.com/shelf", "operator": "In", "values": ["b", "a"]},
        {"key": labels::ZONE, "operator": "In", "values": ["zone-a", "zone-b"]},
    ]))
    .expect("requirements");
    let claim = claim_from_template(&with);
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    let shelf = labels.get("example.com/shelf").cloned().unwrap_or_default();
    assert!(["a", "b"].contains(&shelf.as_str()), "one of the values of the user-defined label: {labels:?}");
    assert_eq!(labels.get("team").map(String::as_str), Some("a"));
    assert_eq!(labels.get(labels::NODEPOOL).map(String::as_str), Some("general"));
    assert_eq!(labels.get(labels::ZONE), None, "the provider chooses");
    let keys: Vec<&str> = claim.spec.requirements.iter().map(|one| one.key.as_str()).collect();
    assert!(!keys.contains(&labels::INSTANCE_TYPE), "{keys:?}");
    assert_eq!(keys.iter().filter(|key| **key == labels::ZONE).count(), 1);
    assert_eq!(keys.iter().filter(|key| **key == "example.com/shelf").count(), 1);
    assert_eq!(claim.spec.resources, None);
    assert_eq!(claim.metadata.generate_name.as_deref(), Some("general-"));
    assert_eq!(claim.spec.expire_after, pool.spec.template.spec.expire_after);
}
