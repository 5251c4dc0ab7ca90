use karpenter_cloud::RepairPolicy;
use serde_json::json;

use super::diagnosis::Symptom;
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
    RepairPolicies::new(all).expect("a set that makes sense")
}

fn symptom<'a>(kind: &'a str, reason: &'a str, since: i64) -> Symptom<'a> {
    Symptom { kind, status: "True", reason, since: Some(at(since)) }
}

fn patient_with<'a>(symptoms: &[Symptom<'a>]) -> Patient<'a> {
    Patient { symptoms: symptoms.to_vec(), created_at: at(0), rebooted_at: None }
}

#[test]
fn a_toleration_counts_from_the_latest_of_three_times() {
    let policies = set(vec![policy("A=True", ".*", 30)]);
    let eligible = |patient: &Patient<'_>, now: i64| {
        diagnose(&policies, patient, at(now)).map(|found| found.eligible_at)
    };
    let sick = patient_with(&[symptom("A", "R", 100)]);
    assert_eq!(eligible(&sick, 129), None);
    assert_eq!(eligible(&sick, 130), Some(at(130)));
    // Younger than its condition says: the node was made after that.
    assert_eq!(eligible(&Patient { created_at: at(500), ..sick.clone() }, 529), None);
    assert_eq!(eligible(&Patient { created_at: at(500), ..sick.clone() }, 530), Some(at(530)));
    // Restarted since: everything starts anew.
    assert_eq!(eligible(&Patient { rebooted_at: Some(at(900)), ..sick.clone() }, 929), None);
    assert_eq!(eligible(&Patient { rebooted_at: Some(at(900)), ..sick }, 931), Some(at(930)));
    // Without a time of its own, from the node's.
    let timeless = patient_with(&[Symptom { since: None, ..symptom("A", "R", 0) }]);
    assert_eq!(eligible(&timeless, 30), Some(at(30)));
    // The fallback's toleration is its own, for any pair that is named.
    let other = set(vec![policy("A=True", "^No", 30)]);
    let found = diagnose(&other, &patient_with(&[symptom("A", "Yes", 0)]), at(600)).expect("the fallback");
    assert_eq!((found.is_fallback, found.eligible_at), (true, at(600)));
    let healthy = patient_with(&[Symptom { status: "False", ..symptom("A", "Yes", 0) }]);
    assert_eq!(diagnose(&other, &healthy, at(9999)), None);
}

#[test]
fn the_decisive_policy() {
    let reboot = |pair: &str, toleration| RepairPolicy {
        action: RepairAction::Reboot,
        ..policy(pair, ".*", toleration)
    };
    let urgent = |base: RepairPolicy, priority| RepairPolicy { priority, ..base };
    let names = |policies: Vec<RepairPolicy>, symptoms: &[Symptom<'_>], now: i64| {
        let found = diagnose(&set(policies), &patient_with(symptoms), at(now)).expect("sick");
        (found.condition_type, found.action)
    };
    let both = [symptom("A", "R", 0), symptom("B", "R", 0)];
    // The more disruptive action, whatever its priority.
    assert_eq!(
        names(vec![urgent(reboot("A=True", 0), 100), policy("B=True", ".*", 0)], &both, 10),
        ("B".to_owned(), RepairAction::Replace)
    );
    // Unless it has not waited long enough.
    assert_eq!(
        names(vec![reboot("A=True", 0), policy("B=True", ".*", 60)], &both, 10),
        ("A".to_owned(), RepairAction::Reboot)
    );
    // Then the higher priority, then the earlier, then the smaller name.
    let replace = RepairAction::Replace;
    let (a, b) = (policy("A=True", ".*", 5), policy("B=True", ".*", 5));
    assert_eq!(names(vec![a.clone(), urgent(b.clone(), 1)], &both, 10), ("B".to_owned(), replace));
    let earlier = [symptom("A", "R", 1), symptom("B", "R", 0)];
    assert_eq!(names(vec![a.clone(), b.clone()], &earlier, 10), ("B".to_owned(), replace));
    let backwards = [symptom("B", "R", 0), symptom("A", "R", 0)];
    assert_eq!(names(vec![a, b], &backwards, 10), ("A".to_owned(), replace));
}

#[test]
fn the_shortest_bound_of_any_policy_that_is_due() {
    let bounded = |pair: &str, toleration, seconds| RepairPolicy {
        termination_grace_period_secs: Some(seconds),
        action: RepairAction::Reboot,
        ..policy(pair, ".*", toleration)
    };
    let policies = set(vec![policy("A=True", ".*", 0), bounded("B=True", 30, 60), bounded("C=True", 60, 0)]);
    let sick = patient_with(&[symptom("A", "R", 0), symptom("B", "R", 0), symptom("C", "R", 0)]);
    let bound =
        |now: i64| diagnose(&policies, &sick, at(now)).and_then(|found| found.termination_grace_period_secs);
    // A decides all along; what others set counts as soon as they are due.
    assert_eq!([bound(29), bound(30), bound(60)], [None, Some(60), Some(0)]);
}

#[test]
fn the_score_is_the_highest_of_rank_and_age_in_half_hours() {
    let ranked = |pair: &str, priority| RepairPolicy { priority, ..policy(pair, ".*", 0) };
    // Priorities 0 (the fallback), 7 and 100 rank 0, 1 and 2.
    let policies = set(vec![ranked("A=True", 7), ranked("B=True", 100)]);
    let score = |symptoms: &[Symptom<'_>], now: i64| {
        diagnose(&policies, &patient_with(symptoms), at(now)).map(|found| found.score)
    };
    assert_eq!(score(&[symptom("A", "R", 0)], 0), Some(1.0));
    assert_eq!(score(&[symptom("A", "R", 0)], 900), Some(1.5));
    assert_eq!(score(&[symptom("B", "R", 0)], 1800), Some(3.0));
    // The old low one overtakes the fresh high one after one half hour per rank.
    let both = |fresh: i64| [symptom("A", "R", 0), symptom("B", "R", fresh)];
    assert_eq!(score(&both(900), 900), Some(2.0));
    assert_eq!(score(&both(3600), 3600), Some(3.0));
}

#[test]
fn a_restart_too_many_becomes_a_replacement() {
    let reboot = RepairPolicy { action: RepairAction::Reboot, ..policy("A=True", ".*", 0) };
    let policies = set(vec![RepairPolicy { termination_grace_period_secs: Some(60), ..reboot }]);
    let found = diagnose(&policies, &patient_with(&[symptom("A", "Why", 0)]), at(0)).expect("sick");
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
fn only_the_word_true_vetoes_and_a_restart_is_read_from_the_claim() {
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
    let rebooted = |status: &str| patient(&other, &claim(status)).rebooted_at;
    assert_eq!(rebooted("False"), "2026-01-02T00:00:00Z".parse().ok());
    assert_eq!(rebooted("True"), None);
}
