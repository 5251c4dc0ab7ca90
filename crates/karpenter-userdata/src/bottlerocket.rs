//! User data of Bottlerocket, which consists of TOML settings. Custom settings are kept; settings that the cluster
//! requires overwrite them.
//!
//! `settings.kubernetes` is built from the settings that `schema` knows. Others are dropped with a warning, because
//! Bottlerocket does not boot with an unknown setting.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/bottlerocket.go`.

mod schema;
pub mod version;

use toml::{Table, Value};

use crate::input::{Input, Kubelet};
use crate::{UserData, UserDataError, Warning};

const RAID_COMMAND: &str = "000-mount-instance-storage";

pub(crate) fn render(input: &Input) -> Result<UserData, UserDataError> {
    let mut user = parse(input.custom_text())?;
    let mut unknown = Vec::new();
    let mut settings = match user.remove("settings") {
        None => Table::new(),
        Some(Value::Table(settings)) => settings,
        Some(other) => return Err(schema::mismatch("settings", "a table", &other)),
    };
    unknown.extend(user.keys().cloned());
    let mut kubernetes = schema::known(settings.remove("kubernetes"), schema::KUBERNETES, &mut unknown)?;
    overwrite(&mut kubernetes, input);
    settings.insert("kubernetes".to_owned(), Value::Table(kubernetes));
    bootstrap_commands(&mut settings, input, &mut unknown)?;
    let document = Table::from_iter([("settings".to_owned(), Value::Table(settings))]);
    let text =
        toml::to_string(&document).map_err(|error| UserDataError::Write { reason: error.to_string() })?;
    let warnings = unknown.into_iter().map(|path| Warning::UnknownSetting { path }).collect();
    Ok(UserData { text, warnings })
}

fn parse(text: &str) -> Result<Table, UserDataError> {
    text.parse::<Table>().map_err(|error| {
        // The error states only the position. The library's message would quote the line, and user data may contain
        // secrets.
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        UserDataError::Toml { line, reason: error.message().to_owned() }
    })
}

fn overwrite(kubernetes: &mut Table, input: &Input) {
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            kubernetes.insert(key.to_owned(), value);
        }
    };
    set("cluster-name", Some(text(&input.cluster_name)));
    set("api-server", Some(text(&input.cluster_endpoint)));
    let kubelet = &input.kubelet;
    set("max-pods", kubelet.max_pods.map(integer));
    set("cluster-dns-ip", kubelet.cluster_dns.first().map(text));
    overwrite_kubelet(kubelet, &mut set);
    match &input.ca_bundle {
        Some(bundle) => set("cluster-certificate", Some(text(bundle))),
        // A custom CA certificate is removed, because it would be that of another cluster.
        None => {
            kubernetes.remove("cluster-certificate");
        }
    }
    merge_labels(kubernetes, input);
    write_taints(kubernetes, input);
}

fn overwrite_kubelet(kubelet: &Kubelet, set: &mut impl FnMut(&str, Option<Value>)) {
    set("system-reserved", texts(&kubelet.system_reserved));
    set("kube-reserved", texts(&kubelet.kube_reserved));
    set("eviction-hard", texts(&kubelet.eviction_hard));
    set("eviction-soft", texts(&kubelet.eviction_soft));
    set("eviction-soft-grace-period", texts(&kubelet.eviction_soft_grace_period));
    set("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period_seconds.map(integer));
    // Bottlerocket accepts percentages only as strings.
    set(
        "image-gc-high-threshold-percent",
        kubelet.image_gc_high_threshold_percent.map(|percent| text(percent.to_string())),
    );
    set(
        "image-gc-low-threshold-percent",
        kubelet.image_gc_low_threshold_percent.map(|percent| text(percent.to_string())),
    );
    set("cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota.map(Value::Boolean));
}

fn merge_labels(kubernetes: &mut Table, input: &Input) {
    if input.labels.is_empty() {
        return;
    }
    let labels = kubernetes.entry("node-labels").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(labels) = labels {
        labels.extend(input.labels.iter().map(|(key, value)| (key.clone(), text(value))));
    }
}

/// Replaces custom taints by those of the NodeClaim. A taint that the NodeClaim does not have would prevent the
/// initialization of the node.
fn write_taints(kubernetes: &mut Table, input: &Input) {
    kubernetes.remove("node-taints");
    let mut by_key = Table::new();
    for taint in &input.taints {
        let entry = text(format!("{}:{}", taint.value, taint.effect.as_str()));
        if let Value::Array(entries) = by_key.entry(&*taint.key).or_insert_with(|| Value::Array(Vec::new())) {
            entries.push(entry);
        }
    }
    if !by_key.is_empty() {
        kubernetes.insert("node-taints".to_owned(), Value::Table(by_key));
    }
}

fn bootstrap_commands(
    settings: &mut Table,
    input: &Input,
    unknown: &mut Vec<String>,
) -> Result<(), UserDataError> {
    let written = settings.remove("bootstrap-commands");
    let mut commands =
        schema::known_map(written, "settings.bootstrap-commands", schema::BOOTSTRAP_COMMAND, unknown)?;
    if input.instance_store_raid0 {
        let bind = ["apiclient", "ephemeral-storage", "bind"];
        // From version 1.46.0 on, the AMI chooses the directories by itself.
        let directories = ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
        let version = input.ami_version.as_deref().unwrap_or_default();
        let bind: Vec<Value> = match version::binds_by_default(version) {
            true => bind.iter().map(text).collect(),
            false => bind.iter().chain(&directories).map(text).collect(),
        };
        let init: Vec<Value> = ["apiclient", "ephemeral-storage", "init"].iter().map(text).collect();
        let command = Table::from_iter([
            ("commands".to_owned(), Value::Array(vec![Value::Array(init), Value::Array(bind)])),
            ("essential".to_owned(), Value::Boolean(true)),
            ("mode".to_owned(), text("always")),
        ]);
        commands.insert(RAID_COMMAND.to_owned(), Value::Table(command));
    }
    if !commands.is_empty() {
        settings.insert("bootstrap-commands".to_owned(), Value::Table(commands));
    }
    Ok(())
}

fn text(value: impl ToString) -> Value {
    Value::String(value.to_string())
}

fn integer(value: i32) -> Value {
    Value::Integer(value.into())
}

fn texts<V: ToString>(values: &std::collections::BTreeMap<String, V>) -> Option<Value> {
    if values.is_empty() {
        return None;
    }
    Some(Value::Table(values.iter().map(|(key, value)| (key.clone(), text(value.to_string()))).collect()))
}
