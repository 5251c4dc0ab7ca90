use serde_json::json;

use super::*;

/// The expected values are what Go's `duration.HumanDuration` returns.
#[test]
fn durations_are_formatted_as_in_kubectl() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    for (seconds, expected) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (3 * MINUTE + 20, "3m20s"),
        (10 * MINUTE + 30, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (733 * DAY, "2y3d"),
        (3000 * DAY, "8y"),
    ] {
        assert_eq!(human_duration(seconds), expected, "{seconds} seconds");
    }
}

#[test]
fn custom_columns_show_values_by_type() {
    let columns = Columns::custom(Some(&json!([
        {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
        {"name": "Object", "type": "string", "jsonPath": ".spec.object"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1, "description": "How many."},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.text"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.count"},
        {"name": "Missing", "type": "string", "jsonPath": ".spec.missing"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Seen", "type": "date", "jsonPath": ".spec.seen"},
        {"name": "Never", "type": "date", "jsonPath": ".spec.text"},
    ])));
    let object = json!({
        "metadata": {"name": "x"},
        "spec": {"text": "t", "object": {"a": 1}, "count": 3, "seen": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let now = "2026-01-01T00:03:20Z".parse().expect("a time");
    assert_eq!(
        json!(columns.cells(&object, now)),
        json!(["x", "t", "{\"a\":1}", 3, null, 3.0, null, "True", "3m20s", "<invalid>"])
    );
    let table = render(&columns, &[&object], now, true, IncludeObject::Metadata, "7");
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(
        table["columnDefinitions"][3],
        json!({"name": "Count", "type": "integer", "format": "", "description": "How many.", "priority": 1})
    );
    assert_eq!(
        table["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.text"
    );
    assert_eq!(
        table["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}})
    );
    let bare = render(&columns, &[&object], now, false, IncludeObject::Object, "7");
    assert_eq!(bare["rows"][0]["object"], object);
    assert_eq!(bare["columnDefinitions"], json!([]));
}

#[test]
fn custom_resources_without_columns_show_age() {
    let columns = Columns::custom(None);
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let now = "2026-01-01T00:00:05Z".parse().expect("a time");
    assert_eq!(json!(columns.cells(&object, now)), json!(["x", "5s"]));
    let names: Vec<&str> = columns.definitions().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Name", "Age"]);
}
