//! Converts AWS settings of the v1alpha1 API to the spec of an EC2NodeClass. The settings must be valid by
//! [`crate::rules`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::finding::{Code, Report};
use crate::options::{Options, ROLE_PLACEHOLDER, SECURITY_GROUP_IDS_ANNOTATION, SUBNET_IDS_ANNOTATION};
use crate::quantities;
use crate::rules::SettingsLocation;
use crate::selectors;
use crate::types::{AwsSettings, BlockDeviceMapping, KubeletConfiguration, MetadataOptions};

/// An EC2NodeClass without its name: its spec, and annotations for settings that the spec cannot express.
pub(crate) struct Class {
    pub(crate) spec: Value,
    pub(crate) annotations: Vec<(&'static str, String)>,
}

/// Converts the settings. `kubelet` is given if the class belongs to a single Provisioner that has kubelet settings.
pub(crate) fn class(
    settings: &AwsSettings,
    location: SettingsLocation,
    kubelet: Option<&KubeletConfiguration>,
    options: &Options,
    report: &mut Report,
) -> Class {
    let path = location.path();
    if let Some(template) = &settings.launch_template {
        report.add(
            Code::LaunchTemplate,
            format!("{path}.launchTemplate"),
            format!("launch template {template:?} is not managed by Karpenter; v1 does not support that"),
            "set its AMI, security groups, block devices and user data in the node class",
        );
    }
    let mut spec = Map::new();
    add_images(&mut spec, settings, path, report);
    identity(
        &mut spec,
        settings.instance_profile.as_deref(),
        &format!("{path}.instanceProfile"),
        options,
        report,
    );
    let mixed = options.mixed_selectors;
    let subnets = selectors::resources(
        &settings.subnet_selector,
        "subnet-",
        &format!("{path}.subnetSelector"),
        mixed,
        report,
    );
    let groups = selectors::resources(
        &settings.security_group_selector,
        "sg-",
        &format!("{path}.securityGroupSelector"),
        mixed,
        report,
    );
    spec.insert("subnetSelectorTerms".to_owned(), json!(subnets.terms));
    spec.insert("securityGroupSelectorTerms".to_owned(), json!(groups.terms));
    let annotations =
        [(SUBNET_IDS_ANNOTATION, subnets.only_ids), (SECURITY_GROUP_IDS_ANNOTATION, groups.only_ids)]
            .into_iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(key, ids)| (key, ids.join(",")))
            .collect();
    add_tags(&mut spec, settings, path, options, report);
    if let Some(mappings) = &settings.block_device_mappings {
        let devices: Vec<Value> = mappings.iter().map(device).collect();
        spec.insert("blockDeviceMappings".to_owned(), json!(devices));
    }
    spec.insert("metadataOptions".to_owned(), metadata_options(settings, kubelet));
    for (field, text) in [("userData", &settings.user_data), ("context", &settings.context)] {
        if let Some(text) = text {
            spec.insert(field.to_owned(), json!(text));
        }
    }
    if let Some(detailed) = settings.detailed_monitoring {
        spec.insert("detailedMonitoring".to_owned(), json!(detailed));
    }
    if let Some(kubelet) = kubelet {
        add_kubelet(&mut spec, kubelet, report);
    }
    if let Some(max_pods) = options.max_pods {
        let kubelet = spec.entry("kubelet").or_insert_with(|| json!({}));
        if kubelet.get("maxPods").is_none() {
            kubelet["maxPods"] = json!(max_pods);
        }
    }
    Class { spec: Value::Object(spec), annotations }
}

fn add_images(spec: &mut Map<String, Value>, settings: &AwsSettings, path: &str, report: &mut Report) {
    let family = settings.ami_family.as_deref().unwrap_or("AL2");
    let field = format!("{path}.amiSelector");
    if settings.ami_selector.is_empty() {
        if family == "Ubuntu" {
            ubuntu_without_images(&format!("{path}.amiFamily"), report);
            return;
        }
        alias(spec, family, "latest", &format!("{path}.amiFamily"), report);
        return;
    }
    let terms = selectors::image_terms(&settings.ami_selector, &field, report);
    spec.insert("amiSelectorTerms".to_owned(), json!(terms));
    report.add(
        Code::ImageTagRequirements,
        field,
        "AMI tags with keys of well-known labels restricted the nodes of an AMI; v1 matches the architecture only",
        "use one class per AMI if AMIs are for different nodes",
    );
    match family {
        "Ubuntu" => {
            spec.insert("amiFamily".to_owned(), json!("AL2"));
            if settings.block_device_mappings.is_none() {
                spec.insert("blockDeviceMappings".to_owned(), ubuntu_devices());
            }
        }
        family => drop(spec.insert("amiFamily".to_owned(), json!(family))),
    }
    if family == "Custom" {
        report.add(
            Code::CustomRegistration,
            format!("{path}.userData"),
            "in v1 a node must register with the taint karpenter.sh/unregistered:NoExecute; for family Custom your user data \
             must set it",
            "add --register-with-taints=karpenter.sh/unregistered:NoExecute to the kubelet's arguments",
        );
    }
}

/// An alias in v1 selects the published AMIs of a family, and so determines the AMI family.
pub(crate) fn alias(
    spec: &mut Map<String, Value>,
    family: &str,
    version: &str,
    field: &str,
    report: &mut Report,
) {
    spec.insert(
        "amiSelectorTerms".to_owned(),
        json!([{"alias": format!("{}@{version}", family.to_lowercase())}]),
    );
    if family == "AL2" {
        report.add(
            Code::AmazonLinux2,
            field,
            "AMIs of Amazon Linux 2 exist for Kubernetes before 1.33 only",
            "use alias al2023@latest on newer clusters; user data of AL2 does not work with it",
        );
    }
}

pub(crate) fn ubuntu_without_images(field: &str, report: &mut Report) {
    report.add(
        Code::UbuntuWithoutImages,
        field,
        "v1 has no alias for Ubuntu AMIs",
        "select the AMIs by id, name or tags",
    );
}

/// The block devices that the AMI family Ubuntu had by default.
pub(crate) fn ubuntu_devices() -> Value {
    json!([{
        "deviceName": "/dev/sda1",
        "rootVolume": true,
        "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": true},
    }])
}

/// The identity of nodes: the instance profile of the object; if it has none, the default instance profile of the
/// settings; else a role.
pub(crate) fn identity(
    spec: &mut Map<String, Value>,
    profile: Option<&str>,
    field: &str,
    options: &Options,
    report: &mut Report,
) {
    let known = profile.filter(|profile| !profile.is_empty()).or(options.default_instance_profile.as_deref());
    if let Some(profile) = known {
        spec.insert("instanceProfile".to_owned(), json!(profile));
        return;
    }
    if let Some(role) = &options.role {
        spec.insert("role".to_owned(), json!(role));
        return;
    }
    let (role, message) = match &options.cluster_name {
        Some(cluster) => (
            format!("KarpenterNodeRole-{cluster}"),
            "is not set, and v1 has no default instance profile; the role is named as in the getting-started guide",
        ),
        None => (
            ROLE_PLACEHOLDER.to_owned(),
            "is not set, and v1 has no default instance profile; the role is a placeholder that must be replaced",
        ),
    };
    report.add(Code::IdentityUnknown, field, message, "--default-instance-profile or --role");
    spec.insert("role".to_owned(), json!(role));
}

/// Whether v1 reserves the tag key, so that classes may not set it.
pub(crate) fn is_reserved_tag(key: &str) -> bool {
    key.starts_with("kubernetes.io/cluster")
        || [
            "eks:eks-cluster-name",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        ]
        .contains(&key)
}

fn add_tags(
    spec: &mut Map<String, Value>,
    settings: &AwsSettings,
    path: &str,
    options: &Options,
    report: &mut Report,
) {
    let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, value) in options.tags.iter().chain(&settings.tags) {
        if is_reserved_tag(key) {
            report.add(
                Code::ReservedTag,
                format!("{path}.tags[{key}]"),
                "v1 sets this tag itself; it is left out",
                "none needed",
            );
        } else {
            tags.insert(key, value);
        }
    }
    if !tags.contains_key("Name") {
        report.add(
            Code::NameTag,
            format!("{path}.tags"),
            "instances were named karpenter.sh/provisioner-name/<provisioner>; v1 names them after their nodes",
            "set the tag Name if tools search for the previous value",
        );
    }
    if !tags.is_empty() {
        spec.insert("tags".to_owned(), json!(tags));
    }
}

fn device(mapping: &BlockDeviceMapping) -> Value {
    let mut ebs = json!(mapping.ebs);
    if let Some(size) = mapping.ebs.as_ref().and_then(|ebs| ebs.volume_size.as_ref())
        && let Ok(size) = quantities::volume_size(size)
    {
        ebs["volumeSize"] = json!(size);
    }
    json!({"deviceName": mapping.device_name, "ebs": ebs})
}

/// The metadata options. All fields are set, because v1 has other defaults. If the object has metadata options, fields
/// that it omits had EC2's defaults.
fn metadata_options(settings: &AwsSettings, kubelet: Option<&KubeletConfiguration>) -> Value {
    match &settings.metadata_options {
        None => {
            let dns = kubelet.and_then(|kubelet| kubelet.cluster_dns.first());
            let ipv6 = if dns.is_some_and(|address| address.contains(':')) { "enabled" } else { "disabled" };
            filled(&MetadataOptions::default(), ipv6, 2, "required")
        }
        Some(options) => filled(options, "disabled", 1, "optional"),
    }
}

pub(crate) fn filled(options: &MetadataOptions, ipv6: &str, hops: i64, tokens: &str) -> Value {
    json!({
        "httpEndpoint": options.http_endpoint.as_deref().unwrap_or("enabled"),
        "httpProtocolIPv6": options.http_protocol_ipv6.as_deref().unwrap_or(ipv6),
        "httpPutResponseHopLimit": options.http_put_response_hop_limit.unwrap_or(hops),
        "httpTokens": options.http_tokens.as_deref().unwrap_or(tokens),
    })
}

pub(crate) fn add_kubelet(
    spec: &mut Map<String, Value>,
    kubelet: &KubeletConfiguration,
    report: &mut Report,
) {
    if kubelet.container_runtime.as_deref() == Some("dockerd") {
        report.add(
            Code::Dockerd,
            "spec.kubeletConfiguration.containerRuntime",
            "v1 nodes run containerd only",
            "check workloads that use the docker socket",
        );
    }
    let mut settings = json!(kubelet);
    // Quantities may be JSON numbers in the input, but v1 requires strings.
    for list in ["systemReserved", "kubeReserved"] {
        for amount in settings.get_mut(list).and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(text) = quantities::text(amount.1) {
                *amount.1 = json!(text);
            }
        }
    }
    if settings.as_object().is_some_and(|fields| !fields.is_empty()) {
        spec.insert("kubelet".to_owned(), settings);
    }
}
