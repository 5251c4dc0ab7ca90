use serde_json::{Value, json};

use super::*;

fn pod(annotations: Value, priority: Option<i32>) -> Pod {
    let object = json!({"metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [], "priority": priority}});
    serde_json::from_value(object).expect("a pod")
}

#[test]
fn annotations_and_priority_change_the_eviction_cost_within_bounds() {
    let unit = (1_i64 << 27).to_string();
    let (ours, theirs) = (ANNOTATION_DISRUPTION_COST, ANNOTATION_POD_DELETION_COST);
    // The last two columns are the expected costs if users set the annotations, and if our controller manages the
    // deletion costs.
    let cases = [
        (json!({}), None, 1.0, 1.0),
        (json!({theirs: unit}), None, 2.0, 1.0),
        (json!({ours: unit}), None, 2.0, 2.0),
        (json!({ours: "much", theirs: unit}), None, 1.0, 1.0),
        (json!({ours: "-134217728", theirs: unit}), None, 0.0, 0.0),
        (json!({theirs: "2147483647"}), None, 10.0, 1.0),
        (json!({theirs: "2147483648"}), None, 1.0, 1.0),
        (json!({theirs: "1.5"}), None, 1.0, 1.0),
        (json!({}), Some(1 << 25), 2.0, 2.0),
        (json!({}), Some(2_000_000_000), 10.0, 10.0),
        (json!({}), Some(-2_147_483_648), -10.0, -10.0),
    ];
    for (annotations, priority, of_users, managed) in cases {
        let pod = pod(annotations.clone(), priority);
        assert_eq!(eviction_cost(&pod, DeletionCosts::SetByUsers), of_users, "{annotations} {priority:?}");
        assert_eq!(eviction_cost(&pod, DeletionCosts::Managed), managed, "{annotations} {priority:?}");
    }
}

#[test]
fn invalid_cost_annotation_is_reported() {
    let (ours, theirs) = (ANNOTATION_DISRUPTION_COST, ANNOTATION_POD_DELETION_COST);
    let cases = [
        (json!({}), None, None),
        (json!({ours: "-5", theirs: "much"}), None, None),
        (json!({ours: "much", theirs: "5"}), Some((ours, "much")), Some((ours, "much"))),
        (json!({theirs: "2147483648"}), Some((theirs, "2147483648")), None),
        (json!({theirs: "1.5"}), Some((theirs, "1.5")), None),
    ];
    for (annotations, of_users, managed) in cases {
        let pod = pod(annotations.clone(), None);
        assert_eq!(unreadable_cost(&pod, DeletionCosts::SetByUsers), of_users, "{annotations}");
        assert_eq!(unreadable_cost(&pod, DeletionCosts::Managed), managed, "{annotations}");
    }
}

#[test]
fn reschedule_cost_is_one_plus_the_cost_of_pods() {
    let worthless = pod(json!({}), Some(-2_147_483_648));
    let ordinary = pod(json!({}), None);
    let mut ended = pod(json!({}), None);
    ended.status.phase = crate::pod::Phase::Succeeded;
    let cost = |pods: &[&Pod]| reschedule_cost(pods.iter().copied(), DeletionCosts::SetByUsers);
    assert_eq!(cost(&[]), 1.0);
    assert_eq!(cost(&[&worthless]), 1.0);
    assert_eq!(cost(&[&ordinary, &ordinary, &worthless, &ended]), 3.0);
}
