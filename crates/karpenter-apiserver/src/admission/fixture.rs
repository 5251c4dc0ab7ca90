//! A [`Lookup`] over objects in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Lookup;
use super::json::{name, namespace};

#[derive(Default)]
pub(crate) struct Objects(BTreeMap<(String, String, String, String), Value>);

impl Objects {
    pub(crate) fn add(&mut self, group: &str, plural: &str, object: Value) {
        let key = (
            group.to_string(),
            plural.to_string(),
            namespace(&object).to_string(),
            name(&object).to_string(),
        );
        self.0.insert(key, object);
    }
}

impl Lookup for Objects {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0
            .get(&(group.to_string(), plural.to_string(), namespace.to_string(), name.to_string()))
            .cloned()
            .map(Arc::new)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.0
            .iter()
            .filter(|(key, _)| {
                key.0 == group && key.1 == plural && (namespace.is_empty() || key.2 == namespace)
            })
            .map(|(_, object)| Arc::new(object.clone()))
            .collect()
    }
}
