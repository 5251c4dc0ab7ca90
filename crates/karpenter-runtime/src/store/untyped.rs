//! Maps of objects by namespace and name, and by index values.
//!
//! The objects are type-erased: a generic map per kind would be instantiated for each kind and enlarge the binary.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::ObjectKey;

/// An object of any kind.
pub(super) type AnyObject = Arc<dyn Any + Send + Sync>;

/// Converts a type-erased object to its kind; `None` if it is of another kind.
pub(super) fn typed<K: Send + Sync + 'static>(kept: &AnyObject) -> Option<Arc<K>> {
    kept.clone().downcast().ok()
}

#[derive(Default)]
pub(super) struct ObjectMap {
    objects: BTreeMap<String, BTreeMap<String, AnyObject>>,
    count: usize,
}

impl ObjectMap {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&AnyObject> {
        self.objects.get(namespace)?.get(name)
    }

    pub(super) fn all(&self) -> Vec<AnyObject> {
        let mut all = Vec::with_capacity(self.count);
        all.extend(self.objects.values().flat_map(BTreeMap::values).cloned());
        all
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        let names = self
            .objects
            .iter()
            .flat_map(|(namespace, names)| names.keys().map(move |name| (namespace, name)));
        names.map(|(namespace, name)| ObjectKey::new(namespace, name)).collect()
    }

    pub(super) fn all_in(&self, namespace: &str) -> Vec<AnyObject> {
        self.objects.get(namespace).map(|names| names.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn insert(&mut self, key: ObjectKey, object: AnyObject) {
        let before = self.objects.entry(key.namespace).or_default().insert(key.name, object);
        self.count += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<AnyObject> {
        let names = self.objects.get_mut(&key.namespace)?;
        let old = names.remove(&key.name)?;
        if names.is_empty() {
            self.objects.remove(&key.namespace);
        }
        self.count -= 1;
        Some(old)
    }
}

/// Objects by index value.
#[derive(Default)]
pub(super) struct IndexEntries {
    by_value: BTreeMap<String, BTreeMap<ObjectKey, AnyObject>>,
}

impl IndexEntries {
    pub(super) fn get(&self, value: &str) -> Vec<AnyObject> {
        self.by_value.get(value).map(|found| found.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn insert(&mut self, values: Vec<String>, key: &ObjectKey, object: &AnyObject) {
        for value in values {
            self.by_value.entry(value).or_default().insert(key.clone(), object.clone());
        }
    }

    pub(super) fn remove(&mut self, values: Vec<String>, key: &ObjectKey) {
        for value in values {
            if let Some(found) = self.by_value.get_mut(&value) {
                found.remove(key);
                if found.is_empty() {
                    self.by_value.remove(&value);
                }
            }
        }
    }
}
