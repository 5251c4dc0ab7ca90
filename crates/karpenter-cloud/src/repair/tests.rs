use super::*;

fn policy(kind: &str, status: &str, reason: &str, priority: u8, action: RepairAction) -> RepairPolicy {
    RepairPolicy {
        condition_type: kind.to_owned(),
        condition_status: status.to_owned(),
        reason_regex: reason.to_owned(),
        toleration_secs: 60,
        termination_grace_period_secs: None,
        priority,
        action,
    }
}

fn fallback() -> RepairPolicy {
    policy("Ready", "False", "", 0, RepairAction::Replace)
}

#[test]
fn every_error_of_a_set_is_reported() {
    let replace = RepairAction::Replace;
    let cases: Vec<(Vec<RepairPolicy>, &[&str])> = vec![
        (vec![], &["no policy is the fallback"]),
        (vec![policy("Ready", "False", "x", 0, replace)], &["no policy is the fallback"]),
        (vec![fallback(), fallback()], &["2 policies have no reason expression"]),
        (vec![policy("Ready", "False", "", 0, RepairAction::Reboot)], &["must be ReplaceNode"]),
        (
            vec![fallback(), policy("", "True", "x", 0, replace)],
            &["policy 1 (=True) has an empty condition type"],
        ),
        (vec![fallback(), policy("A", "true", "x", 0, replace)], &["has condition status \"true\""]),
        (vec![fallback(), policy("A", "True", "x", 101, replace)], &["has priority 101"]),
        (vec![fallback(), policy("A", "True", "(", 0, replace)], &["invalid reason expression"]),
        (
            vec![policy("", "", "", 200, RepairAction::Reboot)],
            &["empty condition type", "condition status \"\"", "priority 200", "must be ReplaceNode"],
        ),
    ];
    for (policies, expected) in cases {
        let error = RepairPolicies::new(policies.clone()).expect_err("refused");
        assert_eq!(error.mistakes.len(), expected.len(), "{policies:?}: {error}");
        for (mistake, expected) in error.mistakes.iter().zip(expected) {
            assert!(mistake.contains(expected), "{mistake:?} does not contain {expected:?}");
        }
    }
}

#[test]
fn fallback_applies_to_known_conditions_without_matching_expression() {
    let set = RepairPolicies::new(vec![
        fallback(),
        policy("Disk", "True", "Broken", 100, RepairAction::Replace),
        policy("Disk", "True", "^Slow", 7, RepairAction::Reboot),
        policy("Disk", "True", "Broken.*Twice", 7, RepairAction::Reboot),
    ])
    .expect("a valid set");
    let found = |kind: &str, status: &str, reason: &str| -> Vec<(String, u32)> {
        let matching = set.matching(kind, status, reason);
        matching.into_iter().map(|one| (one.policy.reason_regex.clone(), one.rank)).collect()
    };
    let is = |reason: &str, rank| (reason.to_owned(), rank);
    // Expressions are not anchored. The priorities 0, 7 and 100 have the ranks 0, 1 and 2.
    assert_eq!(found("Disk", "True", "IsBrokenNow"), [is("Broken", 2)]);
    assert_eq!(found("Disk", "True", "BrokenTwice"), [is("Broken", 2), is("Broken.*Twice", 1)]);
    assert_eq!(found("Disk", "True", "Slower"), [is("^Slow", 1)]);
    assert_eq!(found("Disk", "True", "VerySlow"), [is("", 0)]);
    assert_eq!(found("Ready", "False", "Whatever"), [is("", 0)]);
    // If no policy has a pair of type and status, the node is healthy, whatever the reason.
    assert_eq!(found("Disk", "False", "Broken"), []);
    assert!(set.covers("Disk", "True") && set.covers("Ready", "False"));
    assert!(!set.covers("Disk", "Unknown") && !set.covers("Ready", "Unknown"));
}
