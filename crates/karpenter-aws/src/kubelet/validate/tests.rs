//! `testdata/kubelet.json` has settings with upstream's recorded results (karpenter-provider-aws, main at 1d927085d,
//! ValidateKubeletConfig and ParseKubeletConfig). For a wrong type, our message differs and the other fields are
//! validated as well; all other messages are equal.

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;
use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize)]
struct Recorded {
    kubelet: KubeletValues,
    errors: Vec<String>,
    parses: bool,
    expressions: bool,
}

fn recorded() -> Vec<Recorded> {
    serde_json::from_str(include_str!("../../../testdata/kubelet.json")).expect("recorded answers")
}

fn values(value: serde_json::Value) -> KubeletValues {
    serde_json::from_value(value).expect("an object")
}

fn expressions() -> Expressions {
    Expressions::new(Clock::starting_at(Timestamp::UNIX_EPOCH))
}

fn checked(
    value: serde_json::Value,
    family: AmiFamily,
    node_class_cel: bool,
) -> Result<ParsedKubelet, Refusal> {
    check(&values(value), family, AwsFeatureGates { node_class_cel }, &expressions())
}

/// Whether upstream's error reports a value that Go could not decode.
fn is_type_error(error: &str) -> bool {
    ["json: cannot unmarshal", "time: invalid duration", "quantities must match"]
        .iter()
        .any(|start| error.starts_with(&format!("spec.kubelet: {start}")))
}

#[test]
fn violations_equal_upstream() {
    let recorded = recorded();
    assert!(recorded.len() >= 100, "{}", recorded.len());
    for case in recorded {
        let ours = violations(&case.kubelet);
        let wrong_type = case.errors.iter().any(|error| is_type_error(error));
        let ours_of_types = ours.iter().filter(|error| error.contains(": must be ")).count();
        assert_eq!(ours_of_types > 0, wrong_type, "{:?}: {ours:?}", case.kubelet);
        let rest: Vec<&String> = ours.iter().filter(|error| !error.contains(": must be ")).collect();
        let expected: Vec<&String> = case.errors.iter().filter(|error| !is_type_error(error)).collect();
        assert_eq!(rest, expected, "{:?}", case.kubelet);
    }
}

#[test]
fn valid_settings_parse_and_expressions_are_detected() {
    for case in recorded() {
        let parsed = ParsedKubelet::parse(&case.kubelet);
        assert_eq!(parsed.is_ok(), case.parses, "{:?}: {parsed:?}", case.kubelet);
        let has_expressions = parsed.is_ok_and(|parsed| parsed.has_expressions());
        assert_eq!(has_expressions, case.expressions, "{:?}", case.kubelet);
        assert!(case.parses || !violations(&case.kubelet).is_empty(), "{:?}", case.kubelet);
    }
}

#[test]
fn all_wrong_types_are_reported_with_their_path() {
    let found = violations(&values(json!({
        "podsPerCore": "3",
        "clusterDNS": [1],
        "featureGates": { "A": "true" },
        "logging": { "verbosity": -1, "unknown": 1, "flushFrequency": "x" },
        "reservedMemory": [{ "numaNode": 0, "limits": { "memory": "lots" } }],
        "shutdownGracePeriod": 30,
        "maxPods": 3_000_000_000_i64,
        "cpuCFSQuota": {},
        "registerWithTaints": [{ "timeAdded": "yesterday" }],
    })));
    assert_eq!(
        found,
        [
            "spec.kubelet.clusterDNS[0]: must be text, not 1",
            "spec.kubelet.cpuCFSQuota: must be true or false, not an object",
            "spec.kubelet.featureGates[A]: must be true or false, not \"true\"",
            "spec.kubelet.logging.flushFrequency: must be a duration such as 30s, not \"x\"",
            "spec.kubelet: unknown field \"logging.unknown\"",
            "spec.kubelet.logging.verbosity: must be a whole number that is not negative, not -1",
            "spec.kubelet.maxPods: must be a 32-bit whole number, not 3000000000",
            "spec.kubelet.podsPerCore: must be a 32-bit whole number, not \"3\"",
            "spec.kubelet.registerWithTaints[0].timeAdded: must be a time such as 2006-01-02T15:04:05Z, not \"yesterday\"",
            "spec.kubelet.reservedMemory[0].limits[memory]: must be a quantity such as 1Gi, not \"lots\"",
            "spec.kubelet.shutdownGracePeriod: must be a duration such as 30s, not 30",
            "spec.kubelet.registerWithTaints: can't be set, Karpenter sets it from the NodeClaim's taints so the node registers unschedulable until it's ready",
        ]
    );
}

#[test]
fn eviction_threshold_of_nan_percent_is_rejected() {
    let found = violations(&values(json!({ "evictionHard": { "memory.available": "NaN%" } })));
    assert_eq!(
        found,
        ["spec.kubelet.evictionHard[memory.available]: \"NaN%\" must be a percentage or a resource quantity"]
    );
}

#[test]
fn ami_family_rejects_settings_it_does_not_apply() {
    let unmanaged = json!({ "shutdownGracePeriod": "30s", "cpuManagerPolicy": "static" });
    let two = json!({ "clusterDNS": ["10.0.0.1", "10.0.0.2"] });
    let per_core = json!({ "podsPerCore": 2 });
    let managed = json!({ "maxPods": 3, "cpuCFSQuota": true, "evictionHard": { "memory.available": "5%" } });
    for family in AmiFamily::ALL {
        let refuses = |value: &serde_json::Value| {
            let refusal = checked(value.clone(), family, false).err()?;
            assert_eq!(refusal.reason, "UnsupportedKubeletConfiguration");
            Some(refusal.message)
        };
        let name = family.as_str();
        let dropped = |fields: &str| {
            Some(format!(
                "spec.kubelet has fields not applied by the {name} AMI family that would be silently dropped: {fields}"
            ))
        };
        let takes_all = matches!(family, AmiFamily::Al2023 | AmiFamily::Custom);
        let expected = if takes_all { None } else { dropped("cpuManagerPolicy, shutdownGracePeriod") };
        assert_eq!(refuses(&unmanaged), expected);
        let expected = (!takes_all).then(|| {
            format!("spec.kubelet.clusterDNS: the {name} AMI family doesn't accept multiple entries, only one, but 2 were set")
        });
        assert_eq!(refuses(&two), expected);
        let expected = if family == AmiFamily::Bottlerocket { dropped("podsPerCore") } else { None };
        assert_eq!(refuses(&per_core), expected);
        assert_eq!(refuses(&managed), None);
    }
}

#[test]
fn all_errors_of_an_ami_family_are_reported() {
    let both = json!({ "clusterDNS": ["a", "b", "c"], "registryBurst": 3, "podsPerCore": 1 });
    let refusal = checked(both, AmiFamily::Bottlerocket, false).expect_err("unsupported");
    assert_eq!(
        refusal.message,
        "spec.kubelet has fields not applied by the Bottlerocket AMI family that would be silently dropped: podsPerCore, \
         registryBurst; spec.kubelet.clusterDNS: the Bottlerocket AMI family doesn't accept multiple entries, only one, \
         but 3 were set"
    );
}

#[test]
fn condition_reason_follows_order_of_checks() {
    for (value, gate, expected) in [
        (json!({ "maxPodz": 1, "maxPods": "foo" }), false, Some("InvalidKubeletConfiguration")),
        (json!({ "maxPods": "foo" }), false, Some("KubeletExpressionsDisabled")),
        (json!({ "kubeReserved": { "cpu": "vcpus" } }), false, Some("KubeletExpressionsDisabled")),
        (json!({ "maxPods": "foo", "registryBurst": 1 }), true, Some("KubeletExpressionInvalid")),
        (json!({ "systemReserved": { "memory": "vcpus *" } }), true, Some("KubeletExpressionInvalid")),
        (json!({ "systemReserved": { "memory": "" } }), true, Some("KubeletExpressionInvalid")),
        (json!({ "maxPods": "vcpus", "registryBurst": 1 }), true, Some("UnsupportedKubeletConfiguration")),
        (json!({ "maxPods": "vcpus", "kubeReserved": { "cpu": "max(60, vcpus * 30)" } }), true, None),
        (json!({ "maxPods": 10, "kubeReserved": { "cpu": "100m" } }), false, None),
        (json!({}), false, None),
    ] {
        let reason = checked(value.clone(), AmiFamily::Al2, gate).err().map(|refusal| refusal.reason);
        assert_eq!(reason, expected, "{value}");
    }
}

#[test]
fn message_names_field_of_expression_and_joins_violations() {
    let broken = json!({ "kubeReserved": { "cpu": "vcpuz * 2" } });
    let refusal = checked(broken, AmiFamily::Al2023, true).expect_err("broken");
    assert_eq!(
        refusal.message,
        "validating expression, compiling expression, undeclared reference to 'vcpuz' (expression=vcpuz * 2) \
         (field=spec.kubelet.kubeReserved[cpu])"
    );
    let refusal =
        checked(json!({ "maxPods": -1, "podsPerCore": -2 }), AmiFamily::Al2023, true).expect_err("negative");
    assert_eq!(
        refusal.message,
        "spec.kubelet.podsPerCore: -2 can't be negative; spec.kubelet.maxPods: -1 can't be negative"
    );
}
