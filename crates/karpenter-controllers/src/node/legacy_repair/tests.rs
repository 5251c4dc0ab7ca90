use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).expect("a time")
}

fn node(conditions: &[(&str, &str, &str, i64)]) -> Arc<Node> {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status, reason, since)| {
            json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": at(*since).to_string()})
        })
        .collect();
    let object = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
    Arc::new(serde_json::from_value(object).expect("a node"))
}

fn policies() -> Vec<CompiledPolicy> {
    let policy = |kind: &str, status: &str, reason: &str, toleration_secs, action| RepairPolicy {
        condition_type: kind.to_owned(),
        condition_status: status.to_owned(),
        reason_regex: reason.to_owned(),
        toleration_secs,
        termination_grace_period_secs: None,
        priority: 0,
        action,
    };
    let replace = RepairAction::Replace;
    compile(vec![
        policy("Ready", "False", "", 600, replace),
        policy("Disk", "True", "^Broken", 30, replace),
        policy("Disk", "True", "(", 1, replace),
        policy("Fan", "True", ".*", 5, RepairAction::Reboot),
    ])
}

#[test]
fn policy_due_first_decides_and_reboot_policies_are_ignored() {
    let policies = policies();
    assert_eq!(policies.len(), 2, "one policy has an invalid expression, one reboots");
    let decide = |node: &Arc<Node>, now: i64| decide(&policies, node, std::slice::from_ref(node), at(now));
    assert_eq!(decide(&node(&[("Ready", "True", "", 0)]), 9999), Step::Nothing);
    assert_eq!(decide(&node(&[("Fan", "True", "Loud", 0)]), 9999), Step::Nothing);
    assert_eq!(decide(&node(&[("Disk", "True", "NotBroken", 0)]), 9999), Step::Nothing);
    let unhealthy = node(&[("Ready", "False", "", 0), ("Disk", "True", "BrokenAgain", 100)]);
    assert_eq!(decide(&unhealthy, 100), Step::Wait(Duration::from_secs(30)));
    assert_eq!(decide(&unhealthy, 130), Step::Terminate { condition_type: "Disk".to_owned() });
}

#[test]
fn repair_stops_above_20_percent_rounded_up() {
    let unhealthy = node(&[("Ready", "False", "", 0)]);
    let healthy = node(&[("Ready", "True", "", 0)]);
    let decide = |unhealthy_count: usize, healthy_count: usize| {
        let mut all = vec![unhealthy.clone(); unhealthy_count];
        all.extend(vec![healthy.clone(); healthy_count]);
        decide(&policies(), &unhealthy, &all, at(9999)) != Step::Blocked
    };
    assert!(decide(1, 0) && decide(1, 2), "20 % of few nodes is rounded up to one");
    assert!(!decide(2, 3), "two of five are more than 20 %");
    assert!(decide(2, 4) && decide(2, 8));
    assert!(!decide(3, 7) && decide(3, 8));
}

#[test]
fn conditions_are_converted_to_snake_case() {
    let cases = [
        ("Ready", "ready"),
        ("DiskPressure", "disk_pressure"),
        ("KWOKUnhealthy", "kwok_unhealthy"),
        ("a", "a"),
    ];
    for (text, expected) in cases {
        assert_eq!(snake_case(text), expected);
    }
}
