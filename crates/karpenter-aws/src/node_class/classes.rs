//! The EC2NodeClasses of the cluster, parsed one by one.
//!
//! The API server accepts some objects that cannot be parsed, for example with a volume size of `Ti`. In a watch of
//! typed objects, one such object would make the whole watch fail. Here, only that node class is reported as
//! unreadable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, NodeClassReference};
use karpenter_controllers::stores::Stores;
use karpenter_runtime::store::Store;
use kube::api::DynamicObject;

pub(crate) const KIND: &str = "EC2NodeClass";

/// The result of looking up a node class by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    Missing,
    /// The node class exists, but cannot be parsed.
    Unreadable {
        problem: String,
    },
    Found(Arc<EC2NodeClass>),
}

/// Parses a node class; returns the parse error if it cannot be parsed.
pub fn read(object: &DynamicObject) -> Result<EC2NodeClass, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A node class with metadata and status, but an empty spec, for an object whose spec cannot be parsed.
pub(crate) fn without_spec(object: &DynamicObject) -> EC2NodeClass {
    let status = object.data.get("status").cloned();
    EC2NodeClass {
        metadata: object.metadata.clone(),
        status: status.and_then(|status| serde_json::from_value(status).ok()),
        ..EC2NodeClass::default()
    }
}

/// Whether the reference is to the EC2NodeClass with this name.
pub(crate) fn refers_to(reference: &NodeClassReference, name: &str) -> bool {
    reference.group == labels::AWS_GROUP && reference.kind == KIND && reference.name == name
}

/// The resource version of an object, and the result of parsing it.
type CachedLookup = (Option<String>, Lookup);

/// The node classes of the cluster. All clones share the cache of parsed node classes.
#[derive(Clone)]
pub struct NodeClasses {
    store: Store<DynamicObject>,
    read: Arc<Mutex<BTreeMap<String, CachedLookup>>>,
}

impl NodeClasses {
    pub fn new(store: Store<DynamicObject>) -> Self {
        Self { store, read: Arc::default() }
    }

    /// The node classes in the stores; `None` if the stores do not watch EC2NodeClasses.
    pub fn of(stores: &Stores) -> Option<Self> {
        let (_, store) = stores.node_classes.iter().find(|(kind, _)| kind.kind == KIND)?;
        Some(Self::new(store.clone()))
    }

    pub fn get(&self, name: &str) -> Lookup {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(object) = self.store.get("", name) else {
            read.remove(name);
            return Lookup::Missing;
        };
        let version = object.metadata.resource_version.clone();
        if let Some((known, lookup)) = read.get(name)
            && version.is_some()
            && *known == version
        {
            return lookup.clone();
        }
        let lookup = match self::read(&object) {
            Ok(class) => Lookup::Found(Arc::new(class)),
            Err(problem) => Lookup::Unreadable { problem },
        };
        read.insert(name.to_owned(), (version, lookup.clone()));
        lookup
    }

    /// All node classes that can be parsed, sorted by name.
    pub fn list(&self) -> Vec<Arc<EC2NodeClass>> {
        let names: Vec<String> =
            self.store.list().iter().filter_map(|object| object.metadata.name.clone()).collect();
        names
            .iter()
            .filter_map(|name| match self.get(name) {
                Lookup::Found(class) => Some(class),
                Lookup::Missing | Lookup::Unreadable { .. } => None,
            })
            .collect()
    }

    pub(crate) fn store(&self) -> &Store<DynamicObject> {
        &self.store
    }
}

#[cfg(test)]
mod tests {
    use karpenter_runtime::store::keep_all;

    use super::*;
    use serde_json::{Value, json};

    fn object(name: &str, version: &str, spec: Value) -> DynamicObject {
        let metadata = json!({"name": name, "resourceVersion": version, "uid": name});
        serde_json::from_value(
            json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": KIND, "metadata": metadata, "spec": spec}),
        )
        .expect("an object")
    }

    #[test]
    fn unreadable_class_does_not_affect_others() {
        let store = Store::empty(keep_all, &[]);
        store.apply(object("good", "1", json!({"role": "r"})));
        store.apply(object("bad", "2", json!({"blockDeviceMappings": [{"ebs": {"volumeSize": "Ti"}}]})));
        let classes = NodeClasses::new(store.clone());
        assert!(
            matches!(classes.get("good"), Lookup::Found(class) if class.spec.role.as_deref() == Some("r"))
        );
        assert!(matches!(classes.get("bad"), Lookup::Unreadable { problem } if !problem.is_empty()));
        assert_eq!(classes.get("none"), Lookup::Missing);
        assert_eq!(classes.list().len(), 1);
        store.apply(object("bad", "3", json!({"role": "r2"})));
        assert!(
            matches!(classes.get("bad"), Lookup::Found(class) if class.spec.role.as_deref() == Some("r2"))
        );
        store.forget("", "good", None);
        assert_eq!(classes.get("good"), Lookup::Missing);
    }

    #[test]
    fn reference_matches_group_kind_and_name() {
        let table = [
            ("karpenter.k8s.aws", KIND, "default", true),
            ("karpenter.k8s.aws", KIND, "other", false),
            ("karpenter.kwok.sh", KIND, "default", false),
            ("karpenter.k8s.aws", "KWOKNodeClass", "default", false),
        ];
        for (group, kind, name, expected) in table {
            let reference =
                NodeClassReference { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() };
            assert_eq!(refers_to(&reference, "default"), expected, "{group} {kind} {name}");
        }
    }
}
