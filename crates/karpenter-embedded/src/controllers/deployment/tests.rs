use jiff::Timestamp;
use karpenter_runtime::object::{annotation, name_of};
use serde_json::{Value, json};

use super::plan::{bounds, size};
use super::*;
use crate::controllers::fixtures::{at, from, merge, now};

fn deployment(patch: Value) -> Deployment {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "replicas": 4, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v2"}]}},
        },
    });
    merge(&mut object, &patch);
    from(object)
}

/// A ReplicaSet of the Deployment with this image. All its pods exist, and `available` of them are available.
fn set(image: &str, revision: i64, replicas: i32, available: i32) -> Arc<ReplicaSet> {
    Arc::new(from(json!({
        "metadata": {
            "name": format!("web-{image}"), "namespace": "default", "uid": format!("uid-{image}"), "generation": 1,
            "creationTimestamp": format!("2026-01-01T0{revision}:00:00Z"),
            "annotations": {REVISION: revision.to_string(), DESIRED_REPLICAS: "4", MAX_REPLICAS: "5"},
        },
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web", TEMPLATE_HASH: image}},
            "template": {
                "metadata": {"labels": {"app": "web", TEMPLATE_HASH: image}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
        "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available,
            "observedGeneration": 1, "terminatingReplicas": 0},
    })))
}

fn decide(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Plan {
    plan(deployment, sets, |_| false, now())
}

fn sizes(plan: &Plan) -> Vec<(String, i32)> {
    plan.changes.iter().map(|set| (name_of(set).to_string(), size(set))).collect()
}

fn named(name: &str, size: i32) -> (String, i32) {
    (name.to_string(), size)
}

fn condition(plan: &Plan, kind: &str) -> (String, String) {
    let found = plan.status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind}"));
    (found.status.clone(), found.reason.clone().unwrap_or_default())
}

#[test]
fn first_replica_set_gets_all_pods_and_revision_one() {
    let plan = decide(&deployment(json!({})), &[]);
    let created = plan.create.as_ref().expect("a new set");
    assert_eq!(size(created), 4);
    assert_eq!(annotation(created, REVISION), Some("1"));
    assert_eq!(annotation(created, MAX_REPLICAS), Some("5"));
    let hash =
        created.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH)).expect("hash label");
    assert_eq!(name_of(created), format!("web-{hash}"));
    assert_eq!(plan.revision.as_deref(), Some("1"));
    assert_eq!(condition(&plan, "Progressing"), ("True".into(), "NewReplicaSetCreated".into()));
    assert_eq!(condition(&plan, "Available"), ("False".into(), "MinimumReplicasUnavailable".into()));
    assert_eq!(plan.scaled[0].to_string(), format!("Scaled up replica set web-{hash} from 0 to 4"));
}

#[test]
fn new_template_surges_and_then_scales_old_set_down() {
    let deployment = deployment(json!({"metadata": {"annotations": {REVISION: "1"}}}));
    let old = set("v1", 1, 4, 4);
    let first = decide(&deployment, std::slice::from_ref(&old));
    assert_eq!(first.create.as_ref().map(size), Some(1));
    assert_eq!(sizes(&first), [named("web-v1", 3)]);
    assert_eq!(first.revision.as_deref(), Some("2"));
    // Four of the five pods are available and at least three must stay available, so one old pod may be deleted.
    let next = decide(&deployment, &[set("v1", 1, 3, 3), set("v2", 2, 2, 1)]);
    assert_eq!(sizes(&next), [named("web-v1", 2)]);
}

#[test]
fn unavailable_old_pods_are_removed_first() {
    let deployment = deployment(json!({}));
    let plan = decide(&deployment, &[set("v0", 1, 2, 2), set("v1", 2, 2, 0), set("v2", 3, 1, 1)]);
    // Five pods exist and at least three must stay available, so both unavailable pods of the younger ReplicaSet may be
    // deleted.
    assert_eq!(sizes(&plan), [named("web-v1", 0)]);
}

#[test]
fn complete_rollout_is_available_and_progressing() {
    let deployment = deployment(json!({"metadata": {"annotations": {REVISION: "2"}}}));
    let plan = decide(&deployment, &[set("v1", 1, 0, 0), set("v2", 2, 4, 4)]);
    assert!(plan.create.is_none() && plan.changes.is_empty() && plan.revision.is_none());
    assert_eq!(condition(&plan, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(condition(&plan, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(plan.again, None);
    let message = plan.status.conditions.iter().flatten().find_map(|found| found.message.clone());
    assert_eq!(message.as_deref(), Some("Deployment has minimum availability."));
}

#[test]
fn rollback_reuses_old_replica_set_with_new_revision() {
    let deployment = deployment(json!({
        "metadata": {"annotations": {REVISION: "2"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v1"}]}}},
    }));
    let plan = decide(&deployment, &[set("v1", 1, 0, 0), set("v2", 2, 4, 4)]);
    assert!(plan.create.is_none());
    let back = plan.changes.iter().find(|set| name_of(*set) == "web-v1").expect("changed");
    assert_eq!(size(back), 1);
    assert_eq!(annotation(back, REVISION), Some("3"));
    assert_eq!(annotation(back, REVISION_HISTORY), Some("1"));
    assert_eq!(plan.revision.as_deref(), Some("3"));
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let recreate = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    let deployment = deployment(recreate);
    let first = plan(&deployment, &[set("v1", 1, 4, 4)], |_| true, now());
    assert_eq!((first.create.is_some(), sizes(&first)), (false, vec![named("web-v1", 0)]));
    let waiting = plan(&deployment, &[set("v1", 1, 0, 0)], |_| true, now());
    assert!(waiting.create.is_none());
    let last = plan(&deployment, &[set("v1", 1, 0, 0)], |_| false, now());
    assert_eq!(last.create.as_ref().map(size), Some(4));
}

#[test]
fn paused_deployments_scale_but_do_not_roll() {
    let deployment = deployment(json!({"spec": {"paused": true, "replicas": 6}}));
    let plan = decide(&deployment, &[set("v1", 1, 4, 4)]);
    assert!(plan.create.is_none());
    assert_eq!(sizes(&plan), [named("web-v1", 6)]);
    assert_eq!(condition(&plan, "Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
}

#[test]
fn scaling_during_rollout_is_proportional() {
    let deployment = deployment(json!({"spec": {"replicas": 8}}));
    let plan = decide(&deployment, &[set("v1", 1, 3, 3), set("v2", 2, 2, 1)]);
    // The Deployment is scaled from five to ten, and both ReplicaSets double.
    assert_eq!(sizes(&plan), [named("web-v1", 6), named("web-v2", 4)]);
}

#[test]
fn stuck_rollouts_time_out() {
    let progressing = |since: &str| {
        json!({"status": {"replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "lastUpdateTime": since,
             "lastTransitionTime": since},
        ]}})
    };
    let sets = [set("v1", 1, 3, 3), set("v2", 2, 1, 0)];
    let late = decide(&deployment(progressing("2026-01-01T11:49:59Z")), &sets);
    assert_eq!(condition(&late, "Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    let early = decide(&deployment(progressing("2026-01-01T11:55:00Z")), &sets);
    assert_eq!(condition(&early, "Progressing"), ("True".into(), "ReplicaSetUpdated".into()));
    assert_eq!(early.again, Some(std::time::Duration::from_secs(301)));
}

#[test]
fn oldest_sets_beyond_history_limit_are_deleted() {
    let deployment = deployment(json!({
        "spec": {"revisionHistoryLimit": 1},
        "status": {"observedGeneration": 1, "replicas": 4, "updatedReplicas": 4, "availableReplicas": 4},
    }));
    let sets = [set("v0", 1, 0, 0), set("v1", 2, 0, 0), set("v2", 3, 4, 4)];
    assert_eq!(decide(&deployment, &sets).delete, ["web-v0"]);
}

#[test]
fn max_surge_rounds_up_and_max_unavailable_rounds_down() {
    let cases = [
        ("25%", "25%", 10, (3, 2)),
        ("0%", "0%", 3, (0, 1)),
        ("1", "0", 3, (1, 0)),
        ("0", "100%", 2, (0, 2)),
    ];
    for (surge, unavailable, replicas, expected) in cases {
        let value = |text: &str| text.parse::<i32>().map(Value::from).unwrap_or_else(|_| json!(text));
        let patch = json!({"spec": {"replicas": replicas, "strategy": {"rollingUpdate":
            {"maxSurge": value(surge), "maxUnavailable": value(unavailable)}}}});
        let deployment = deployment(patch);
        assert_eq!(bounds(deployment.spec.as_ref().expect("spec")), expected, "{surge} {unavailable}");
    }
}

#[test]
fn rollout_converges_within_surge_and_availability_limits() {
    // In this simulation every new pod is available one pass after its creation. maxSurge and maxUnavailable hold in
    // every pass.
    let mut deployment = deployment(json!({"spec": {"replicas": 10}}));
    let mut sets = vec![set("v1", 1, 10, 10)];
    sets[0] = Arc::new({
        let mut set = ReplicaSet::clone(&sets[0]);
        set.metadata.annotations.get_or_insert_default().insert(DESIRED_REPLICAS.into(), "10".into());
        set
    });
    let mut time: Timestamp = at("2026-01-01T12:00:00Z");
    for _ in 0..50 {
        let plan = plan(&deployment, &sets, |_| false, time);
        let mut next: Vec<ReplicaSet> = sets.iter().map(|set| ReplicaSet::clone(set)).collect();
        for change in plan.changes.iter().chain(&plan.create) {
            match next.iter_mut().find(|set| set.metadata.name == change.metadata.name) {
                Some(set) => *set = change.clone(),
                None => next.push(ReplicaSet {
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        uid: Some("new".into()),
                        creation_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time)),
                        ..change.metadata.clone()
                    },
                    ..change.clone()
                }),
            }
        }
        for set in &mut next {
            let (size, status) = (size(set), set.status.get_or_insert_default());
            status.available_replicas = Some(status.replicas.min(size));
            status.replicas = size;
        }
        deployment.status = Some(plan.status);
        sets = next.into_iter().map(Arc::new).collect();
        let total: i32 = sets.iter().map(|set| size(set)).sum();
        let up: i32 = sets.iter().filter_map(|set| set.status.as_ref()?.available_replicas).sum();
        assert!(total <= 13, "{total} pods");
        assert!(up >= 8, "{up} available");
        time += jiff::SignedDuration::from_secs(1);
    }
    let done: Vec<i32> = sets.iter().map(|set| size(set)).collect();
    assert_eq!(done, [0, 10]);
}
