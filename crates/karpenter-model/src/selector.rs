//! Label selectors as in Kubernetes.
//!
//! A nil selector, which selects nothing, is represented by an `Option` in the containing type. An empty selector of
//! this type selects everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    In(BTreeSet<Arc<str>>),
    NotIn(BTreeSet<Arc<str>>),
    Exists,
    DoesNotExist,
}

/// A label selector: expressions that must all match. They are sorted and without duplicates, so equal selectors
/// compare as equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector {
    expressions: BTreeSet<(Arc<str>, Match)>,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn from_match_labels<'a>(labels: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<str>)>) -> Self {
        let mut selector = Self::default();
        for (key, value) in labels {
            selector.require(key.clone(), Match::In([value.clone()].into()));
        }
        selector
    }

    pub fn require(&mut self, key: Arc<str>, expression: Match) {
        self.expressions.insert((key, expression));
    }

    /// Adds all expressions of another selector, so that both must match.
    pub fn require_all(&mut self, other: &Self) {
        self.expressions.extend(other.expressions.iter().cloned());
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.expressions.iter().all(|(key, expression)| {
            let value = labels.get(key);
            match expression {
                Match::In(values) => value.is_some_and(|value| values.contains(value)),
                Match::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Match::Exists => value.is_some(),
                Match::DoesNotExist => value.is_none(),
            }
        })
    }

    /// The label keys that the selector's expressions name.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.expressions.iter().map(|(key, _)| key)
    }

    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// A `label = value` pair that every selected object must have, if there is such a pair. Callers index selectors by
    /// it.
    pub fn one_required_pair(&self) -> Option<(Arc<str>, Arc<str>)> {
        self.expressions.iter().find_map(|(key, expression)| match expression {
            Match::In(values) if values.len() == 1 => {
                values.first().map(|value| (key.clone(), value.clone()))
            }
            _ => None,
        })
    }
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, (key, expression)) in self.expressions.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            let list =
                |values: &BTreeSet<Arc<str>>| values.iter().map(|v| v.as_ref()).collect::<Vec<_>>().join(",");
            match expression {
                Match::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values))?,
                Match::In(values) => write!(f, "{key} in ({})", list(values))?,
                Match::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Match::Exists => write!(f, "{key}")?,
                Match::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_anded_and_missing_labels_satisfy_not_in() {
        let labels: Labels = [("app".into(), "web".into())].into();
        let mut selector = LabelSelector::from_match_labels(&labels);
        assert!(selector.matches(&labels));
        selector.require("tier".into(), Match::NotIn(["db".into()].into()));
        assert!(selector.matches(&labels));
        selector.require("tier".into(), Match::Exists);
        assert!(!selector.matches(&labels));
        assert_eq!(selector.to_string(), "app=web,tier notin (db),tier");
    }

    #[test]
    fn the_empty_selector_matches_everything() {
        assert!(LabelSelector::everything().matches(&Labels::new()));
    }
}
