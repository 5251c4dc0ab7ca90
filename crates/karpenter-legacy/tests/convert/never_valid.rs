//! Tests of objects that v1alpha5's webhooks rejected: the finding names the field and a valid value, and there is no
//! result for the object.

use karpenter_legacy::Severity;

use crate::converted;

const TEMPLATE_SPEC: &str = "subnetSelector: {a: b}, securityGroupSelector: {a: b}";

fn check(text: &str, field: &str, part: &str) {
    let converted = converted(text);
    let errors: Vec<String> = converted.errors().map(ToString::to_string).collect();
    assert!(converted.objects.is_empty(), "{text}");
    let found = converted.errors().find(|finding| finding.field == field);
    let found = found.unwrap_or_else(|| panic!("{field} in {errors:?} of {text}"));
    assert_eq!(found.code.severity(), Severity::Error);
    assert!(found.message.contains(part), "{part:?} in {:?}", found.message);
    assert!(!found.fix.is_empty(), "{found}");
}

fn provisioner(spec: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {{name: some}}\nspec: {{{spec}}}\n"
    )
}

fn template(spec: &str) -> String {
    format!(
        "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {{name: some}}\nspec: {{{spec}}}\n"
    )
}

#[test]
fn provisioners() {
    for (spec, field, part) in [
        (
            "consolidation: {enabled: true}, ttlSecondsAfterEmpty: 30",
            "spec.consolidation.enabled",
            "got both",
        ),
        ("provider: {subnetSelector: {a: b}, securityGroupSelector: {a: b}}", "spec.provider", "got both"),
        ("ttlSecondsAfterEmpty: -1", "spec.ttlSecondsAfterEmpty", "negative"),
        ("ttlSecondsUntilExpired: -1", "spec.ttlSecondsUntilExpired", "negative"),
        ("weight: 101", "spec.weight", "out of range"),
        ("weight: ten", "spec.weight", "invalid type"),
        ("limits: {resources: {cpu: many}}", "spec.limits.resources.cpu", ""),
        ("limits: {cpu: 1}", "spec.limits.cpu", "unknown field"),
        ("ttlSecondsAfterEmtpy: 30", "spec.ttlSecondsAfterEmtpy", "unknown field"),
        (
            "labels: {karpenter.sh/provisioner-name: x}",
            "spec.labels[karpenter.sh/provisioner-name]",
            "set by the controller",
        ),
        ("labels: {kubernetes.io/x: x}", "spec.labels[kubernetes.io/x]", "restricted"),
        ("labels: {a: 'b c'}", "spec.labels[a]", "may contain only"),
        ("taints: [{key: a, effect: Never}]", "spec.taints[0].effect", "not an effect"),
        ("taints: [{key: a, value: 'b c', effect: NoSchedule}]", "spec.taints[0].value", "only letters"),
        (
            "taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: a, effect: NoSchedule}]",
            "spec.startupTaints[0]",
            "twice",
        ),
        ("taints: [{key: a, effect: ''}]", "spec.taints[0].effect", "v1 rejects"),
        (
            "requirements: [{key: a, operator: In, values: null}]",
            "spec.requirements[0].values",
            "must have a value defined",
        ),
        (
            "requirements: [{key: a, operator: Exists}, {key: a, operator: In, values: []}]",
            "spec.requirements[1].values",
            "must have a value defined",
        ),
        (
            "requirements: [{key: a, operator: Gt, values: ['1.5']}]",
            "spec.requirements[0].values",
            "positive integer",
        ),
        (
            "requirements: [{key: a, operator: Gte, values: ['1']}]",
            "spec.requirements[0].operator",
            "not an operator",
        ),
        (
            "requirements: [{key: karpenter.sh/provisioner-name, operator: Exists}]",
            "spec.requirements[0].key",
            "set by the controller",
        ),
        (
            "requirements: [{key: karpenter.k8s.aws/instance-colour, operator: Exists}]",
            "spec.requirements[0].key",
            "restricted",
        ),
        ("kubeletConfiguration: {maxPods: -1}", "spec.kubeletConfiguration.maxPods", "negative"),
        (
            "kubeletConfiguration: {containerRuntime: rkt}",
            "spec.kubeletConfiguration.containerRuntime",
            "not a container runtime",
        ),
        (
            "kubeletConfiguration: {systemReserved: {disk: 1}}",
            "spec.kubeletConfiguration.systemReserved.disk",
            "cannot be reserved",
        ),
        (
            "kubeletConfiguration: {evictionHard: {memory: 1}}",
            "spec.kubeletConfiguration.evictionHard.memory",
            "",
        ),
        (
            "kubeletConfiguration: {evictionHard: {memory.available: 101%}}",
            "spec.kubeletConfiguration.evictionHard.memory.available",
            "threshold",
        ),
        (
            "kubeletConfiguration: {evictionSoft: {memory.available: 5%}}",
            "spec.kubeletConfiguration.evictionSoft.memory.available",
            "no grace period",
        ),
        (
            "kubeletConfiguration: {evictionSoftGracePeriod: {memory.available: 1m}}",
            "spec.kubeletConfiguration.evictionSoftGracePeriod.memory.available",
            "threshold",
        ),
        (
            "kubeletConfiguration: {imageGCHighThresholdPercent: 10, imageGCLowThresholdPercent: 20}",
            "spec.kubeletConfiguration.imageGCHighThresholdPercent",
            "below",
        ),
    ] {
        check(&provisioner(&format!("providerRef: {{name: t}}, {spec}")), field, part);
    }
    check(&provisioner("weight: 1"), "spec.providerRef", "got neither");
    check(&provisioner("providerRef: {kind: X}"), "spec.providerRef.name", "missing");
    check(&provisioner("providerRef: {name: t}").replace("{name: some}", "{}"), "metadata.name", "missing");
}

#[test]
fn inline_settings() {
    for (spec, field, part) in [
        ("userData: x", "spec.provider.userData", "only in AWSNodeTemplate"),
        ("kind: GCP", "spec.provider.kind", "not AWS"),
        ("apiVersion: v2", "spec.provider.apiVersion", "unknown"),
        ("colour: red", "spec.provider.colour", "unknown field"),
        ("launchTemplate: mine", "spec.provider.securityGroupSelector", "cannot be combined"),
    ] {
        check(&provisioner(&format!("provider: {{{TEMPLATE_SPEC}, {spec}}}")), field, part);
    }
    let unmanaged = provisioner("provider: {subnetSelector: {a: b}, launchTemplate: mine}");
    check(&unmanaged, "spec.provider.launchTemplate", "not managed");
}

#[test]
fn templates() {
    for (spec, field, part) in [
        ("amiFamily: Debian", "spec.amiFamily", "not an AMI family"),
        ("amiFamily: Custom", "spec.amiSelector", "missing"),
        ("tags: {'': x}", "spec.tags", "empty key"),
        ("tags: {a: true}", "spec.tags.a", "invalid type"),
        ("metadataOptions: {httpTokens: maybe}", "spec.metadataOptions.httpTokens", "unknown"),
        (
            "metadataOptions: {httpPutResponseHopLimit: 65}",
            "spec.metadataOptions.httpPutResponseHopLimit",
            "out of range",
        ),
        (
            "blockDeviceMappings: [{ebs: {volumeSize: 1Gi}}]",
            "spec.blockDeviceMappings[0].deviceName",
            "missing",
        ),
        ("blockDeviceMappings: [{deviceName: a}]", "spec.blockDeviceMappings[0].ebs", "missing"),
        (
            "blockDeviceMappings: [{deviceName: a, ebs: {}}]",
            "spec.blockDeviceMappings[0].ebs.volumeSize",
            "missing",
        ),
        (
            "blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 65T}}]",
            "spec.blockDeviceMappings[0].ebs.volumeSize",
            "above",
        ),
        (
            "blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, volumeType: ssd}}]",
            "spec.blockDeviceMappings[0].ebs.volumeType",
            "not a volume type",
        ),
    ] {
        check(&template(&format!("{TEMPLATE_SPEC}, {spec}")), field, part);
    }
    check(&template("securityGroupSelector: {a: b}"), "spec.subnetSelector", "missing");
    check(&template("subnetSelector: {a: b}"), "spec.securityGroupSelector", "missing");
    check(
        &template("subnetSelector: {a: ''}, securityGroupSelector: {a: b}"),
        "spec.subnetSelector[a]",
        "empty",
    );
    check(
        &template("subnetSelector: {aws-ids: subnet-1, a: b}, securityGroupSelector: {a: b}"),
        "spec.subnetSelector",
        "at once",
    );
}

/// A Helm chart rendered the Provisioner with an empty list of zones.
#[test]
fn empty_list_of_zones_is_reported_with_its_index() {
    let spec = "providerRef: {name: gpu}, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}, {key: topology.kubernetes.io/zone, operator: In, values: null}]";
    check(&provisioner(spec), "spec.requirements[1].values", "topology.kubernetes.io/zone with operator In");
}

#[test]
fn all_violations_are_reported() {
    let text = provisioner("weight: 0, ttlSecondsAfterEmpty: -1, requirements: [{key: a, operator: In}]");
    assert_eq!(converted(&text).errors().count(), 4);
}
