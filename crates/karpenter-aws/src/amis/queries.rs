//! Translates the AMI selector terms of a node class, except aliases, into EC2 queries.

use karpenter_api::types::AmiSelectorTerm;

use crate::api::ec2::ImageQuery;
use crate::api::tag_filters;

/// The owners whose AMIs a term without an owner can find. Public AMIs of other accounts are found only if a term names
/// the owner.
const OWNERS_WITHOUT_OWNER: [&str; 2] = ["self", "amazon"];

/// The EC2 queries for all selector terms of a node class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The AMI ids of all terms. They share one query, which does not restrict the owner.
    pub ids: Vec<String>,
    /// SSM parameters; each holds the id of one more AMI.
    pub parameters: Vec<String>,
    pub queries: Vec<ImageQuery>,
}

/// Builds the queries. An AMI must match all fields of one of the terms.
pub fn plan(terms: &[AmiSelectorTerm]) -> Plan {
    let mut plan = Plan::default();
    for term in terms {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(id) = given(&term.id) {
            plan.ids.push(id);
        } else if let Some(parameter) = given(&term.ssm_parameter) {
            plan.parameters.push(parameter);
        } else {
            let name = given(&term.name);
            let owners = match given(&term.owner) {
                Some(owner) => vec![owner],
                None if name.is_some() => OWNERS_WITHOUT_OWNER.map(str::to_owned).to_vec(),
                None => Vec::new(),
            };
            let tags = term.tags.as_ref().map(tag_filters).unwrap_or_default();
            plan.queries.push(ImageQuery { ids: Vec::new(), name, owners, tags });
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::TagFilter;

    fn planned(terms: Value) -> Plan {
        plan(&serde_json::from_value::<Vec<AmiSelectorTerm>>(terms).expect("terms"))
    }

    fn query(name: Option<&str>, owners: &[&str], tags: Vec<TagFilter>) -> ImageQuery {
        let owners = owners.iter().map(|owner| owner.to_string()).collect();
        ImageQuery { ids: Vec::new(), name: name.map(str::to_owned), owners, tags }
    }

    #[test]
    fn selector_terms_become_queries() {
        for (terms, expected) in [
            (json!([]), Plan::default()),
            (
                json!([{ "id": "ami-1" }, { "id": "ami-2" }]),
                Plan { ids: vec!["ami-1".into(), "ami-2".into()], ..Plan::default() },
            ),
            (
                json!([{ "ssmParameter": "/my/ami" }, { "id": "ami-1" }]),
                Plan { ids: vec!["ami-1".into()], parameters: vec!["/my/ami".into()], queries: vec![] },
            ),
            (
                json!([{ "name": "my-*" }]),
                Plan { queries: vec![query(Some("my-*"), &["self", "amazon"], vec![])], ..Plan::default() },
            ),
            (
                json!([{ "name": "my-*", "owner": "123456789012" }]),
                Plan { queries: vec![query(Some("my-*"), &["123456789012"], vec![])], ..Plan::default() },
            ),
            (
                json!([{ "tags": { "team": "a", "any": "*" } }]),
                Plan {
                    queries: vec![query(
                        None,
                        &[],
                        vec![TagFilter::exists("any"), TagFilter::is("team", "a")],
                    )],
                    ..Plan::default()
                },
            ),
            (
                json!([{ "tags": { "team": "a" }, "owner": "self" }]),
                Plan {
                    queries: vec![query(None, &["self"], vec![TagFilter::is("team", "a")])],
                    ..Plan::default()
                },
            ),
            (
                json!([{ "name": "x", "tags": { "team": "a" } }, { "name": "y" }]),
                Plan {
                    queries: vec![
                        query(Some("x"), &["self", "amazon"], vec![TagFilter::is("team", "a")]),
                        query(Some("y"), &["self", "amazon"], vec![]),
                    ],
                    ..Plan::default()
                },
            ),
            (
                json!([{ "id": "", "name": "x" }]),
                Plan { queries: vec![query(Some("x"), &["self", "amazon"], vec![])], ..Plan::default() },
            ),
        ] {
            assert_eq!(planned(terms.clone()), expected, "{terms}");
        }
    }
}
