//! A cache of compiled expressions. A CRD is compiled several times before it is served, and most rules and patterns
//! are the same in all of its versions.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The maximum number of cached expressions, more than a realistic set of CRDs has. When it is reached, the cache is
/// cleared.
const ENTRIES_MAX: usize = 4096;

/// Compiled expressions by their source text. Expressions that do not compile are not cached.
pub(super) struct Cache<T>(LazyLock<Mutex<HashMap<String, T>>>);

impl<T: Clone> Cache<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    pub(super) fn get_or_try<E>(
        &self,
        text: &str,
        compile: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, E> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(text) {
            return Ok(known.clone());
        }
        let compiled = compile(text)?;
        let mut known = lock();
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(text.to_string(), compiled.clone());
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_compilations_are_cached() {
        let cache: Cache<usize> = Cache::new();
        assert_eq!(cache.get_or_try("a", |_| Err("no")), Err("no"));
        assert_eq!(cache.get_or_try("a", |text| Ok::<_, &str>(text.len())), Ok(1));
        assert_eq!(cache.get_or_try("a", |_| Err("never asked")), Ok(1));
        for number in 0..ENTRIES_MAX {
            assert_eq!(cache.get_or_try(&number.to_string(), |_| Ok::<_, &str>(number)), Ok(number));
        }
        assert!(cache.0.lock().unwrap().len() <= ENTRIES_MAX);
    }
}
