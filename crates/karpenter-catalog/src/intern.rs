//! Stores equal strings and equal requirements once; a catalog contains the same ones tens of thousands of times.

use std::sync::Arc;

use karpenter_model::requirements::Requirement;
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns one [`Arc`] for each distinct string, and one for each distinct requirement with a single value. The hash
/// maps are never iterated, so results do not depend on hash order.
#[derive(Default)]
pub(crate) struct Interner {
    known: FxHashSet<Arc<str>>,
    /// Requirements with a single value, by key and value.
    singles: FxHashMap<Arc<str>, FxHashMap<Arc<str>, Arc<Requirement>>>,
    absent_keys: FxHashMap<Arc<str>, Arc<Requirement>>,
}

impl Interner {
    pub(crate) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let shared: Arc<str> = Arc::from(text);
        self.known.insert(shared.clone());
        shared
    }

    pub(crate) fn single(&mut self, key: &str, value: &str) -> Arc<Requirement> {
        if let Some(known) = self.singles.get(key).and_then(|of_key| of_key.get(value)) {
            return Arc::clone(known);
        }
        let (key, value) = (self.get(key), self.get(value));
        let made = Arc::new(Requirement::in_values(key.clone(), [value.clone()]));
        self.singles.entry(key).or_default().insert(value, Arc::clone(&made));
        made
    }

    /// A requirement whose value occurs only once in the catalog, so it is not stored for reuse.
    pub(crate) fn single_unshared(&mut self, key: &str, value: Arc<str>) -> Arc<Requirement> {
        Arc::new(Requirement::in_values(self.get(key), [value]))
    }

    pub(crate) fn any_of<'a>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Arc<Requirement> {
        let values: Vec<Arc<str>> = values.into_iter().map(|value| self.get(value)).collect();
        match values.as_slice() {
            [] => self.absent(key),
            [value] => self.single(key, &Arc::clone(value)),
            _ => Arc::new(Requirement::in_values(self.get(key), values)),
        }
    }

    pub(crate) fn absent(&mut self, key: &str) -> Arc<Requirement> {
        if let Some(known) = self.absent_keys.get(key) {
            return Arc::clone(known);
        }
        let key = self.get(key);
        let made = Arc::new(Requirement::does_not_exist(key.clone()));
        self.absent_keys.insert(key, Arc::clone(&made));
        made
    }

    /// A requirement for the value; `DoesNotExist` if the value is `None`.
    pub(crate) fn single_or_absent(&mut self, key: &str, value: Option<&str>) -> Arc<Requirement> {
        match value {
            Some(value) => self.single(key, value),
            None => self.absent(key),
        }
    }
}
