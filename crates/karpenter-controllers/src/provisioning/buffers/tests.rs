use serde_json::{Value, json};

use super::*;

fn buffer(is_ready: Value, replicas: u32) -> CapacityBuffer {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default"}, "spec": {},
        "status": {"replicas": replicas, "conditions": [
            {"type": "ReadyForProvisioning", "status": is_ready, "reason": "R", "message": ""}]},
    }))
    .expect("a buffer")
}

#[test]
fn provisioning_condition_follows_result_of_virtual_pods() {
    let tally = |existing, new, failed| Some(Tally { existing, new, failed });
    let cases = [
        (
            "False",
            3,
            tally(3, 0, 0),
            Some(("False", "NotReadyForProvisioning", "Buffer is not ReadyForProvisioning")),
        ),
        ("True", 0, None, Some(("False", "BufferEmpty", "Buffer has zero desired replicas"))),
        ("True", 3, None, None),
        (
            "True",
            3,
            tally(3, 0, 0),
            Some(("True", "FitsExistingCapacity", "All 3 virtual pods fit on existing capacity")),
        ),
        (
            "True",
            3,
            tally(1, 2, 0),
            Some(("False", "RequiresNewCapacity", "2/3 virtual pods required new capacity, 0 failed")),
        ),
        (
            "True",
            3,
            tally(2, 0, 1),
            Some(("False", "RequiresNewCapacity", "0/3 virtual pods required new capacity, 1 failed")),
        ),
        // The number of replicas increased while the plan was made, so the result is not written.
        ("True", 4, tally(3, 0, 0), None),
    ];
    let now = Timestamp::from_second(60).expect("a time");
    for (is_ready, replicas, tally, expected) in cases {
        let status = decide_status(&buffer(json!(is_ready), replicas), tally, now);
        let condition = status.conditions.iter().find(|one| one.type_ == PROVISIONING);
        let condition =
            condition.map(|one| (format!("{:?}", one.status), one.reason.as_str(), one.message.as_str()));
        let expected = expected.map(|(status, reason, message)| (status.to_owned(), reason, message));
        assert_eq!(condition, expected, "{is_ready} {replicas} {tally:?}");
    }
}
