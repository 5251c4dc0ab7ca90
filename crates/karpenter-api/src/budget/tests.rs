use karpenter_model::duration::GoDuration;
use proptest::prelude::*;

use super::*;

// 2026-01-05T00:00:00Z, a Monday.
const MONDAY: i64 = 1_767_571_200;
const HOUR: i64 = 3600;

fn budget(nodes: &str) -> Budget {
    Budget { nodes: nodes.to_owned(), ..Budget::default() }
}

fn for_reasons(nodes: &str, reasons: &[DisruptionReason]) -> Budget {
    Budget { reasons: Some(reasons.to_vec()), ..budget(nodes) }
}

fn scheduled(nodes: &str, schedule: &str, hours: i64) -> Budget {
    Budget {
        schedule: Some(schedule.to_owned()),
        duration: Some(GoDuration::from_seconds(hours * HOUR)),
        ..budget(nodes)
    }
}

fn allowed(budgets: &[Budget], node_count: usize) -> i32 {
    allowed_disruptions(budgets, &DisruptionReason::Drifted, MONDAY, node_count)
}

#[test]
fn values_are_counts_or_percentages_rounded_up() {
    for (nodes, node_count, expected) in [
        ("0", 10, 0),
        ("5", 10, 5),
        ("50", 10, 50),
        ("0%", 10, 0),
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("100%", 7, 7),
        ("33%", 3, 1),
        ("34%", 3, 2),
        ("99999999999", 10, i32::MAX),
    ] {
        assert_eq!(allowed(&[budget(nodes)], node_count), expected, "{nodes} of {node_count}");
    }
}

#[test]
fn smallest_active_budget_applies() {
    assert_eq!(allowed(&[], 10), UNLIMITED);
    assert_eq!(allowed(&[budget("5"), budget("3"), budget("50%")], 10), 3);
    let drifted = for_reasons("1", &[DisruptionReason::Drifted, DisruptionReason::Empty]);
    let empty = for_reasons("2", &[DisruptionReason::Empty]);
    assert_eq!(allowed(&[budget("5"), drifted.clone()], 10), 1);
    assert_eq!(allowed(&[budget("5"), empty.clone()], 10), 5);
    assert_eq!(allowed(std::slice::from_ref(&empty), 10), UNLIMITED);
    let for_unhealthy =
        allowed_disruptions(&[budget("5"), drifted, empty], &DisruptionReason::Unhealthy, MONDAY, 10);
    assert_eq!(for_unhealthy, 5);
}

#[test]
fn budget_with_empty_reasons_does_not_apply() {
    assert_eq!(allowed(&[for_reasons("0", &[])], 10), UNLIMITED);
}

#[test]
fn scheduled_budget_applies_only_while_active() {
    let office_hours = scheduled("0", "0 9 * * 1-5", 8);
    for (hour, expected) in
        [(8, UNLIMITED), (9, 0), (16, 0), (17, UNLIMITED), (24 + 9, 0), (-24 + 12, UNLIMITED)]
    {
        let at = MONDAY + hour * HOUR;
        let value =
            allowed_disruptions(std::slice::from_ref(&office_hours), &DisruptionReason::Empty, at, 10);
        assert_eq!(value, expected, "hour {hour}");
    }
}

#[test]
fn invalid_budget_blocks_every_reason() {
    let broken = [
        scheduled("1", "0 9 * *", 8),
        scheduled("1", "TZ=UTC 0 9 * * *", 8),
        Budget { schedule: Some("@daily".to_owned()), ..budget("1") },
        Budget { duration: Some(GoDuration::from_seconds(60)), ..budget("1") },
        budget(""),
        budget("many"),
        budget("-1"),
        budget("101%"),
        budget("10 %"),
    ];
    for budget_of_another_reason in broken {
        let mut other = budget_of_another_reason;
        other.reasons = Some(vec![DisruptionReason::Empty]);
        assert_eq!(allowed(&[budget("5"), other.clone()], 10), 0, "{other:?}");
    }
}

#[test]
fn errors_contain_index_of_budget() {
    let error = try_allowed_disruptions(&[budget("1"), budget("x")], &DisruptionReason::Empty, MONDAY, 1);
    assert_eq!(error, Err(BudgetError::Nodes { index: 1, nodes: "x".to_owned() }));
    let error = try_allowed_disruptions(&[scheduled("1", "", 1)], &DisruptionReason::Empty, MONDAY, 1);
    assert_eq!(error, Err(BudgetError::Schedule { index: 0, source: CronError::Empty }));
}

proptest! {
    #[test]
    fn adding_a_budget_never_allows_more(counts in proptest::collection::vec(0u32..200, 0..5), extra in 0u32..=100, nodes in 0usize..500) {
        let mut budgets: Vec<Budget> = counts.iter().map(|count| budget(&count.to_string())).collect();
        let before = allowed(&budgets, nodes);
        budgets.push(budget(&format!("{extra}%")));
        prop_assert!(allowed(&budgets, nodes) <= before);
        prop_assert!(allowed(&budgets, nodes) <= nodes as i32);
    }
}
