//! Admission of pods: service account, limits, priority, tolerations, runtime class and topology labels.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{forbidden, limits, push};
use crate::admission::binding::topology_labels;
use crate::admission::json::{
    Object, child, entries, integer, is_set, items, name, objects_mut, set_default, text,
};
use crate::admission::{Lookup, Operation, Verb};
use crate::status::ApiResult;

const TOLERATION_SECONDS: i64 = 300;

pub(super) fn admit_pod(operation: &Operation<'_>, pod: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    if operation.verb == Verb::Create {
        set_service_account(operation, pod, lookup)?;
        limits::default_pod(operation, pod, lookup);
        set_priority(operation, pod, lookup)?;
    } else {
        keep_priority(operation, pod);
    }
    add_tolerations(pod);
    copy_topology_labels(pod, lookup);
    if operation.verb == Verb::Create {
        set_runtime_class(operation, pod, lookup)?;
        limits::check_pod(operation, pod, lookup)?;
    }
    Ok(())
}

fn set_service_account(operation: &Operation<'_>, pod: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    if is_set(&pod["metadata"]["annotations"]["kubernetes.io/config.mirror"]) {
        if !text(&pod["spec"]["serviceAccountName"]).is_empty() {
            return Err(forbidden(operation, pod, "a mirror pod may not reference service accounts"));
        }
        return Ok(());
    }
    let account_name = match text(&pod["spec"]["serviceAccountName"]) {
        "" => "default".to_string(),
        given => given.to_string(),
    };
    let account = lookup.get("", "serviceaccounts", operation.namespace, &account_name);
    if account.is_none() && account_name != "default" {
        let why = format!(
            "error looking up service account {}/{account_name}: serviceaccount \"{account_name}\" not found",
            operation.namespace
        );
        return Err(forbidden(operation, pod, &why));
    }
    let mounts_token = [Some(&pod["spec"]), account.as_deref()]
        .into_iter()
        .flatten()
        .find_map(|holder| holder["automountServiceAccountToken"].as_bool());
    let volume_name = token_volume_name(pod);
    let Value::Object(map) = pod else { return Ok(()) };
    let spec = child(map, "spec");
    spec.insert("serviceAccountName".into(), json!(account_name));
    spec.insert("serviceAccount".into(), json!(account_name));
    if account.is_some() && mounts_token.unwrap_or(true) {
        mount_token(spec, volume_name);
    }
    if let Some(secrets) =
        account.as_ref().map(|account| items(&account["imagePullSecrets"])).filter(|list| !list.is_empty())
    {
        set_default(spec, "imagePullSecrets", Value::Array(secrets.to_vec()));
    }
    Ok(())
}

const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The name of the token volume. kube-apiserver uses a random suffix; here it is a hash of the pod's name, so that
/// equal requests give equal responses.
fn token_volume_name(pod: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let metadata = &pod["metadata"];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in ["namespace", "name", "generateName"].into_iter().flat_map(|key| text(&metadata[key]).bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mut name = TOKEN_VOLUME_PREFIX.to_string();
    for _ in 0..5 {
        name.push(char::from(LETTERS[(hash % LETTERS.len() as u64) as usize]));
        hash /= LETTERS.len() as u64;
    }
    name
}

/// Mounts the service account's token in every container, unless the container has another mount at the token's path.
fn mount_token(spec: &mut Object, volume_name: String) {
    let existing = items(spec.get("volumes").unwrap_or(&Value::Null))
        .iter()
        .map(|volume| text(&volume["name"]))
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map(str::to_string);
    let has_volume = existing.is_some();
    let volume_name = existing.unwrap_or(volume_name);
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in objects_mut(spec, list) {
            let mounts = items(container.get("volumeMounts").unwrap_or(&Value::Null));
            if !mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                let mount = json!({"name": volume_name, "readOnly": true, "mountPath": TOKEN_PATH});
                push(container, "volumeMounts", mount);
                is_needed = true;
            }
        }
    }
    if is_needed && !has_volume {
        let token = json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}});
        let authority = json!({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}});
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
        let namespace = json!({"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}});
        let sources = json!([token, authority, namespace]);
        push(
            spec,
            "volumes",
            json!({"name": volume_name, "projected": {"defaultMode": 420, "sources": sources}}),
        );
    }
}

/// The default PriorityClass; if there are several, the one with the lowest value.
pub(super) fn default_priority_class(lookup: &dyn Lookup) -> Option<Arc<Value>> {
    lookup
        .list("scheduling.k8s.io", "priorityclasses", "")
        .into_iter()
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| integer(&class["value"]).unwrap_or(0))
}

fn set_priority(operation: &Operation<'_>, pod: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    let asked = text(&pod["spec"]["priorityClassName"]).to_string();
    let class = if asked.is_empty() {
        default_priority_class(lookup)
    } else {
        let class = lookup
            .get("scheduling.k8s.io", "priorityclasses", "", &asked)
            .or_else(|| system_class(&asked).map(Arc::new));
        if class.is_none() {
            return Err(forbidden(operation, pod, &format!("no PriorityClass with name {asked} was found")));
        }
        class
    };
    let priority = class.as_ref().and_then(|class| integer(&class["value"])).unwrap_or(0);
    let policy = match &class {
        Some(class) => class.get("preemptionPolicy").filter(|policy| is_set(policy)).cloned(),
        None => Some(json!("PreemptLowerPriority")),
    };
    if let Some(given) = integer(&pod["spec"]["priority"]).filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(forbidden(operation, pod, &why));
    }
    if let (Some(policy), given) = (&policy, &pod["spec"]["preemptionPolicy"])
        && is_set(given)
        && given != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            text(given),
            text(policy)
        );
        return Err(forbidden(operation, pod, &why));
    }
    let Value::Object(map) = pod else { return Ok(()) };
    let spec = child(map, "spec");
    if let Some(class) = &class {
        spec.insert("priorityClassName".into(), json!(name(class)));
    }
    spec.insert("priority".into(), json!(priority));
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".into(), policy);
    }
    Ok(())
}

/// A built-in PriorityClass, which pods can use even if it is not stored; `None` for other names.
fn system_class(class_name: &str) -> Option<Value> {
    let value = match class_name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return None,
    };
    Some(
        json!({"metadata": {"name": class_name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}),
    )
}

fn keep_priority(operation: &Operation<'_>, pod: &mut Value) {
    if let (Some(old), Value::Object(map)) = (operation.old, pod) {
        for key in ["priority", "preemptionPolicy"] {
            if is_set(&old["spec"][key]) {
                set_default(child(map, "spec"), key, old["spec"][key].clone());
            }
        }
    }
}

/// Adds tolerations for not ready and unreachable nodes, for 300 seconds each, unless the pod tolerates these taints.
fn add_tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = items(&pod["spec"]["tolerations"]).iter().any(|toleration| {
            let (its_key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
            (its_key == key || its_key.is_empty()) && matches!(effect, "" | "NoExecute")
        });
        if let (false, Value::Object(map)) = (tolerates, &mut *pod) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS});
            push(child(map, "spec"), "tolerations", toleration);
        }
    }
}

fn copy_topology_labels(pod: &mut Value, lookup: &dyn Lookup) {
    let node_name = text(&pod["spec"]["nodeName"]).to_string();
    if node_name.is_empty() {
        return;
    }
    for (key, value) in topology_labels(&node_name, lookup) {
        if let Value::Object(map) = &mut *pod {
            child(child(map, "metadata"), "labels").insert(key, value);
        }
    }
}

fn set_runtime_class(operation: &Operation<'_>, pod: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    let class_name = text(&pod["spec"]["runtimeClassName"]).to_string();
    let has_overhead = pod["spec"]["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty());
    if class_name.is_empty() {
        if has_overhead {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(operation, pod, why));
        }
        return Ok(());
    }
    let Some(class) = lookup.get("node.k8s.io", "runtimeclasses", "", &class_name) else {
        let why = format!("pod rejected: RuntimeClass \"{class_name}\" not found");
        return Err(forbidden(operation, pod, &why));
    };
    let overhead = &class["overhead"]["podFixed"];
    if is_set(overhead) {
        if has_overhead && pod["spec"]["overhead"] != *overhead {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(forbidden(operation, pod, why));
        }
    } else if has_overhead {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(forbidden(operation, pod, why));
    }
    for (key, value) in entries(&class["scheduling"]["nodeSelector"]) {
        let given = &pod["spec"]["nodeSelector"][key];
        if is_set(given) && given != value {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(given)
            );
            return Err(forbidden(operation, pod, &why));
        }
    }
    let Value::Object(map) = pod else { return Ok(()) };
    let spec = child(map, "spec");
    if is_set(overhead) {
        spec.insert("overhead".into(), overhead.clone());
    }
    for (key, value) in entries(&class["scheduling"]["nodeSelector"]) {
        child(spec, "nodeSelector").insert(key.clone(), value.clone());
    }
    for toleration in items(&class["scheduling"]["tolerations"]) {
        if !spec.get("tolerations").is_some_and(|all| items(all).contains(toleration)) {
            push(spec, "tolerations", toleration.clone());
        }
    }
    Ok(())
}
