use jiff::Timestamp;
use karpenter_catalog::aws::{AmiFamily, AwsNodeClass, catalog, pods};
use karpenter_runtime::clock::Clock;
use serde_json::{Value, json};

use super::*;

const ON: AwsFeatureGates = AwsFeatureGates { node_class_cel: true };
const OFF: AwsFeatureGates = AwsFeatureGates { node_class_cel: false };

fn expressions() -> Expressions {
    Expressions::new(Clock::starting_at(Timestamp::UNIX_EPOCH))
}

fn parsed(value: &Value) -> ParsedKubelet {
    ParsedKubelet::parse(&serde_json::from_value(value.clone()).expect("an object")).expect("readable")
}

fn info(name: &str) -> &'static TypeInfo {
    catalog().find(name).expect("a type")
}

fn pods_of(info: &'static TypeInfo) -> impl Fn(Option<i32>) -> i64 {
    move |max_pods| {
        let max_pods = max_pods.and_then(|count| u32::try_from(count).ok());
        pods(info, &AwsNodeClass { max_pods, ..AwsNodeClass::default() })
    }
}

fn resolved(value: &Value, gates: AwsFeatureGates, name: &str) -> Result<Resolved, EvaluationError> {
    resolve(&parsed(value), gates, &expressions(), info(name), pods_of(info(name)))
}

/// The instance type m5.large has 2 vCPUs, 8192 MiB, and 3 interfaces with 10 addresses each, which gives 29 pods.
#[test]
fn expressions_resolve_to_quantities() {
    for (value, max_pods, kube, system) in [
        (json!({}), None, json!({}), json!({})),
        (json!({ "maxPods": 7 }), Some(7), json!({}), json!({})),
        (json!({ "maxPods": "vcpus * 10" }), Some(20), json!({}), json!({})),
        (json!({ "maxPods": "max_pods - 1" }), Some(28), json!({}), json!({})),
        (
            json!({ "maxPods": "min(110, default_enis * (ips_per_eni - 1) + 2)" }),
            Some(29),
            json!({}),
            json!({}),
        ),
        (json!({ "maxPods": "0" }), Some(0), json!({}), json!({})),
        (
            json!({ "kubeReserved": { "cpu": "100m", "memory": "1Gi" } }),
            None,
            json!({ "cpu": "100m", "memory": "1Gi" }),
            json!({}),
        ),
        (
            json!({ "kubeReserved": { "cpu": "max(60, vcpus * 33)" } }),
            None,
            json!({ "cpu": "70m" }),
            json!({}),
        ),
        (
            json!({ "kubeReserved": { "memory": "memory_mib / 100" } }),
            None,
            json!({ "memory": "96Mi" }),
            json!({}),
        ),
        (
            json!({ "kubeReserved": { "memory": "11 * max_pods + 255" } }),
            None,
            json!({ "memory": "576Mi" }),
            json!({}),
        ),
        (
            json!({ "maxPods": "10", "kubeReserved": { "memory": "max_pods * 16" } }),
            Some(10),
            json!({ "memory": "160Mi" }),
            json!({}),
        ),
        (
            json!({ "maxPods": 5, "systemReserved": { "pid": "max_pods", "ephemeral-storage": "vcpus" } }),
            Some(5),
            json!({}),
            json!({ "pid": "5", "ephemeral-storage": "2Gi" }),
        ),
        (
            json!({ "systemReserved": { "cpu": "instance_type.startsWith(\"m5.\") ? 50 : 10" } }),
            None,
            json!({}),
            json!({ "cpu": "50m" }),
        ),
        (json!({ "systemReserved": { "cpu": "0" } }), None, json!({}), json!({ "cpu": "0" })),
        (json!({ "systemReserved": { "cpu": "vcpus - 2" } }), None, json!({}), json!({ "cpu": "0m" })),
    ] {
        let answer = resolved(&value, ON, "m5.large").expect("resolvable");
        assert_eq!(answer.max_pods, max_pods, "{value}");
        assert_eq!(json!(answer.kube_reserved), kube, "{value}");
        assert_eq!(json!(answer.system_reserved), system, "{value}");
        assert!(answer.dropped.is_empty(), "{value}");
    }
}

#[test]
fn expressions_are_ignored_if_feature_gate_is_off() {
    let value = json!({
        "maxPods": "vcpus * 10",
        "kubeReserved": { "cpu": "vcpus", "memory": "1Gi" },
        "systemReserved": { "cpu": "vcpus" },
    });
    let answer = resolved(&value, OFF, "m5.large").expect("resolvable");
    let kube_reserved = BTreeMap::from([("memory".to_owned(), "1Gi".to_owned())]);
    assert_eq!(answer, Resolved { kube_reserved, ..Resolved::default() });
}

#[test]
fn failed_max_pods_is_an_error_and_failed_reservation_is_dropped() {
    for (expression, message) in [
        ("vcpus / 0", "evaluating maxPods expression, evaluating expression, "),
        (
            "-1",
            "maxPods expression evaluated to a value outside the valid range [0, 2147483647] (instance-type=m5.large, expression=-1, result=-1)",
        ),
        (
            "2147483648",
            "maxPods expression evaluated to a value outside the valid range [0, 2147483647] (instance-type=m5.large, expression=2147483648, result=2147483648)",
        ),
    ] {
        let error = resolved(&json!({ "maxPods": expression }), ON, "m5.large").expect_err(expression);
        assert!(error.to_string().starts_with(message), "{error}");
    }
    let value = json!({ "kubeReserved": { "cpu": "vcpus / 0", "memory": "vcpus - 3", "pid": "7" } });
    let answer = resolved(&value, ON, "m5.large").expect("resolvable");
    assert_eq!(json!(answer.kube_reserved), json!({ "pid": "7" }));
    let keys: Vec<&str> = answer.dropped.iter().map(|dropped| dropped.key.as_str()).collect();
    assert_eq!(keys, ["cpu", "memory"]);
    assert_eq!(
        answer.dropped[1].error.to_string(),
        "kubelet resource expression evaluated to a negative value (instance-type=m5.large, field=kubeReserved, \
         key=memory, expression=vcpus - 3, result=-1)"
    );
}

#[test]
fn expressions_are_checked_on_every_instance_type() {
    let expressions = expressions();
    let check = |value: &Value| {
        let parsed = parsed(value);
        catalog()
            .types()
            .iter()
            .find_map(|info| check_on_type(&parsed, &expressions, info, pods_of(info)).err())
    };
    assert_eq!(
        check(&json!({ "maxPods": "max(10, vcpus * 10)", "kubeReserved": { "cpu": "vcpus * 30" } })),
        None
    );
    let small = check(&json!({ "kubeReserved": { "cpu": "vcpus - 2" } })).expect("types with one vCPU exist");
    assert!(matches!(small, EvaluationError::NegativeReserved { result: -1, .. }), "{small}");
    let large = check(&json!({ "maxPods": "vcpus > 400 ? 1 / 0 : 5" })).expect("types with 448 vCPUs exist");
    assert!(matches!(large, EvaluationError::MaxPods { .. }), "{large}");
}

#[test]
fn pod_capacity_and_cluster_dns_are_defaults() {
    for (value, pods, dns, expected_pods, expected_dns) in [
        (json!({}), 29, Some("10.100.0.10"), 29, vec!["10.100.0.10"]),
        (json!({}), 29, None, 29, vec![]),
        (json!({ "maxPods": 5 }), 29, None, 5, vec![]),
        (json!({ "maxPods": "vcpus" }), 2, None, 2, vec![]),
        (
            json!({ "clusterDNS": ["1.1.1.1", "8.8.8.8"] }),
            29,
            Some("10.100.0.10"),
            29,
            vec!["1.1.1.1", "8.8.8.8"],
        ),
        (json!({ "clusterDNS": [] }), 29, Some("fd00::a"), 29, vec!["fd00::a"]),
    ] {
        let values: KubeletValues = serde_json::from_value(value.clone()).expect("an object");
        let answer = settings(&values, &parsed(&value), &Resolved::default(), pods, dns);
        assert_eq!(
            (answer.max_pods, answer.cluster_dns),
            (Some(expected_pods), expected_dns.iter().map(|text| text.to_string()).collect()),
            "{value}"
        );
        assert_eq!(Value::Object(answer.raw), value);
    }
}

#[test]
fn settings_are_rendered_into_user_data() {
    let value = json!({
        "maxPods": "vcpus * 10",
        "podsPerCore": 4,
        "kubeReserved": { "cpu": "vcpus * 10", "memory": "1Gi" },
        "evictionHard": { "memory.available": "5%" },
        "evictionSoft": { "memory.available": "10%" },
        "evictionSoftGracePeriod": { "memory.available": "90s" },
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 80,
        "imageGCLowThresholdPercent": 50,
        "cpuCFSQuota": false,
    });
    let values: KubeletValues = serde_json::from_value(value.clone()).expect("an object");
    let answer = resolved(&value, ON, "m5.large").expect("resolvable");
    let mut input = karpenter_userdata::Input::new(AmiFamily::Al2, "demo", "https://demo");
    input.kubelet = settings(&values, &parsed(&value), &answer, 8, Some("10.100.0.10"));
    let text = karpenter_userdata::render(&input).expect("user data").text;
    let expected = "--max-pods=8 --pods-per-core=4 --kube-reserved=\"cpu=20m,memory=1Gi\" \
                    --eviction-hard=\"memory.available<5%\" --eviction-soft=\"memory.available<10%\" \
                    --eviction-soft-grace-period=\"memory.available=1m30s\" --eviction-max-pod-grace-period=60 \
                    --image-gc-high-threshold=80 --image-gc-low-threshold=50 --cpu-cfs-quota=false";
    assert!(text.contains(expected), "{text}");
}
