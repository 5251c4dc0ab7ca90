use serde_json::json;

use super::*;

fn values(text: &str) -> Vec<Value> {
    let manifests = read("in.yaml", text);
    assert_eq!(manifests.errors, [], "{text}");
    manifests.documents.into_iter().map(|document| document.value).collect()
}

fn errors(text: &str) -> Vec<String> {
    read("in.yaml", text).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn yaml_stream_is_split_into_documents_with_numbers_and_lines() {
    let text = "# header\n---\nkind: A\n---\n\n---\n# comment\nkind: B\n...\n--- # tail\nkind: C\n---\n";
    let found: Vec<_> = read("in.yaml", text)
        .documents
        .into_iter()
        .map(|document| (document.index, document.line, document.value["kind"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(found, [(1, Some(3), "A".into()), (2, Some(8), "B".into()), (3, Some(11), "C".into())]);
}

#[test]
fn scalars_are_parsed_as_by_kubectl() {
    let text = "a: 1\nb: -2\nc: 1.5\nd: true\ne: ~\nf: '1'\ng: 2024-01-01T00:00:00Z\nh: 0644\ni: on\nj: 100m\nk: |\n  ---x\n  y\nl: 1.5Gi\nm: 12345678901234567890\n";
    let expected = json!({"a": 1, "b": -2, "c": 1.5, "d": true, "e": null, "f": "1", "g": "2024-01-01T00:00:00Z",
        "h": 420, "i": true, "j": "100m", "k": "---x\ny\n", "l": "1.5Gi", "m": 12345678901234567890u64});
    assert_eq!(values(text), [expected]);
}

#[test]
fn lists_are_flattened_and_typed_lists_set_kind_of_items() {
    let text = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
- apiVersion: v1
  kind: PodList
  items:
  - metadata: {name: b}
"#;
    let documents = read("x", text).documents;
    let found: Vec<_> = documents
        .iter()
        .map(|d| {
            (
                d.item,
                d.value["kind"].as_str(),
                d.value["apiVersion"].as_str(),
                d.value["metadata"]["name"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [(Some(0), Some("Pod"), Some("v1"), Some("a")), (Some(1), Some("Pod"), Some("v1"), Some("b"))]
    );
}

#[test]
fn empty_list_has_no_documents_and_object_with_items_is_one() {
    assert_eq!(values("apiVersion: v1\nkind: List\nitems: []\n").len(), 0);
    assert_eq!(values("apiVersion: x/v1\nkind: AllowList\nspec: {}\nitems: []\n").len(), 1);
}

#[test]
fn json_may_be_one_object_an_array_or_many_objects() {
    assert_eq!(values(r#"{"kind": "A"}"#), [json!({"kind": "A"})]);
    assert_eq!(values("{\"kind\": \"A\"}\n{\"kind\": \"B\"}").len(), 2);
    assert_eq!(values(r#"[{"kind": "A"}, {"kind": "B"}]"#).len(), 2);
    assert_eq!(values("{kind: A}"), [json!({"kind": "A"})]);
    assert_eq!(values("\u{feff}{\"kind\": \"A\"}").len(), 1);
}

#[test]
fn invalid_document_is_reported_with_position_and_others_are_parsed() {
    let manifests = read("in.yaml", "kind: A\n---\nkind: B\nspec: [1,\n---\nkind: C\n");
    let kinds: Vec<_> = manifests.documents.iter().map(|d| d.value["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["A", "C"]);
    assert_eq!(manifests.errors.len(), 1);
    let error = &manifests.errors[0];
    assert_eq!((error.index, error.source_name.as_ref()), (2, "in.yaml"));
    assert!(error.line.is_some_and(|line| (4..=5).contains(&line)), "{error}");
    assert!(error.to_string().starts_with("in.yaml: document 2, line "), "{error}");
}

#[test]
fn duplicate_keys_are_errors() {
    for text in ["a: 1\nb: 2\na: 3\n", "{\"a\": 1, \"b\": 2,\n \"a\": 3}", "x:\n  a: 1\n  a: 2\n"] {
        let found = errors(text);
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].contains('a') && found[0].contains("line"), "{found:?}");
    }
}

#[test]
fn documents_that_are_not_objects_are_errors() {
    assert_eq!(
        errors("just text\n"),
        ["in.yaml: document 1, line 1: expected an object with apiVersion and kind, found a string"]
    );
    assert_eq!(errors("[1]"), ["in.yaml: document 1: items[0]: expected an object, found a number"]);
    assert_eq!(errors("{\"a\": 1 \"b\": 2}").len(), 1);
    assert_eq!(errors("{\"kind\": \"A\"}\n{\"kind\": ").len(), 1);
    assert_eq!(errors(""), [""; 0]);
}

#[test]
fn alias_bombs_and_deep_nesting_are_rejected() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let previous = format!("*a{}", level - 1);
        let row = vec![previous; 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
    }
    assert_eq!(errors(&bomb).len(), 1);
    assert_eq!(errors(&format!("a: {}{}", "[".repeat(5_000), "]".repeat(5_000))).len(), 1);
    assert_eq!(errors(&format!("{}{}", "[".repeat(5_000), "]".repeat(5_000))).len(), 1);
    let nested: String = (0..5_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(errors(&nested).len(), 1);
}

#[test]
fn anchors_and_merge_keys_are_resolved() {
    let text = "base: &base {cpu: 1}\nuse:\n  <<: *base\n  memory: 2\n";
    assert_eq!(values(text), [json!({"base": {"cpu": 1}, "use": {"cpu": 1, "memory": 2}})]);
}

#[test]
fn large_streams_and_lists_are_parsed_completely() {
    let one = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  labels: {app: web, tier: front}\n";
    let stream: String = (0..20_000).map(|_| format!("---\n{one}")).collect();
    assert!(stream.len() > 1 << 20);
    assert_eq!(values(&stream).len(), 20_000);
    let items: String = (0..60_000)
        .map(|n| {
            format!("- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p{n}\n    labels: {{a: b}}\n")
        })
        .collect();
    assert_eq!(values(&format!("apiVersion: v1\nkind: List\nitems:\n{items}")).len(), 60_000);
}

#[test]
fn large_json_list_keeps_order_and_drops_invalid_items_only() {
    let items: Vec<String> = (0..30_000)
        .map(|n| match n {
            // The first of two equal keys is on the item's first line, the second on the next line.
            777 => "{\"kind\": \"Pod\",\n \"kind\": \"Pod\"}".to_owned(),
            _ => format!("{{\"metadata\": {{\"name\": \"p{n}\", \"labels\": {{\"app\": \"web\"}}}}}}"),
        })
        .collect();
    // kubectl sorts keys, so `kind` follows `items`.
    let text =
        format!("{{\"apiVersion\": \"v1\",\n\"items\": [\n{}\n], \"kind\": \"PodList\"}}", items.join(",\n"));
    assert!(text.len() > 1 << 20);
    let manifests = read("in.json", &text);
    assert_eq!(manifests.documents.len(), 29_999);
    let expected = (0..30_000).filter(|n| *n != 777);
    for (document, n) in manifests.documents.iter().zip(expected) {
        assert_eq!(document.item, Some(n));
        assert_eq!(document.value["metadata"]["name"], format!("p{n}"));
        assert_eq!((&document.value["kind"], &document.value["apiVersion"]), (&json!("Pod"), &json!("v1")));
    }
    let errors: Vec<String> = manifests.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["in.json: document 1, line 781: duplicate key \"kind\""]);
}

#[test]
fn json_objects_with_a_field_items_are_not_flattened() {
    let text = r#"{"kind": "AllowList", "spec": {}, "items": [{"a": 1}, 2]}"#;
    assert_eq!(values(text), [json!({"kind": "AllowList", "spec": {}, "items": [{"a": 1}, 2]})]);
    assert_eq!(values(r#"{"kind": "X", "items": {"a": []}}"#), [json!({"kind": "X", "items": {"a": []}})]);
    let text = r#"{"kind": "X", "items": {"items": [{"a": []}]}}"#;
    assert_eq!(values(text), [json!({"kind": "X", "items": {"items": [{"a": []}]}})]);
    assert_eq!(values(r#"{"kind": "List", "items": 3}"#), [json!({"kind": "List", "items": 3})]);
    for twice in
        [r#"{"items": [], "items": []}"#, r#"{"items": 1, "items": []}"#, r#"{"items": [], "items": 1}"#]
    {
        assert_eq!(errors(twice), ["in.yaml: document 1, line 1: duplicate key \"items\""], "{twice}");
    }
}
