//! Tests the order of errors: first those of the API server, then those of the controllers.

use karpenter_api::error::{FieldError, Rule};
use karpenter_api::validate::{admit, validate};
use serde_json::{Value, json};

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }}},
    })
}

fn found(errors: &[FieldError]) -> Vec<(&str, Rule)> {
    errors.iter().map(|error| (error.path.as_str(), error.rule)).collect()
}

#[test]
fn valid_pool_is_returned_with_defaults() {
    let stored = validate(&pool(), None).expect("a sound pool");
    assert_eq!(stored["spec"]["template"]["spec"]["expireAfter"], "720h");
    assert_eq!(validate(&stored, Some(&stored)).as_ref(), Ok(&stored));
}

#[test]
fn controller_errors_are_reported_after_admission() {
    let mut object = pool();
    object["spec"]["template"]["spec"]["taints"] = json!([
        {"key": "a", "effect": "NoSchedule"},
        {"key": "a", "effect": "NoSchedule", "value": "b"},
    ]);
    assert!(admit(&object, None).is_ok(), "a server does not compare taints");
    let errors = validate(&object, None).expect_err("the taint is there twice");
    assert!(errors.iter().all(|error| error.rule == Rule::Runtime), "{errors:#?}");
}

#[test]
fn server_and_controller_errors_are_merged_per_field() {
    let mut object = pool();
    object["spec"]["template"]["spec"]["requirements"] = json!([
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]},
        {"key": "team", "operator": "In", "values": ["not a label value"]},
    ]);
    let errors = validate(&object, None).expect_err("two bad requirements");
    let key = ("spec.template.spec.requirements[0].key", Rule::Cel);
    assert_eq!(found(&errors).iter().filter(|entry| entry.0 == key.0).count(), 1, "{errors:#?}");
    assert!(found(&errors).contains(&key), "{errors:#?}");
    assert!(errors.iter().any(|error| error.rule == Rule::Runtime), "{errors:#?}");
}

#[test]
fn structural_errors_are_all_reported_and_skip_other_rules() {
    let mut object = pool();
    object["spec"]["weight"] = json!("heavy");
    object["spec"]["limit"] = json!({});
    object["spec"]["disruption"] = json!({"consolidationPolicy": "Always", "consolidateAfter": "soon"});
    object["spec"]["template"]["spec"]["nodeClassRef"] = json!({"group": ""});
    let errors = validate(&object, None).expect_err("many errors");
    assert_eq!(
        found(&errors),
        [
            ("spec.disruption.consolidateAfter", Rule::Pattern),
            ("spec.disruption.consolidationPolicy", Rule::Enum),
            ("spec.limit", Rule::UnknownField),
            ("spec.template.spec.nodeClassRef.kind", Rule::Required),
            ("spec.template.spec.nodeClassRef.name", Rule::Required),
            ("spec.weight", Rule::Type),
        ],
        "and no CEL error about the empty group"
    );
}

#[test]
fn unknown_kinds_are_rejected_with_valid_kinds() {
    for (object, path, rule, hint) in [
        (json!([]), "", Rule::Type, "apiVersion"),
        (json!({"kind": "NodePool"}), "apiVersion", Rule::Required, "string"),
        (json!({"apiVersion": "karpenter.sh/v1"}), "kind", Rule::Required, "string"),
        (
            json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool"}),
            "apiVersion",
            Rule::UnknownKind,
            "karpenter.sh/v1",
        ),
        (json!({"apiVersion": "karpenter.sh/v1", "kind": "Nodepool"}), "kind", Rule::UnknownKind, "NodePool"),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "kind", Rule::UnknownKind, "CapacityBuffer"),
    ] {
        let errors = validate(&object, None).expect_err("not one of ours");
        assert_eq!(found(&errors), [(path, rule)]);
        assert!(errors[0].to_string().contains(hint), "{}", errors[0]);
    }
}

#[test]
fn error_is_displayed_on_one_line() {
    let mut object = pool();
    object["spec"]["wieght"] = json!(5);
    let errors = validate(&object, None).expect_err("a misspelt field");
    assert_eq!(
        errors[0].to_string(),
        "spec.wieght: unknown field \"wieght\"; did you mean \"weight\"? \
         (valid: disruption, limits, replicas, template, weight)"
    );
}
