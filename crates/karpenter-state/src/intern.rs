//! Shares one copy of every string that occurs in many objects: label keys, label values, resource names.

use std::sync::Arc;

use rustc_hash::FxHashSet;

#[derive(Debug, Default)]
pub(crate) struct Interner {
    texts: FxHashSet<Arc<str>>,
}

impl Interner {
    pub(crate) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}
