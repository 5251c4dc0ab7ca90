//! User data of Amazon Linux 2023: a MIME archive that has the custom parts first and, as the last part, a NodeConfig
//! for nodeadm. If a setting is in several parts, the last one takes precedence.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/nodeadm.go`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::input::{Input, Kubelet};
use crate::mime::{Archive, NODE_CONFIG, Part, SHELL_SCRIPT};
use crate::{UserData, UserDataError, kubelet_args};

pub(crate) fn render(input: &Input) -> Result<UserData, UserDataError> {
    let node_config = node_config(input)?;
    let (mut archive, warnings) = match input.custom_text() {
        "" => (Archive::default(), Vec::new()),
        text if Archive::is_archive(text) => {
            let (archive, warnings) = Archive::read(text)?;
            (archive.with_content_headers_only(), warnings)
        }
        text if is_yaml_mapping(text) => (Archive::of(Part::new(NODE_CONFIG, text)), Vec::new()),
        script => (Archive::of(Part::new(SHELL_SCRIPT, script)), Vec::new()),
    };
    archive.push(Part::new(NODE_CONFIG, node_config));
    Ok(UserData { text: archive.write(), warnings })
}

fn node_config(input: &Input) -> Result<String, UserDataError> {
    let cidr = input.cluster_cidr.as_deref().filter(|cidr| !cidr.is_empty());
    let cidr = cidr.ok_or(UserDataError::ClusterCidrMissing)?;
    let mut cluster = json!({
        "apiServerEndpoint": input.cluster_endpoint,
        "cidr": cidr,
        "name": input.cluster_name,
    });
    if let Some(bundle) = input.ca_bundle.as_deref().filter(|bundle| !bundle.is_empty()) {
        cluster["certificateAuthority"] = json!(one_line_base64(bundle)?);
    }
    let local_storage = if input.instance_store_raid0 { json!({ "strategy": "RAID0" }) } else { json!({}) };
    let mut kubelet = json!({ "config": kubelet_config(input) });
    if let Some(flag) = kubelet_args::node_labels(input) {
        kubelet["flags"] = json!([flag]);
    }
    let document = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": cluster,
            "containerd": {},
            "instance": { "localStorage": local_storage },
            "kubelet": kubelet,
        },
    });
    // Block scalars are disabled, because they would break long lines such as the list of labels.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let yaml = serde_saphyr::to_string_with_options(&sorted(&document), options)
        .map_err(|error| UserDataError::Write { reason: error.to_string() })?;
    Ok(format!("# Karpenter Generated NodeConfig\n{yaml}"))
}

/// The user's kubelet configuration, in which the settings that are resolved for each instance type are replaced.
fn kubelet_config(input: &Input) -> Map<String, Value> {
    let Kubelet { raw, cluster_dns, max_pods, system_reserved, kube_reserved, .. } = &input.kubelet;
    let mut config = raw.clone();
    let mut resolve = |key: &str, is_resolved: bool, value: Value| {
        if is_resolved {
            config.insert(key.to_owned(), value);
        } else if config.get(key).is_some_and(|written| !is_empty(written)) {
            // The user's value is an expression that has no value for this instance type. It is removed, because the
            // kubelet must not get the expression.
            config.remove(key);
        }
    };
    resolve("clusterDNS", !cluster_dns.is_empty(), json!(cluster_dns));
    resolve("maxPods", max_pods.is_some(), json!(max_pods));
    resolve("systemReserved", !system_reserved.is_empty(), json!(system_reserved));
    resolve("kubeReserved", !kube_reserved.is_empty(), json!(kube_reserved));
    let taints = input.taints.iter().map(|taint| {
        let mut written = json!({ "effect": taint.effect.as_str(), "key": &*taint.key });
        if !taint.value.is_empty() {
            written["value"] = json!(&*taint.value);
        }
        written
    });
    config.insert("registerWithTaints".to_owned(), taints.collect());
    config
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

fn one_line_base64(bundle: &str) -> Result<String, UserDataError> {
    let compact: String = bundle.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    let bytes =
        STANDARD.decode(&compact).map_err(|error| UserDataError::CaBundle { reason: error.to_string() })?;
    Ok(STANDARD.encode(bytes))
}

/// Sorts the keys of maps at every depth, because the order of `serde_json` maps depends on that crate's features.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(entries) => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect()
        }
        scalar => scalar.clone(),
    }
}

/// Whether the first YAML document of the text is a mapping. A document that contains only comments counts as an empty
/// mapping, which has no effect.
fn is_yaml_mapping(text: &str) -> bool {
    let first = first_document(text);
    let parsed = serde_saphyr::from_str::<Value>(first);
    matches!(parsed, Ok(Value::Object(_) | Value::Null))
}

fn first_document(text: &str) -> &str {
    let mut seen_content = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if seen_content && (bare == "---" || bare == "..." || bare.starts_with("--- ")) {
            return &text[..start];
        }
        seen_content |= !bare.is_empty() && !bare.starts_with('#');
        start += line.len();
    }
    text
}
