use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Formats each error as `path: message`, without the description of valid values.
fn shown(errors: &[FieldError]) -> Vec<String> {
    assert!(errors.iter().all(|error| error.rule == Rule::Runtime), "{errors:?}");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
}

fn node_pool(group: &str, template: Value) -> Value {
    let mut object = json!({
        "spec": {"template": {"spec": {"nodeClassRef": {"group": group, "kind": "K", "name": "default"}}}}
    });
    let target = &mut object["spec"]["template"];
    if let Some(metadata) = template.get("metadata") {
        target["metadata"] = metadata.clone();
    }
    for (field, value) in template["spec"].as_object().into_iter().flatten() {
        target["spec"][field] = value.clone();
    }
    object
}

fn node_pool_shown(template: Value) -> Vec<String> {
    shown(&runtime_errors("NodePool", &node_pool("karpenter.k8s.aws", template)))
}

#[test]
fn node_pool_labels() {
    let long = "x".repeat(64);
    for (key, value, expected) in [
        ("team", "infra", None),
        ("example.com/team", "", None),
        ("karpenter.sh/capacity-type", "spot", None),
        ("karpenter.k8s.aws/instance-family", "m5", None),
        ("kubernetes.io/custom", "x", None),
        ("fookarpenter.sh/x", "x", None),
        (
            "karpenter.sh/nodepool",
            "x",
            Some("karpenter.sh/nodepool is set by the NodePool itself and cannot be configured"),
        ),
        (
            "karpenter.sh/custom",
            "x",
            Some("label \"karpenter.sh/custom\" belongs to the restricted domain \"karpenter.sh\""),
        ),
        (
            "karpenter.k8s.aws/custom",
            "x",
            Some("label \"karpenter.k8s.aws/custom\" belongs to the restricted domain \"karpenter.k8s.aws\""),
        ),
        (
            "kubernetes.io/hostname",
            "x",
            Some("label \"kubernetes.io/hostname\" is set by the node itself and cannot be configured"),
        ),
        (
            "spaces in key",
            "x",
            Some(
                "label key \"spaces in key\" is not valid; letters, digits, '-', '_' and '.' are valid, starting and ending with a letter or digit",
            ),
        ),
        (
            "team",
            "-x",
            Some(
                "label value \"-x\" is not valid; letters, digits, '-', '_' and '.' are valid, starting and ending with a letter or digit",
            ),
        ),
        ("team", &long, Some("label value has a name of 64 characters; at most 63 are valid")),
    ] {
        let found = node_pool_shown(json!({"metadata": {"labels": {key: value}}}));
        let expected: Vec<_> = expected
            .iter()
            .map(|message| format!("spec.template.metadata.labels[{key}]: {message}"))
            .collect();
        assert_eq!(found, expected, "{key}={value}");
    }
}

#[test]
fn restricted_labels_depend_on_the_node_class() {
    let template = json!({"metadata": {"labels": {"karpenter.kwok.sh/custom": "x"}}});
    assert!(runtime_errors("NodePool", &node_pool("karpenter.k8s.aws", template.clone())).is_empty());
    let errors = runtime_errors("NodePool", &node_pool("karpenter.kwok.sh", template.clone()));
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].valid.as_deref(),
        Some(
            "a key of another domain, or karpenter.kwok.sh/instance-cpu, karpenter.kwok.sh/instance-family, \
             karpenter.kwok.sh/instance-memory, karpenter.kwok.sh/instance-size"
        )
    );
    // For an unknown provider, the restrictions of all known providers apply.
    assert_eq!(runtime_errors("NodePool", &node_pool("example.com", template)).len(), 1);
}

#[test]
fn node_pool_taints() {
    for (spec, expected) in [
        (
            json!({"taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}]}),
            vec![],
        ),
        (json!({"taints": [{"key": "example.com/k", "value": "v", "effect": ""}]}), vec![]),
        (json!({"taints": [{"key": "", "effect": "NoSchedule"}]}), vec!["taints[0].key: taint key is empty"]),
        (
            json!({"startupTaints": [{"key": "a/b/c", "effect": "NoSchedule"}]}),
            vec!["startupTaints[0].key: taint key \"a/b/c\" has more than one slash"],
        ),
        (
            json!({"taints": [{"key": "k", "value": "a b", "effect": "NoSchedule"}]}),
            vec![
                "taints[0].value: taint value \"a b\" is not valid; letters, digits, '-', '_' and '.' are valid, starting and ending with a letter or digit",
            ],
        ),
        (
            json!({"taints": [{"key": "k", "effect": "Sometimes"}]}),
            vec!["taints[0].effect: taint effect \"Sometimes\" is unknown"],
        ),
        (
            json!({"taints": [{"key": "k", "effect": "NoSchedule"}], "startupTaints": [{"key": "k", "value": "other", "effect": "NoSchedule"}]}),
            vec![
                "startupTaints[0]: taint k:NoSchedule occurs more than once in taints and startupTaints together",
            ],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|text| format!("spec.template.spec.{text}")).collect();
        assert_eq!(node_pool_shown(json!({"spec": spec.clone()})), expected, "{spec}");
    }
}

#[test]
fn node_pool_requirement_on_nodepool_label_is_an_error() {
    let requirement = json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]});
    assert_eq!(
        node_pool_shown(json!({"spec": {"requirements": [requirement.clone()]}})),
        [
            "spec.template.spec.requirements[0].key: karpenter.sh/nodepool is set by the NodePool itself and cannot be required"
        ]
    );
    // A NodeOverlay's requirements may use the NodePool label.
    assert!(runtime_errors("NodeOverlay", &json!({"spec": {"requirements": [requirement]}})).is_empty());
}

#[test]
fn requirements() {
    /// A case: key, operator, values, minValues, and the expected errors.
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], Option<i64>, &'a [&'a str]);
    let cases: &[Case] = &[
        ("kubernetes.io/os", "In", &["linux"], None, &[]),
        ("kubernetes.io/os", "In", &["linux", "windows"], Some(2), &[]),
        ("beta.kubernetes.io/os", "In", &["linux"], None, &[]),
        ("example.com/x", "NotIn", &[], None, &[]),
        ("example.com/x", "Exists", &[], Some(5), &[]),
        ("example.com/x", "Gt", &["0"], None, &[]),
        ("example.com/x", "Lte", &["100"], None, &[]),
        ("example.com/x", "Is", &["a"], None, &["p.operator: operator \"Is\" is not supported"]),
        ("example.com/x", "", &["a"], None, &["p.operator: operator \"\" is not supported"]),
        (
            "kubernetes.io/hostname",
            "In",
            &["a"],
            None,
            &["p.key: label \"kubernetes.io/hostname\" is set by the node itself and cannot be configured"],
        ),
        (
            "a.karpenter.sh/x",
            "Exists",
            &[],
            None,
            &["p.key: label \"a.karpenter.sh/x\" belongs to the restricted domain \"karpenter.sh\""],
        ),
        ("karpenter.sh/capacity-type", "In", &["spot", "sopt"], None, &[]),
        ("karpenter.sh/capacity-type", "NotIn", &["sopt"], None, &[]),
        (
            "karpenter.sh/capacity-type",
            "In",
            &["sopt"],
            None,
            &["p.values: no value of karpenter.sh/capacity-type is known"],
        ),
        (
            "karpenter.sh/capacity-type",
            "In",
            &["spot", "sopt"],
            Some(2),
            &["p.values: only 1 known values of karpenter.sh/capacity-type are given, fewer than minValues"],
        ),
        (
            "karpenter.k8s.aws/instance-tenancy",
            "In",
            &["host"],
            None,
            &["p.values: no value of karpenter.k8s.aws/instance-tenancy is known"],
        ),
        ("", "Exists", &[], None, &["p.key: key \"\" has no name"]),
        ("/x", "Exists", &[], None, &["p.key: key \"/x\" has no domain before the slash"]),
        ("x/", "Exists", &[], None, &["p.key: key \"x/\" has no name"]),
        (
            "Example.com/x",
            "Exists",
            &[],
            None,
            &[
                "p.key: key \"Example.com/x\" has an invalid domain; lower-case letters, digits, '-' and '.' are valid, and each part starts and ends with a letter or digit",
            ],
        ),
        (
            "example.com/x",
            "In",
            &["ok", "not ok"],
            None,
            &[
                "p.values[1]: value \"not ok\" is not valid; letters, digits, '-', '_' and '.' are valid, starting and ending with a letter or digit",
            ],
        ),
        ("example.com/x", "In", &[], None, &["p.values: operator In needs at least one value"]),
        ("karpenter.sh/capacity-type", "In", &[], None, &["p.values: operator In needs at least one value"]),
        (
            "example.com/x",
            "In",
            &["a", "b"],
            Some(3),
            &["p.values: minValues is 3, but only 2 values are given"],
        ),
        (
            "example.com/x",
            "Gt",
            &[],
            None,
            &["p.values: operator Gt needs exactly one value, a non-negative integer"],
        ),
        (
            "example.com/x",
            "Lt",
            &["1", "2"],
            None,
            &["p.values: operator Lt needs exactly one value, a non-negative integer"],
        ),
        (
            "example.com/x",
            "Gte",
            &["1.5"],
            None,
            &["p.values: operator Gte needs exactly one value, a non-negative integer"],
        ),
        (
            "example.com/x",
            "Lte",
            &["a"],
            None,
            &["p.values: operator Lte needs exactly one value, a non-negative integer"],
        ),
    ];
    for (key, operator, values, min_values, expected) in cases {
        let errors = requirement_errors(key, operator, values, *min_values, "p");
        assert_eq!(shown(&errors), *expected, "{key} {operator} {values:?} {min_values:?}");
    }
    // A negative number is no valid label value, so two errors are reported.
    assert_eq!(requirement_errors("example.com/x", "Gt", &["-1"], None, "p").len(), 2);
}

fn kubelet_shown(family: &str, kubelet: Value) -> Vec<String> {
    let spec =
        json!({"spec": {"amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}], "kubelet": kubelet}});
    let errors = runtime_errors("EC2NodeClass", &spec);
    shown(&errors).into_iter().map(|text| text.trim_start_matches("spec.kubelet").to_owned()).collect()
}

#[test]
fn kubelet_settings() {
    let cases = [
        (json!({}), vec![]),
        (
            json!({"maxPods": 10, "evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"},
                "evictionSoft": {"memory.available": "10.5%"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"},
                "kubeReserved": {"cpu": "100m", "pid": "1000"}, "imageGCHighThresholdPercent": 85,
                "imageGCLowThresholdPercent": 80, "cpuCFSQuota": false, "clusterDNS": ["10.0.0.10", "fd00::a"],
                "featureGates": {"A": true}, "syncFrequency": "1m", "memoryThrottlingFactor": 0.9, "tracing": null,
                "authentication": {"anonymous": {"enabled": false}}}),
            vec![],
        ),
        (json!({"maxPodz": 10}), vec![".maxPodz: the kubelet has no setting \"maxPodz\""]),
        (json!({"podsPerCore": "10"}), vec![".podsPerCore: podsPerCore must be a 32-bit integer"]),
        (
            json!({"podsPerCore": 3_000_000_000_i64}),
            vec![".podsPerCore: podsPerCore must be a 32-bit integer"],
        ),
        (json!({"clusterDNS": "10.0.0.10"}), vec![".clusterDNS: clusterDNS must be a list of strings"]),
        (
            json!({"syncFrequency": "soon"}),
            vec![".syncFrequency: syncFrequency must be a duration such as 30s or 5m"],
        ),
        (
            json!({"featureGates": {"A": "true"}}),
            vec![".featureGates: featureGates must be a map of booleans"],
        ),
        (
            json!({"authentication": {"anonymous": {"enable": false}, "webhok": {}}}),
            vec![
                ".authentication.anonymous.enable: the kubelet has no setting \"enable\" in anonymous",
                ".authentication.webhok: the kubelet has no setting \"webhok\" in authentication",
            ],
        ),
        (
            json!({"logging": {"options": {"json": {"splitStream": "yes"}}, "vmodule": null}}),
            vec![".logging.options.json.splitStream: splitStream must be a boolean"],
        ),
        (
            json!({"shutdownGracePeriodByPodPriority": [{"priority": 1}, {"priority": "high"}, 5]}),
            vec![
                ".shutdownGracePeriodByPodPriority[1].priority: priority must be a 32-bit integer",
                ".shutdownGracePeriodByPodPriority[2]: shutdownGracePeriodByPodPriority must be an object",
            ],
        ),
        (json!({"kubeReserved": {"cpu": 1}}), vec![".kubeReserved: kubeReserved must be a map of strings"]),
        (
            json!({"registerWithTaints": []}),
            vec![
                ".registerWithTaints: registerWithTaints cannot be set, because Karpenter manages node taints",
            ],
        ),
        (json!({"maxPods": "vcpus * 10"}), vec![".maxPods: maxPods is an expression, which is not enabled"]),
        (
            json!({"evictionHard": {"memory.free": "5%"}}),
            vec![".evictionHard[memory.free]: eviction signal \"memory.free\" is unknown"],
        ),
        (
            json!({"evictionHard": {"memory.available": "101%"}}),
            vec![".evictionHard[memory.available]: 101% is not a percentage from 0% to 100%"],
        ),
        (
            json!({"evictionMinimumReclaim": {"memory.available": "-1Gi"}}),
            vec![".evictionMinimumReclaim[memory.available]: -1Gi is negative"],
        ),
        (
            json!({"evictionSoft": {"memory.available": "1Gi"}}),
            vec![".evictionSoft: memory.available has no matching entry in evictionSoftGracePeriod"],
        ),
        (
            json!({"evictionSoftGracePeriod": {"memory.available": "-1m"}}),
            vec![
                ".evictionSoftGracePeriod[memory.available]: -1m is negative",
                ".evictionSoftGracePeriod: memory.available has no matching entry in evictionSoft",
            ],
        ),
        (
            json!({"systemReserved": {"gpu": "1"}}),
            vec![".systemReserved[gpu]: resource \"gpu\" cannot be reserved"],
        ),
        (json!({"kubeReserved": {"cpu": "-100m"}}), vec![".kubeReserved[cpu]: -100m is negative"]),
        (
            json!({"kubeReserved": {"memory": "memory_mib / 10"}}),
            vec![
                ".kubeReserved[memory]: \"memory_mib / 10\" is not a quantity, and expressions are not enabled",
            ],
        ),
        (
            json!({"imageGCHighThresholdPercent": 101}),
            vec![".imageGCHighThresholdPercent: imageGCHighThresholdPercent is 101; valid are 0 to 100"],
        ),
        (
            json!({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80}),
            vec![
                ".imageGCHighThresholdPercent: imageGCHighThresholdPercent 80 must be above imageGCLowThresholdPercent 80",
            ],
        ),
        (json!({"maxPods": -1}), vec![".maxPods: maxPods is -1; it cannot be negative"]),
        (json!({"podsPerCore": -1}), vec![".podsPerCore: podsPerCore is -1; it cannot be negative"]),
        (
            json!({"evictionMaxPodGracePeriod": -1}),
            vec![".evictionMaxPodGracePeriod: evictionMaxPodGracePeriod is -1; it cannot be negative"],
        ),
    ];
    for (kubelet, expected) in cases {
        assert_eq!(kubelet_shown("AL2023", kubelet.clone()), expected, "{kubelet}");
    }
}

#[test]
fn kubelet_settings_unsupported_by_ami_family_are_errors() {
    let unmanaged = json!({"serializeImagePulls": false});
    let per_core = json!({"podsPerCore": 10});
    let two_servers = json!({"clusterDNS": ["10.0.0.10", "fd00::a"]});
    for (family, unmanaged_ok, per_core_ok, two_servers_ok) in [
        ("AL2023", true, true, true),
        ("Custom", true, true, true),
        ("AL2", false, true, false),
        ("Bottlerocket", false, false, false),
        ("Windows2022", false, true, false),
    ] {
        for (kubelet, expected) in
            [(&unmanaged, unmanaged_ok), (&per_core, per_core_ok), (&two_servers, two_servers_ok)]
        {
            let found = kubelet_shown(family, kubelet.clone());
            assert_eq!(found.is_empty(), expected, "{family} {kubelet}: {found:?}");
        }
    }
    let by_alias =
        json!({"spec": {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "kubelet": per_core}});
    assert_eq!(
        shown(&runtime_errors("EC2NodeClass", &by_alias)),
        ["spec.kubelet.podsPerCore: podsPerCore is not supported for AMI family Bottlerocket"]
    );
}

#[test]
fn expressions_are_valid_with_feature_gate() {
    let kubelet = json!({"maxPods": "vcpus * 10", "kubeReserved": {"memory": "memory_mib / 10"}});
    let kubelet = kubelet.as_object().expect("object");
    assert!(kubelet_errors(kubelet, "AL2023", true).is_empty());
    assert_eq!(kubelet_errors(kubelet, "AL2023", false).len(), 2);
}

#[test]
fn values_of_wrong_type_are_skipped() {
    for kind in ["NodePool", "NodeOverlay", "EC2NodeClass", "NodeClaim", "Pod"] {
        for object in [
            json!(null),
            json!([]),
            json!({"spec": 1}),
            json!({"spec": {"template": [], "requirements": {}, "kubelet": []}}),
        ] {
            assert_eq!(runtime_errors(kind, &object), [], "{kind} {object}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_requirements_never_panic(key in "\\PC{0,20}", operator in "\\PC{0,8}", value in "\\PC{0,20}", min_values in any::<Option<i64>>()) {
        requirement_errors(&key, &operator, &[&value], min_values, "p");
        qualified_name_problem(&format!("{key}/{value}"));
        let kubelet = json!({key: {value.clone(): value}});
        kubelet_errors(kubelet.as_object().expect("object"), "AL2", false);
    }
}
