//! The objects that every cluster has from the start: namespaces, priority classes and the Service `kubernetes`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::Core;
use crate::request::{Incoming, Query, Route};
use crate::verbs;

/// Creates the objects by requests, as a client would.
pub(super) fn create_missing(core: &Arc<Core>) {
    for (path, object) in objects() {
        let Route::Resource(target) = Route::parse(path) else { continue };
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("user-agent", HeaderValue::from_static("kube-apiserver"));
        let incoming = Incoming {
            method: Method::POST,
            path: path.to_string(),
            query: Query::default(),
            headers,
            body: Bytes::from(object.to_string()),
        };
        // After a restart the objects exist, and the error `AlreadyExists` is ignored.
        let _ = verbs::handle(core, &incoming, target);
    }
}

fn objects() -> Vec<(&'static str, Value)> {
    let namespaces = ["kube-system", "kube-node-lease", "kube-public", "default"].map(|name| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ("/api/v1/namespaces", object)
    });
    let priorities = [
        ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
    .map(|(name, value, description)| {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        });
        ("/apis/scheduling.k8s.io/v1/priorityclasses", object)
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    });
    let mut all = Vec::new();
    all.extend(namespaces);
    all.extend(priorities);
    all.push(("/api/v1/namespaces/default/services", service));
    all
}
