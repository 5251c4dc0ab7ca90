//! Access to objects as JSON. For all kinds that are written, the plural name can be derived by the regular rules.

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// Group, version and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
}

pub(crate) const DEFINITION: Kind = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
pub(crate) const NAMESPACE: Kind = kind("", "v1", "Namespace");
pub(crate) const NODE: Kind = kind("", "v1", "Node");
pub(crate) const POD: Kind = kind("", "v1", "Pod");
pub(crate) const SERVICE_ACCOUNT: Kind = kind("", "v1", "ServiceAccount");
pub(crate) const DEPLOYMENT: Kind = kind("apps", "v1", "Deployment");
pub(crate) const LEASE: Kind = kind("coordination.k8s.io", "v1", "Lease");
pub(crate) const NODE_POOL: Kind = kind("karpenter.sh", "v1", "NodePool");
pub(crate) const NODE_CLAIM: Kind = kind("karpenter.sh", "v1", "NodeClaim");
pub(crate) const EC2_NODE_CLASS: Kind = kind("karpenter.k8s.aws", "v1", "EC2NodeClass");
pub(crate) const KWOK_NODE_CLASS: Kind = kind("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass");
pub(crate) const PROVISIONER: Kind = kind("karpenter.sh", "v1alpha5", "Provisioner");
pub(crate) const NODE_TEMPLATE: Kind = kind("karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate");

/// The kinds of objects that an installation has besides CRDs, in the order in which they must be deleted.
pub(crate) const INSTALLED: [Kind; 8] = [
    DEPLOYMENT,
    kind("policy", "v1", "PodDisruptionBudget"),
    kind("", "v1", "Service"),
    kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    kind("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    kind("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    kind("rbac.authorization.k8s.io", "v1", "Role"),
    SERVICE_ACCOUNT,
];

const fn kind(group: &'static str, version: &'static str, kind: &'static str) -> Kind {
    Kind { group, version, kind }
}

impl Kind {
    pub(crate) fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, self.version, self.kind))
    }

    /// Access to all objects of the kind, in every namespace.
    pub(crate) fn all(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// Access to the kind's objects in a namespace; without a namespace, to cluster-scoped objects.
    pub(crate) fn within(self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => self.all(client),
        }
    }
}

/// Access to the kind and namespace of an object.
pub(crate) fn place(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = match text(object, "/apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text(object, "/apiVersion")),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text(object, "/kind")));
    match object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The string at a key that may contain slashes, such as the key of a label.
pub(crate) fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.pointer(map)?.get(key)?.as_str()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The status, reason and message of a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((text(found, "/status"), text(found, "/reason"), text(found, "/message")))
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the object has a finalizer of Karpenter, which prevents its deletion.
pub(crate) fn is_held(object: &Value) -> bool {
    finalizers(object).iter().any(|finalizer| is_ours(finalizer))
}

/// Whether a finalizer is Karpenter's: `karpenter.sh/termination`, or `karpenter.k8s.aws/termination` on node classes.
pub(crate) fn is_ours(finalizer: &str) -> bool {
    matches!(finalizer, "karpenter.sh/termination" | "karpenter.k8s.aws/termination")
}

/// The title of an object for messages, such as `Deployment kube-system/karpenter`.
pub fn title(object: &Value) -> String {
    match object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => format!("{} {namespace}/{}", text(object, "/kind"), name(object)),
        None => format!("{} {}", text(object, "/kind"), name(object)),
    }
}

/// The object as JSON, including its kind, which lists omit.
pub(crate) fn plain(kind: Kind, object: DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        let api_version = match kind.group {
            "" => kind.version.to_owned(),
            group => format!("{group}/{}", kind.version),
        };
        map.insert("apiVersion".to_owned(), Value::String(api_version));
        map.insert("kind".to_owned(), Value::String(kind.kind.to_owned()));
    }
    value
}

/// All objects of a kind, sorted by namespace and name; empty if the cluster does not know the kind.
pub(crate) async fn list(client: &Client, kind: Kind, selector: &str) -> kube::Result<Vec<Value>> {
    let parameters = kube::api::ListParams::default().labels(selector);
    match kind.all(client).list(&parameters).await {
        Ok(found) => {
            let mut found: Vec<Value> = found.items.into_iter().map(|object| plain(kind, object)).collect();
            found.sort_by_key(title);
            Ok(found)
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
