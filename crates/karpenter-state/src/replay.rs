//! Writes a cluster as one `List` of manifests, so that `karpenter plan -f` can plan it elsewhere.
//!
//! The size is bounded: NodePools, the given pods, DaemonSets and pending pods are written first, then nodes and their
//! bound pods, until the limit is reached; `metadata.remainingItemCount` is the number of objects that did not fit.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cluster_input::ClusterInput;
use crate::pod::Pod;

/// The manifests as JSON of at most `bytes_max` bytes. `first` are the most important pods.
pub fn manifests(cluster: &ClusterInput, first: &[Arc<Pod>], bytes_max: usize) -> String {
    let mut list = List { items: Vec::new(), bytes: 0, bytes_max, left: 0 };
    for pool in &cluster.pools {
        list.add(&*pool.pool, "karpenter.sh/v1", "NodePool");
    }
    let named: BTreeSet<*const Pod> = first.iter().map(Arc::as_ptr).collect();
    let is_first = |pod: &&Arc<Pod>| named.contains(&Arc::as_ptr(pod));
    first.iter().for_each(|pod| list.add_pod(pod));
    for set in &cluster.daemon_sets {
        list.add(&**set, "apps/v1", "DaemonSet");
    }
    let waiting = cluster.pending.iter().filter(|pod| !is_first(pod));
    waiting.for_each(|pod| list.add_pod(pod));
    cluster.volume_claims.iter().for_each(|one| list.add(&**one, "v1", "PersistentVolumeClaim"));
    cluster.volumes.iter().for_each(|one| list.add(&**one, "v1", "PersistentVolume"));
    cluster.storage_classes.iter().for_each(|one| list.add(&**one, "storage.k8s.io/v1", "StorageClass"));
    cluster.namespaces.iter().for_each(|one| list.add(&**one, "v1", "Namespace"));
    cluster.node_claims.iter().for_each(|one| list.add(&**one, "karpenter.sh/v1", "NodeClaim"));
    cluster.nodes.iter().for_each(|one| list.add(&**one, "v1", "Node"));
    cluster.csi_nodes.iter().for_each(|one| list.add(&**one, "storage.k8s.io/v1", "CSINode"));
    cluster.bound.iter().for_each(|pod| list.add_pod(pod));
    let metadata = if list.left > 0 { json!({"remainingItemCount": list.left}) } else { json!({}) };
    format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{metadata},"items":[{}]}}"#, list.items.join(","))
}

struct List {
    items: Vec<String>,
    bytes: usize,
    bytes_max: usize,
    left: usize,
}

impl List {
    fn add_pod(&mut self, pod: &Pod) {
        match self.left {
            0 => self.add_value(pod_manifest(pod)),
            _ => self.left += 1,
        }
    }

    fn add(&mut self, object: &impl Serialize, api_version: &str, kind: &str) {
        if self.left > 0 {
            self.left += 1;
            return;
        }
        let mut value = serde_json::to_value(object).unwrap_or_default();
        value["apiVersion"] = api_version.into();
        value["kind"] = kind.into();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self.add_value(value);
    }

    fn add_value(&mut self, value: Value) {
        let text = value.to_string();
        if self.bytes + text.len() > self.bytes_max {
            self.left += 1;
        } else {
            self.bytes += text.len();
            self.items.push(text);
        }
    }
}

/// The kept fields of a pod, in the form of the API.
fn pod_manifest(pod: &Pod) -> Value {
    let mut spec = serde_json::to_value(&*pod.spec).unwrap_or_default();
    if let Some(node) = &pod.node_name {
        spec["nodeName"] = (**node).into();
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), (*pod.name).into());
    metadata.insert("namespace".to_owned(), pod.namespace().into());
    metadata.insert("labels".to_owned(), json!(pod.shared_meta.labels));
    metadata.insert("annotations".to_owned(), json!(pod.shared_meta.annotations));
    metadata.insert("ownerReferences".to_owned(), json!(pod.shared_meta.owners));
    if let Some(created) = pod.created_at {
        metadata.insert("creationTimestamp".to_owned(), created.to_string().into());
    }
    if let Some(deleted) = pod.deleted_at {
        metadata.insert("deletionTimestamp".to_owned(), deleted.to_string().into());
    }
    let mut manifest =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}});
    if !pod.status.phase.as_str().is_empty() {
        manifest["status"]["phase"] = pod.status.phase.as_str().into();
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_input::PoolInput;
    use crate::objects::Objects;
    use crate::{CatalogChoice, assemble};

    fn pod(name: &str, more: Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": name, "namespace": "x", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        pod["spec"]["nodeSelector"] = more;
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn cluster() -> ClusterInput {
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let pool = serde_json::from_value(json!({"metadata": {"name": "general"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}}}));
        let pool = PoolInput { pool: Arc::new(pool.expect("a pool")), instance_types: Arc::default() };
        let pending = vec![pod("a", json!({})), pod("b", json!({"kubernetes.io/arch": "arm64"}))];
        ClusterInput { pools: vec![pool], pending, ..ClusterInput::default() }
    }

    #[test]
    fn written_cluster_can_be_assembled_again() {
        let cluster = cluster();
        let text = manifests(&cluster, &cluster.pending[1..], 1 << 20);
        let read = karpenter_api::manifest::read("replay.json", &text);
        assert_eq!(read.errors, []);
        let reading = Objects::from_documents(read.documents);
        assert!(reading.errors.is_empty(), "{:?}", reading.errors);
        let (problem, _) = assemble(&reading.objects, &CatalogChoice::Kwok);
        assert_eq!((problem.pools.len(), problem.pods.len()), (1, 2));
        let selectors: Vec<String> =
            problem.pods.iter().map(|group| group.spec.node_selector.to_string()).collect();
        assert!(selectors.contains(&"kubernetes.io/arch In [arm64]".to_owned()), "{selectors:?}");
        assert!(problem.pods.iter().all(|group| group.spec.requests.get("cpu") == 1000));
    }

    fn items(text: &str) -> Vec<Value> {
        let list: Value = serde_json::from_str(text).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }

    #[test]
    fn named_pods_are_written_first_and_objects_over_the_limit_are_counted() {
        let cluster = cluster();
        let all = items(&manifests(&cluster, &cluster.pending[1..], 1 << 20));
        assert_eq!(all.len(), 3);
        // The limit is large enough only for the NodePool and the given pod.
        let bytes_max = all[..2].iter().map(|item| item.to_string().len()).sum();
        let text = manifests(&cluster, &cluster.pending[1..], bytes_max);
        let items = items(&text);
        let names: Vec<&Value> = items.iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, ["general", "b"]);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(list["metadata"]["remainingItemCount"], 1);
    }
}
