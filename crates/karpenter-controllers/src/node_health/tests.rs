use karpenter_cloud::RepairPolicy;
use serde_json::json;

use super::matching::NodeCondition;
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).expect("a time")
}

fn policy(pair: &str, reason: &str, toleration_secs: u64) -> RepairPolicy {
    let (kind, status) = pair.split_once('=').expect("type=status");
    RepairPolicy {
        condition_type: kind.to_owned(),
        condition_status: status.to_owned(),
        reason_regex: reason.to_owned(),
        toleration_secs,
        termination_grace_period_secs: None,
        priority: 0,
        action: RepairAction::Replace,
    }
}

fn set(more: Vec<RepairPolicy>) -> RepairPolicies {
    let mut all = vec![policy("Ready=False", "", 600)];
    all.extend(more);
    RepairPolicies::new(all).expect("valid policies")
}

fn condition<'a>(kind: &'a str, reason: &'a str, since: i64) -> NodeCondition<'a> {
    NodeCondition { kind, status: "True", reason, since: Some(at(since)) }
}

fn facts_with<'a>(conditions: &[NodeCondition<'a>]) -> HealthFacts<'a> {
    HealthFacts { conditions: conditions.to_vec(), created_at: at(0), rebooted_at: None }
}

#[test]
fn toleration_counts_from_latest_of_transition_creation_and_reboot() {
    let policies = set(vec![policy("A=True", ".*", 30)]);
    let eligible = |facts: &HealthFacts<'_>, now: i64| {
        match_policies(&policies, facts, at(now)).map(|found| found.eligible_at)
    };
    let unhealthy = facts_with(&[condition("A", "R", 100)]);
    assert_eq!(eligible(&unhealthy, 129), None);
    assert_eq!(eligible(&unhealthy, 130), Some(at(130)));
    // If the node was created after the transition, the toleration counts from its creation.
    assert_eq!(eligible(&HealthFacts { created_at: at(500), ..unhealthy.clone() }, 529), None);
    assert_eq!(eligible(&HealthFacts { created_at: at(500), ..unhealthy.clone() }, 530), Some(at(530)));
    // If the node was rebooted after the transition, the toleration counts from the reboot.
    assert_eq!(eligible(&HealthFacts { rebooted_at: Some(at(900)), ..unhealthy.clone() }, 929), None);
    assert_eq!(eligible(&HealthFacts { rebooted_at: Some(at(900)), ..unhealthy }, 931), Some(at(930)));
    // A condition without a transition time counts from the creation of the node.
    let timeless = facts_with(&[NodeCondition { since: None, ..condition("A", "R", 0) }]);
    assert_eq!(eligible(&timeless, 30), Some(at(30)));
    // A reason that the policy does not match falls to the fallback policy, which has its own toleration.
    let other = set(vec![policy("A=True", "^No", 30)]);
    let found =
        match_policies(&other, &facts_with(&[condition("A", "Yes", 0)]), at(600)).expect("the fallback");
    assert_eq!((found.is_fallback, found.eligible_at), (true, at(600)));
    let healthy = facts_with(&[NodeCondition { status: "False", ..condition("A", "Yes", 0) }]);
    assert_eq!(match_policies(&other, &healthy, at(9999)), None);
}

#[test]
fn policy_is_chosen_by_action_then_priority_then_age_then_name() {
    let reboot = |pair: &str, toleration| RepairPolicy {
        action: RepairAction::Reboot,
        ..policy(pair, ".*", toleration)
    };
    let urgent = |base: RepairPolicy, priority| RepairPolicy { priority, ..base };
    let names = |policies: Vec<RepairPolicy>, conditions: &[NodeCondition<'_>], now: i64| {
        let found = match_policies(&set(policies), &facts_with(conditions), at(now)).expect("a match");
        (found.condition_type, found.action)
    };
    let both = [condition("A", "R", 0), condition("B", "R", 0)];
    // If several policies match, the more disruptive action decides, regardless of priority.
    assert_eq!(
        names(vec![urgent(reboot("A=True", 0), 100), policy("B=True", ".*", 0)], &both, 10),
        ("B".to_owned(), RepairAction::Replace)
    );
    // A policy whose toleration has not passed does not count.
    assert_eq!(
        names(vec![reboot("A=True", 0), policy("B=True", ".*", 60)], &both, 10),
        ("A".to_owned(), RepairAction::Reboot)
    );
    // Of policies with the same action, the one with the higher priority decides; then the one whose toleration passed
    // earlier; then the condition with the smaller name.
    let replace = RepairAction::Replace;
    let (a, b) = (policy("A=True", ".*", 5), policy("B=True", ".*", 5));
    assert_eq!(names(vec![a.clone(), urgent(b.clone(), 1)], &both, 10), ("B".to_owned(), replace));
    let earlier = [condition("A", "R", 1), condition("B", "R", 0)];
    assert_eq!(names(vec![a.clone(), b.clone()], &earlier, 10), ("B".to_owned(), replace));
    let backwards = [condition("B", "R", 0), condition("A", "R", 0)];
    assert_eq!(names(vec![a, b], &backwards, 10), ("A".to_owned(), replace));
}

#[test]
fn shortest_grace_period_of_due_policies_applies() {
    let bounded = |pair: &str, toleration, seconds| RepairPolicy {
        termination_grace_period_secs: Some(seconds),
        action: RepairAction::Reboot,
        ..policy(pair, ".*", toleration)
    };
    let policies = set(vec![policy("A=True", ".*", 0), bounded("B=True", 30, 60), bounded("C=True", 60, 0)]);
    let unhealthy = facts_with(&[condition("A", "R", 0), condition("B", "R", 0), condition("C", "R", 0)]);
    let bound = |now: i64| {
        match_policies(&policies, &unhealthy, at(now)).and_then(|found| found.termination_grace_period_secs)
    };
    // The policy of condition A decides the action. The shorter grace period of another policy applies when its
    // toleration has passed, too.
    assert_eq!([bound(29), bound(30), bound(60)], [None, Some(60), Some(0)]);
}

#[test]
fn score_is_the_maximum_of_rank_plus_age_in_half_hours() {
    let ranked = |pair: &str, priority| RepairPolicy { priority, ..policy(pair, ".*", 0) };
    // The priorities 0 (the fallback policy), 7 and 100 have the ranks 0, 1 and 2.
    let policies = set(vec![ranked("A=True", 7), ranked("B=True", 100)]);
    let score = |conditions: &[NodeCondition<'_>], now: i64| {
        match_policies(&policies, &facts_with(conditions), at(now)).map(|found| found.score)
    };
    assert_eq!(score(&[condition("A", "R", 0)], 0), Some(1.0));
    assert_eq!(score(&[condition("A", "R", 0)], 900), Some(1.5));
    assert_eq!(score(&[condition("B", "R", 0)], 1800), Some(3.0));
    // At 900 s, condition B has the higher score because of its rank. At 3600 s, condition A has it because of its age
    // of two half hours.
    let both = |fresh: i64| [condition("A", "R", 0), condition("B", "R", fresh)];
    assert_eq!(score(&both(900), 900), Some(2.0));
    assert_eq!(score(&both(3600), 3600), Some(3.0));
}

#[test]
fn node_is_replaced_after_the_maximum_number_of_reboots() {
    let reboot = RepairPolicy { action: RepairAction::Reboot, ..policy("A=True", ".*", 0) };
    let policies = set(vec![RepairPolicy { termination_grace_period_secs: Some(60), ..reboot }]);
    let found = match_policies(&policies, &facts_with(&[condition("A", "Why", 0)]), at(0)).expect("a match");
    let first = case(found.clone(), false, false);
    assert_eq!(
        (&*first.repair.condition, first.repair.is_reboot, first.is_escalated),
        ("A/Why", true, false)
    );
    assert_eq!(first.repair.termination_grace_period_secs, Some(60));
    let third = case(found, true, true);
    assert_eq!((third.repair.is_reboot, third.is_escalated, third.repair.is_vetoed), (false, true, true));
}

#[test]
fn do_not_repair_needs_the_value_true_and_last_reboot_is_read_from_the_claim() {
    let node = |value: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"karpenter.sh/do-not-repair": value}}}))
        .expect("a node")
    };
    let claim = |status: &str| -> NodeClaim {
        serde_json::from_value(json!({"metadata": {"name": "c"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"conditions": [{"type": "Rebooting", "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-02T00:00:00Z"}]}}))
        .expect("a claim")
    };
    let (vetoing, other) = (node("true"), node("1h"));
    assert!(is_vetoed(&vetoing, &claim("False")) && !is_vetoed(&other, &claim("False")));
    let rebooted = |status: &str| health_facts(&other, &claim(status)).rebooted_at;
    assert_eq!(rebooted("False"), "2026-01-02T00:00:00Z".parse().ok());
    assert_eq!(rebooted("True"), None);
}
