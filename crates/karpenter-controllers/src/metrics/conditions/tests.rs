use super::*;

use jiff::SignedDuration;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn claim(status: &str, second: i64, deleted: Option<i64>) -> NodeClaim {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    serde_json::from_value(json!({
        "metadata": {"name": "one", "deletionTimestamp": deleted.map(|second| at(second).to_string()),
            "labels": {"karpenter.sh/nodepool": "general", "karpenter.kwok.sh/kwoknodeclass": "default"}},
        "spec": {"requirements": [], "nodeClassRef": class},
        "status": {"conditions": [{"type": "Ready", "status": status, "reason": status, "message": "",
            "lastTransitionTime": at(second).to_string()}]},
    }))
    .expect("a claim")
}

#[test]
fn kind_has_own_and_deprecated_metrics() {
    let declare = Declare::default();
    let metrics = ConditionMetrics::new(&declare, &[("karpenter.kwok.sh", "KWOKNodeClass")]);
    let (before, after) = (Arc::new(claim("Unknown", 0, None)), Arc::new(claim("True", 4, Some(10))));
    metrics.claims.follow(&Change::Applied { old: Some(before), new: after.clone() }, at(4));
    let mut text = String::new();
    let objects =
        Objects { claims: std::slice::from_ref(&after), pools: &[], nodes: &[], buffers: &[], classes: &[] };
    metrics.write(&mut text, &objects, at(12));
    metrics.claims.follow(&Change::Deleted { old: after }, at(13));
    let registered =
        prometheus::TextEncoder::new().encode_to_string(&declare.registry.gather()).expect("a text");
    text.push_str(&registered);
    let own = r#"karpenter_kwok_sh_kwoknodeclass="default",karpenter_sh_nodepool="general""#;
    let old = r#"group="karpenter.sh",kind="NodeClaim""#;
    let named = r#"name="one",namespace="""#;
    let what = r#"name="one",namespace="",reason="True",status="True",type="Ready""#;
    for line in [
        format!("operator_nodeclaim_status_condition_count{{{own},{what}}} 1"),
        format!("operator_status_condition_count{{{old},{what}}} 1"),
        format!("operator_nodeclaim_status_condition_current_status_seconds{{{own},{what}}} 8"),
        format!("operator_nodeclaim_termination_current_time_seconds{{{own},{named}}} 2"),
        format!("operator_termination_current_time_seconds{{{old},{named}}} 2"),
        format!(r#"operator_nodeclaim_termination_duration_seconds_sum{{{own}}} 3"#),
        format!(r#"operator_termination_duration_seconds_sum{{{old}}} 3"#),
        format!(
            r#"operator_nodeclaim_status_condition_transitions_total{{{own},reason="True",status="True",type="Ready"}} 1"#
        ),
        format!(
            r#"operator_nodeclaim_status_condition_transition_seconds_sum{{{own},status="Unknown",to_status="True",type="Ready"}} 4"#
        ),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn node_classes_of_the_provider_have_metrics() {
    let class = |status: &str, second: i64| -> Arc<DynamicObject> {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "ExampleClass", "metadata": {"name": "default"},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": status,
                "lastTransitionTime": at(second).to_string()}]},
        });
        Arc::new(serde_json::from_value(object).expect("an object"))
    };
    let declare = Declare::default();
    let metrics = ConditionMetrics::new(&declare, &[("example.com", "ExampleClass")]);
    let (before, after) = (class("False", 0), class("True", 6));
    metrics.classes[0].follow(&Change::Applied { old: Some(before), new: after.clone() }, at(6));
    let mut text = String::new();
    let classes = [vec![after]];
    let objects = Objects { claims: &[], pools: &[], nodes: &[], buffers: &[], classes: &classes };
    metrics.write(&mut text, &objects, at(10));
    let registered =
        prometheus::TextEncoder::new().encode_to_string(&declare.registry.gather()).expect("a text");
    text.push_str(&registered);
    let old = r#"group="example.com",kind="ExampleClass""#;
    let what = r#"name="default",namespace="",reason="True",status="True",type="Ready""#;
    for line in [
        format!("operator_exampleclass_status_condition_count{{{what}}} 1"),
        format!("operator_status_condition_count{{{old},{what}}} 1"),
        format!("operator_exampleclass_status_condition_current_status_seconds{{{what}}} 4"),
        r#"operator_exampleclass_status_condition_transition_seconds_sum{status="False",to_status="True",type="Ready"} 6"#
            .to_owned(),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
    }
}
