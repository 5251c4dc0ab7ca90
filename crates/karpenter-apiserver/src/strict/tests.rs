use serde_json::json;

use super::*;

#[test]
fn duplicates_without_a_schema() {
    let body = br#"{"a":{"b":1,"b":2},"c":[{"d":1},{"d":1,"d":2}],"a":{}}"#;
    assert_eq!(
        duplicate_fields(body),
        ["duplicate field \"a.b\"", "duplicate field \"c[1].d\"", "duplicate field \"a\""]
    );
    assert!(duplicate_fields(b"{\"a\":").is_empty());
}

#[test]
fn unknown_fields_are_paths() {
    let object = json!({"spec": {"containers": [{"name": "a"}, {"nmae": "b"}], "x": {}}, "data": 1});
    assert_eq!(unknown_fields(&object, "", "v1", "Pod"), ["data", "spec.containers[1].nmae", "spec.x"]);
    assert!(unknown_fields(&object, "example.com", "v1", "Pod").is_empty());
}

#[test]
fn times_out_of_range() {
    assert_eq!(
        time::check("2024-13-01T00:00:00Z", false),
        Err("parsing time \"2024-13-01T00:00:00Z\": month out of range".to_string())
    );
    assert_eq!(
        time::check("2024-01-01T00:00:00", false),
        Err("parsing time \"2024-01-01T00:00:00\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\""
            .to_string())
    );
    assert_eq!(time::check("2024-01-01T00:00:00.25+01:00", false), Ok(()));
    assert_eq!(
        time::check("2024-01-01T00:00:00Zx", false),
        Err("parsing time \"2024-01-01T00:00:00Zx\": extra text: \"x\"".to_string())
    );
    assert!(time::check("2024-01-01T00:00:00é", false).is_err());
}
