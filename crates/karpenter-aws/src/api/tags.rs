//! Tags of AWS resources, and filters on tags.

use std::collections::BTreeMap;

/// Tags of a resource.
pub type Tags = BTreeMap<String, String>;

/// A condition on the tags of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagFilter {
    /// The resource has a tag with this key, whatever its value.
    Exists(String),
    /// The resource has a tag with this key and this value.
    Is(String, String),
}

impl TagFilter {
    pub fn exists(key: impl Into<String>) -> Self {
        Self::Exists(key.into())
    }

    pub fn is(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Is(key.into(), value.into())
    }

    pub fn matches(&self, tags: &Tags) -> bool {
        match self {
            Self::Exists(key) => tags.contains_key(key),
            Self::Is(key, value) => tags.get(key) == Some(value),
        }
    }
}

/// The filters for the tags of a selector term. The value `*` in a term means any value.
pub fn tag_filters(tags: &Tags) -> Vec<TagFilter> {
    tags.iter()
        .map(|(key, value)| match value.as_str() {
            "*" => TagFilter::exists(key),
            value => TagFilter::is(key, value),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asterisk_matches_any_value_of_a_key() {
        let wanted = Tags::from([("a".to_owned(), "*".to_owned()), ("b".to_owned(), "1".to_owned())]);
        let filters = tag_filters(&wanted);
        assert_eq!(filters, [TagFilter::exists("a"), TagFilter::is("b", "1")]);
        let tags = Tags::from([("a".to_owned(), "x".to_owned()), ("b".to_owned(), "2".to_owned())]);
        assert!(filters[0].matches(&tags));
        assert!(!filters[1].matches(&tags));
    }
}
