//! The security groups that an EC2NodeClass selects: EC2 queries, a cache, and the entries of the status.
//!
//! Upstream: `pkg/providers/securitygroup`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use karpenter_api::labels::ANNOTATION_SECURITY_GROUP_IDS;
use karpenter_api::types::{EC2NodeClass, SecurityGroupSelectorTerm, SecurityGroupStatus};
use karpenter_runtime::clock::Clock;

use crate::api::ec2::{SecurityGroup, SecurityGroupQuery};
use crate::api::{AwsError, Ec2, tag_filters};
use crate::cache::Cache;
use crate::subnets::{ClassVersion, class_version, only_ids};

const REFRESH: Duration = Duration::from_secs(60);

/// The EC2 queries for selector terms: one for each term with tags, one for all ids, and one for all names.
pub fn queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<SecurityGroupQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut queries = Vec::new();
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for term in terms {
        if let Some(id) = given(&term.id) {
            ids.push(id);
        } else if let Some(name) = given(&term.name) {
            names.push(name);
        } else {
            let tags = term.tags.as_ref().map(tag_filters).unwrap_or_default();
            queries.push(SecurityGroupQuery { tags, ..SecurityGroupQuery::default() });
        }
    }
    queries.push(SecurityGroupQuery { ids, ..SecurityGroupQuery::default() });
    queries.push(SecurityGroupQuery { names, ..SecurityGroupQuery::default() });
    // A query without conditions would return all security groups, so such queries are dropped.
    queries.retain(|query| *query != SecurityGroupQuery::default());
    queries
}

/// The EC2 queries for a node class. If the node class is derived from an AWSNodeTemplate, it may restrict the results
/// to a list of ids.
pub fn queries_of(class: &EC2NodeClass) -> Vec<SecurityGroupQuery> {
    let mut queries = queries(&class.spec.security_group_selector_terms);
    let only = only_ids(class, ANNOTATION_SECURITY_GROUP_IDS);
    for query in queries.iter_mut().filter(|query| query.ids.is_empty()) {
        query.ids.clone_from(&only);
    }
    queries
}

/// The status entries of the groups, sorted by id and without duplicates.
pub fn status(groups: &[SecurityGroup]) -> Vec<SecurityGroupStatus> {
    let by_id: BTreeMap<&str, &SecurityGroup> =
        groups.iter().map(|group| (group.id.as_str(), group)).collect();
    by_id
        .into_values()
        .map(|group| SecurityGroupStatus { id: group.id.clone(), name: Some(group.name.clone()) })
        .collect()
}

/// Reads security groups from EC2 through a cache.
pub struct SecurityGroups {
    ec2: Arc<dyn Ec2>,
    answers: Cache<ClassVersion, Arc<Vec<SecurityGroup>>>,
}

impl SecurityGroups {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock) -> Self {
        Self { ec2, answers: Cache::new(clock, REFRESH) }
    }

    /// The security groups that the node class selects, as known at most a minute ago.
    pub async fn list(&self, class: &EC2NodeClass) -> Result<Arc<Vec<SecurityGroup>>, AwsError> {
        let version = class_version(class, ANNOTATION_SECURITY_GROUP_IDS);
        if let Some(known) = self.answers.get(&version) {
            return Ok(known);
        }
        let mut found: BTreeMap<String, SecurityGroup> = BTreeMap::new();
        for query in queries_of(class) {
            for group in self.ec2.describe_security_groups(&query).await? {
                found.insert(group.id.clone(), group);
            }
        }
        let groups = Arc::new(found.into_values().collect::<Vec<_>>());
        self.answers.insert(version, groups.clone());
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{TagFilter, Tags};

    fn term(id: &str, name: &str, tags: &[(&str, &str)]) -> SecurityGroupSelectorTerm {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let tags: Tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SecurityGroupSelectorTerm {
            id: given(id),
            name: given(name),
            tags: (!tags.is_empty()).then_some(tags),
        }
    }

    fn query(ids: &[&str], names: &[&str], tags: Vec<TagFilter>) -> SecurityGroupQuery {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        SecurityGroupQuery { ids: owned(ids), names: owned(names), tags }
    }

    #[test]
    fn selector_terms_become_queries() {
        let table = [
            ("nothing", vec![], vec![]),
            (
                "ids and names share a query",
                vec![term("g1", "", &[]), term("", "n1", &[]), term("g2", "", &[]), term("", "n2", &[])],
                vec![query(&["g1", "g2"], &[], vec![]), query(&[], &["n1", "n2"], vec![])],
            ),
            (
                "terms with tags come first, one query each",
                vec![
                    term("g1", "", &[]),
                    term("", "", &[("a", "*")]),
                    term("", "", &[("a", "1"), ("b", "2")]),
                ],
                vec![
                    query(&[], &[], vec![TagFilter::exists("a")]),
                    query(&[], &[], vec![TagFilter::is("a", "1"), TagFilter::is("b", "2")]),
                    query(&["g1"], &[], vec![]),
                ],
            ),
            (
                "id takes precedence over name and tags",
                vec![term("g1", "n", &[("a", "1")])],
                vec![query(&["g1"], &[], vec![])],
            ),
            (
                "name takes precedence over tags",
                vec![term("", "n", &[("a", "1")])],
                vec![query(&[], &["n"], vec![])],
            ),
            ("an empty term selects nothing", vec![term("", "", &[])], vec![]),
        ];
        for (case, terms, expected) in table {
            assert_eq!(queries(&terms), expected, "{case}");
        }
    }

    #[test]
    fn ids_of_awsnodetemplate_restrict_results_of_tags() {
        let mut class = EC2NodeClass::default();
        class.spec.security_group_selector_terms = vec![term("", "", &[("a", "1")]), term("g9", "", &[])];
        let tags = vec![TagFilter::is("a", "1")];
        assert_eq!(queries_of(&class)[0], query(&[], &[], tags.clone()));
        class.metadata.annotations =
            Some([(ANNOTATION_SECURITY_GROUP_IDS.to_owned(), "g1, g2".to_owned())].into());
        assert_eq!(queries_of(&class), [query(&["g1", "g2"], &[], tags), query(&["g9"], &[], vec![])]);
    }

    #[test]
    fn status_lists_groups_by_id_without_duplicates() {
        let group = |id: &str| SecurityGroup {
            id: id.to_owned(),
            name: format!("name of {id}"),
            ..SecurityGroup::default()
        };
        let listed = status(&[group("sg-2"), group("sg-1"), group("sg-2")]);
        let found: Vec<(&str, Option<&str>)> =
            listed.iter().map(|group| (group.id.as_str(), group.name.as_deref())).collect();
        assert_eq!(found, [("sg-1", Some("name of sg-1")), ("sg-2", Some("name of sg-2"))]);
    }
}
