//! Rules for the AWS settings of a Provisioner or an AWSNodeTemplate.

use std::collections::BTreeMap;

use crate::finding::Report;
use crate::quantities;
use crate::types::{AwsSettings, BlockDeviceMapping, MetadataOptions};

/// In which object the settings are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingsLocation {
    /// In `spec.provider` of a Provisioner.
    Inline,
    /// In `spec` of an AWSNodeTemplate.
    Template,
}

impl SettingsLocation {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Inline => "spec.provider",
            Self::Template => "spec",
        }
    }
}

const FAMILIES: [&str; 6] = ["AL2", "Bottlerocket", "Ubuntu", "Custom", "Windows2019", "Windows2022"];
const VOLUME_TYPES: [&str; 7] = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];

pub(crate) fn check(settings: &AwsSettings, location: SettingsLocation, report: &mut Report) {
    let path = location.path();
    if location == SettingsLocation::Inline {
        check_inline(settings, report);
    }
    if let Some(family) = settings.ami_family.as_deref()
        && !FAMILIES.contains(&family)
    {
        report.never_valid(
            format!("{path}.amiFamily"),
            format!("{family:?} is not an AMI family"),
            FAMILIES.join(", "),
        );
    }
    if settings.ami_family.as_deref() == Some("Custom") && settings.ami_selector.is_empty() {
        report.never_valid(format!("{path}.amiSelector"), "is missing", "the AMIs of family Custom");
    }
    if settings.subnet_selector.is_empty() {
        report.never_valid(
            format!("{path}.subnetSelector"),
            "is missing",
            "tags such as karpenter.sh/discovery: my-cluster",
        );
    }
    if settings.security_group_selector.is_empty() && settings.launch_template.is_none() {
        report.never_valid(
            format!("{path}.securityGroupSelector"),
            "is missing",
            "tags such as karpenter.sh/discovery: my-cluster",
        );
    }
    check_selector(&settings.subnet_selector, &format!("{path}.subnetSelector"), report);
    check_selector(&settings.security_group_selector, &format!("{path}.securityGroupSelector"), report);
    check_selector(&settings.ami_selector, &format!("{path}.amiSelector"), report);
    if settings.tags.contains_key("") {
        report.never_valid(format!("{path}.tags"), "has an empty key", "a key for every tag");
    }
    if let Some(options) = &settings.metadata_options {
        check_metadata_options(options, &format!("{path}.metadataOptions"), report);
    }
    for (index, mapping) in settings.block_device_mappings.iter().flatten().enumerate() {
        check_device(mapping, &format!("{path}.blockDeviceMappings[{index}]"), report);
    }
    check_launch_template(settings, path, report);
}

fn check_inline(settings: &AwsSettings, report: &mut Report) {
    if settings.kind.as_deref().is_some_and(|kind| kind != "AWS") {
        report.never_valid("spec.provider.kind", "is not AWS", "AWS, or omit the field");
    }
    if settings.api_version.as_deref().is_some_and(|version| version != "extensions.karpenter.sh/v1alpha1") {
        report.never_valid(
            "spec.provider.apiVersion",
            "is unknown",
            "extensions.karpenter.sh/v1alpha1, or omit the field",
        );
    }
    for (field, present) in [
        ("userData", settings.user_data.is_some()),
        ("amiSelector", !settings.ami_selector.is_empty()),
        ("detailedMonitoring", settings.detailed_monitoring.is_some()),
    ] {
        if present {
            report.never_valid(
                format!("spec.provider.{field}"),
                "exists only in AWSNodeTemplate",
                "move the settings to an AWSNodeTemplate and name it in spec.providerRef",
            );
        }
    }
}

fn check_selector(selector: &BTreeMap<String, String>, path: &str, report: &mut Report) {
    for (key, value) in selector {
        if key.is_empty() || value.is_empty() {
            report.never_valid(
                format!("{path}[{key}]"),
                "has an empty key or value",
                "* for any value of a tag",
            );
        }
    }
}

fn check_metadata_options(options: &MetadataOptions, path: &str, report: &mut Report) {
    for (field, value, valid) in [
        ("httpEndpoint", &options.http_endpoint, ["enabled", "disabled"]),
        ("httpProtocolIPv6", &options.http_protocol_ipv6, ["enabled", "disabled"]),
        ("httpTokens", &options.http_tokens, ["required", "optional"]),
    ] {
        if let Some(value) = value.as_deref()
            && !valid.contains(&value)
        {
            report.never_valid(
                format!("{path}.{field}"),
                format!("{value:?} is unknown"),
                valid.join(" or "),
            );
        }
    }
    if options.http_put_response_hop_limit.is_some_and(|hops| !(1..=64).contains(&hops)) {
        report.never_valid(format!("{path}.httpPutResponseHopLimit"), "is out of range", "1 to 64");
    }
}

fn check_device(mapping: &BlockDeviceMapping, path: &str, report: &mut Report) {
    if mapping.device_name.as_deref().unwrap_or_default().is_empty() {
        report.never_valid(format!("{path}.deviceName"), "is missing", "a device such as /dev/xvda");
    }
    let Some(ebs) = &mapping.ebs else {
        report.never_valid(format!("{path}.ebs"), "is missing", "volumeSize or snapshotID");
        return;
    };
    match &ebs.volume_size {
        None if ebs.snapshot_id.is_none() => {
            report.never_valid(
                format!("{path}.ebs.volumeSize"),
                "is missing",
                "a size such as 100Gi, or snapshotID",
            );
        }
        None => {}
        Some(size) => {
            if let Err(problem) = quantities::volume_size(size) {
                report.never_valid(format!("{path}.ebs.volumeSize"), problem, "1G to 64T, such as 100Gi");
            }
        }
    }
    if let Some(volume_type) = ebs.volume_type.as_deref()
        && !VOLUME_TYPES.contains(&volume_type)
    {
        report.never_valid(
            format!("{path}.ebs.volumeType"),
            format!("{volume_type:?} is not a volume type"),
            VOLUME_TYPES.join(", "),
        );
    }
}

fn check_launch_template(settings: &AwsSettings, path: &str, report: &mut Report) {
    if settings.launch_template.is_none() {
        return;
    }
    for (field, present) in [
        ("securityGroupSelector", !settings.security_group_selector.is_empty()),
        ("metadataOptions", settings.metadata_options.is_some()),
        ("amiFamily", settings.ami_family.is_some()),
        ("instanceProfile", settings.instance_profile.is_some()),
        ("blockDeviceMappings", settings.block_device_mappings.is_some()),
        ("userData", settings.user_data.is_some()),
        ("amiSelector", !settings.ami_selector.is_empty()),
    ] {
        if present {
            report.never_valid(
                format!("{path}.{field}"),
                "cannot be combined with launchTemplate",
                "remove launchTemplate",
            );
        }
    }
}
