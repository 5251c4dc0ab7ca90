//! Shares equal strings: a catalog repeats the same label keys and values tens of thousands of times.

use std::sync::Arc;

use karpenter_model::requirements::Requirement;
use rustc_hash::FxHashSet;

/// Hands out one [`Arc`] per distinct text. Only ever looked up, never walked, so hashing cannot
/// leak an order into results.
#[derive(Default)]
pub(crate) struct Interner {
    known: FxHashSet<Arc<str>>,
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

    pub(crate) fn single(&mut self, key: &str, value: &str) -> Requirement {
        Requirement::in_values(self.get(key), [self.get(value)])
    }

    pub(crate) fn any_of<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) -> Requirement {
        let values: Vec<Arc<str>> = values.into_iter().map(|value| self.get(value)).collect();
        Requirement::in_values(self.get(key), values)
    }

    pub(crate) fn absent(&mut self, key: &str) -> Requirement {
        Requirement::does_not_exist(self.get(key))
    }

    /// The value if there is one, and otherwise the statement that nodes of the type lack the label.
    pub(crate) fn single_or_absent(&mut self, key: &str, value: Option<&str>) -> Requirement {
        match value {
            Some(value) => self.single(key, value),
            None => self.absent(key),
        }
    }
}
