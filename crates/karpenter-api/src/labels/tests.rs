use super::*;

#[test]
fn restricted_keys_are_rejected_unless_well_known() {
    let aws = LabelRules::for_provider(Provider::Aws);
    let kwok = LabelRules::for_provider(Provider::Kwok);
    let all = LabelRules::for_all_providers();
    for (key, by_aws, by_kwok, by_all) in [
        ("team", true, true, true),
        ("example.com/team", true, true, true),
        ("kubernetes.io/anything", true, true, true),
        ("node.k8s.io/anything", true, true, true),
        ("karpenter.sh/capacity-type", true, true, true),
        ("karpenter.sh/nodepool", true, true, true),
        ("karpenter.sh/custom", false, false, false),
        ("deep.sub.karpenter.sh/custom", false, false, false),
        ("fookarpenter.sh/custom", true, true, true),
        ("kubernetes.io/hostname", false, false, false),
        ("topology.kubernetes.io/zone", true, true, true),
        ("karpenter.k8s.aws/instance-cpu", true, true, true),
        ("karpenter.k8s.aws/custom", false, true, false),
        ("sub.karpenter.k8s.aws/custom", false, true, false),
        ("karpenter.kwok.sh/instance-cpu", true, true, true),
        ("karpenter.kwok.sh/custom", true, false, false),
        ("topology.k8s.aws/zone-id", true, true, true),
    ] {
        let allowed = [&aws, &kwok, &all].map(|rules| rules.check_unrestricted(key).is_ok());
        assert_eq!(allowed, [by_aws, by_kwok, by_all], "{key}");
    }
}

#[test]
fn well_known_keys_depend_on_the_provider() {
    let aws = LabelRules::for_provider(Provider::Aws);
    let kwok = LabelRules::for_provider(Provider::Kwok);
    assert!(aws.is_well_known(AWS_INSTANCE_FAMILY) && !kwok.is_well_known(AWS_INSTANCE_FAMILY));
    assert!(kwok.is_well_known(KWOK_INSTANCE_FAMILY) && !aws.is_well_known(KWOK_INSTANCE_FAMILY));
    assert!(!aws.is_well_known(AWS_NODE_CLASS) && !aws.is_well_known(HOSTNAME));
    assert_eq!(aws.well_known().count(), 8 + 29);
    assert_eq!(kwok.well_known().count(), 8 + 4);
    assert_eq!(aws.known_values(AWS_INSTANCE_TENANCY), Some(&["default", "dedicated"][..]));
    assert_eq!(kwok.known_values(AWS_INSTANCE_TENANCY), None);
    assert_eq!(kwok.known_values(CAPACITY_TYPE), Some(&["on-demand", "spot", "reserved"][..]));
    assert_eq!(kwok.known_values(ZONE), None);
}

#[test]
fn deprecated_keys_are_normalized() {
    let rules = LabelRules::for_all_providers();
    for (deprecated, stable) in [
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
        ("failure-domain.beta.kubernetes.io/region", REGION),
        ("beta.kubernetes.io/arch", ARCH),
        ("beta.kubernetes.io/os", OS),
        ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
        (AWS_EBS_ZONE, ZONE),
        ("example.com/zone", "example.com/zone"),
    ] {
        assert_eq!(rules.normalize(deprecated), stable);
    }
}

#[test]
fn ephemeral_taint_depends_on_key_and_effect() {
    for (key, effect, ephemeral) in [
        ("node.kubernetes.io/not-ready", "NoSchedule", true),
        ("node.kubernetes.io/not-ready", "NoExecute", true),
        ("node.kubernetes.io/not-ready", "PreferNoSchedule", false),
        ("node.kubernetes.io/unreachable", "NoSchedule", true),
        ("node.kubernetes.io/unreachable", "NoExecute", false),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", true),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoExecute", false),
        ("karpenter.sh/unregistered", "NoExecute", true),
        ("karpenter.sh/unregistered", "NoSchedule", false),
        ("karpenter.sh/disrupted", "NoSchedule", false),
        ("readiness.k8s.io/network", "NoSchedule", true),
        ("readiness.k8s.io/network", "NoExecute", true),
        ("example.com/custom", "NoSchedule", false),
    ] {
        assert_eq!(is_ephemeral_taint(key, effect), ephemeral, "{key}:{effect}");
    }
}

#[test]
fn node_class_label_and_provider_depend_on_group() {
    assert_eq!(node_class_label(AWS_GROUP, "EC2NodeClass"), AWS_NODE_CLASS);
    assert_eq!(node_class_label(KWOK_GROUP, "KWOKNodeClass"), KWOK_NODE_CLASS);
    assert_eq!(Provider::from_group("karpenter.k8s.aws"), Some(Provider::Aws));
    assert_eq!(Provider::from_group("karpenter.kwok.sh"), Some(Provider::Kwok));
    assert_eq!(Provider::from_group("karpenter.azure.com"), None);
    assert_eq!((label_domain("a.b/c"), label_domain("c")), ("a.b", ""));
}
