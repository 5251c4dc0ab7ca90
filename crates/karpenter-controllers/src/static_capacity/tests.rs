use std::sync::Arc;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_state::cost::DeletionCosts;
use karpenter_state::pod::Pod;
use serde_json::{Value, json};

use super::deprovisioning::surplus::{Member, choose};
use super::provisioning::missing;
use crate::claims::node_limits::Counts;

fn claim(name: &str, patch: Value) -> NodeClaim {
    let mut object = json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        "status": {"providerID": format!("toy://{name}")},
    });
    for (key, value) in patch.as_object().into_iter().flatten() {
        for (field, value) in value.as_object().into_iter().flatten() {
            object[key][field] = value.clone();
        }
    }
    serde_json::from_value(object).expect("a claim")
}

fn pod(annotations: Value, owner: Option<&str>) -> Arc<Pod> {
    let owners: Vec<Value> = owner
        .map(|kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}))
        .into_iter()
        .collect();
    let object = json!({"metadata": {"name": "p", "namespace": "default", "annotations": annotations,
        "ownerReferences": owners}, "spec": {"containers": []}, "status": {"phase": "Running"}});
    Arc::new(serde_json::from_value(object).expect("a pod"))
}

fn is(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn nodeclaims_are_counted_by_state() {
    let claims = [
        claim("stays", json!({})),
        claim("marked", json!({})),
        claim("told", json!({"status": {"conditions": [is("DisruptionReason", "True")]}})),
        claim("untold", json!({"status": {"conditions": [is("DisruptionReason", "False")]}})),
        claim(
            "restarted",
            json!({"status": {"conditions": [is("DisruptionReason", "True"), is("Rebooting", "True")]}}),
        ),
        claim("going", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ];
    let counts = Counts::of(&claims, |name| name == "marked" || name == "going");
    assert_eq!(counts, Counts { active: 3, pending_disruption: 2, deleting: 1 });
    assert_eq!(counts.all(), 6);
}

#[test]
fn missing_nodes_account_for_pending_replacements() {
    let missing = |active, pending_disruption, replicas| {
        missing(Counts { active, pending_disruption, deleting: 7 }, replicas)
    };
    assert_eq!(missing(3, 0, 5), 2);
    assert_eq!(missing(5, 0, 5), 0);
    assert_eq!(missing(7, 0, 5), 0);
    assert_eq!(missing(4, 1, 5), 0, "a candidate still counts");
    assert_eq!(missing(3, 1, 5), 2, "its replacement counts as active");
}

#[test]
fn surplus_is_deleted_in_order_of_disruption_cost() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
    let unlaunched = claim("z-unlaunched", json!({"status": {"providerID": ""}}));
    let (empty, daemons) = (claim("y-empty", json!({})), claim("x-daemons", json!({})));
    let (small, large) = (claim("small", json!({})), claim("large", json!({})));
    // Half of the claim's lifetime has passed, so its disruption cost is half of the three for its pods: 1.5.
    let old = claim("old", json!({"spec": {"expireAfter": "24h"}}));
    let kept = claim("a-kept", json!({}));
    let kept_daemon = claim("b-kept", json!({}));
    let plain = |count: usize| vec![pod(json!({}), Some("ReplicaSet")); count];
    let do_not_disrupt = |owner: &str| vec![pod(json!({"karpenter.sh/do-not-disrupt": "true"}), Some(owner))];
    let daemon = vec![pod(json!({}), Some("DaemonSet"))];
    let (one, two, three) = (plain(1), plain(2), plain(3));
    let (kept_pods, kept_daemons) = (do_not_disrupt("ReplicaSet"), do_not_disrupt("DaemonSet"));
    let members = [
        Member { claim: &kept_daemon, pods: &kept_daemons },
        Member { claim: &kept, pods: &kept_pods },
        Member { claim: &large, pods: &two },
        Member { claim: &old, pods: &three },
        Member { claim: &small, pods: &one },
        Member { claim: &empty, pods: &[] },
        Member { claim: &daemons, pods: &daemon },
        Member { claim: &unlaunched, pods: &[] },
    ];
    let order = ["z-unlaunched", "x-daemons", "y-empty", "small", "old", "large", "a-kept", "b-kept"];
    for count in 0..=order.len() {
        assert_eq!(choose(&members, count, DeletionCosts::SetByUsers, now), order[..count]);
    }
}
