//! Converts selector maps of v1alpha1, all of whose entries must match, to selector terms of v1, one of which must
//! match.
//!
//! A value with commas lists alternatives, so a map becomes one term for each combination of alternatives. A v1 term
//! cannot combine ids with tags. If the options allow it, the ids go into an annotation of the derived object instead
//! ([`MixedSelectors::Annotated`]).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::finding::{Code, Report};
use crate::options::MixedSelectors;

/// The maximum number of selector terms (`maxItems`) in the v1 schema.
const TERMS_MAX: usize = 30;

/// The keys in v1alpha1 selectors whose values are ids.
const ID_KEYS: [&str; 2] = ["aws-ids", "aws::ids"];
const NAME_KEY: &str = "aws::name";
const OWNERS_KEY: &str = "aws::owners";

/// Selects the subnets or security groups that match one of the terms and, if ids are given, have one of these ids.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Selection {
    pub(crate) terms: Vec<Value>,
    pub(crate) only_ids: Vec<String>,
}

/// Builds terms for subnets or security groups; `prefix` is the prefix of their ids.
pub(crate) fn resources(
    selector: &BTreeMap<String, String>,
    prefix: &str,
    field: &str,
    mixed: MixedSelectors,
    report: &mut Report,
) -> Selection {
    let (ids, tags) = split(selector, field, prefix, report);
    if tags.is_empty() {
        return Selection { terms: bounded(id_terms(ids), field, report), only_ids: Vec::new() };
    }
    if !ids.is_empty() && mixed == MixedSelectors::Refused {
        ids_with_tags(field, report);
        return Selection::default();
    }
    Selection { terms: bounded(tag_terms(&tags), field, report), only_ids: ids }
}

/// Builds terms for AMIs: one for each combination of owner, name and tags, or for ids alone.
pub(crate) fn image_terms(
    selector: &BTreeMap<String, String>,
    field: &str,
    report: &mut Report,
) -> Vec<Value> {
    let (ids, mut rest) = split(selector, field, "ami-", report);
    if !ids.is_empty() {
        if !rest.is_empty() {
            ids_with_tags(field, report);
            return Vec::new();
        }
        return bounded(id_terms(ids), field, report);
    }
    // If a selector had no owner, v1alpha1 searched AMIs of the cluster's account and of Amazon.
    let owners = rest.remove(OWNERS_KEY).unwrap_or_else(|| vec!["self".to_owned(), "amazon".to_owned()]);
    let names = match rest.remove(NAME_KEY) {
        None => vec![None],
        Some(names) => names.into_iter().map(Some).collect(),
    };
    let tags = if rest.is_empty() { vec![json!({})] } else { tag_terms(&rest) };
    let count = owners.len().saturating_mul(names.len()).saturating_mul(tags.len());
    if count > TERMS_MAX {
        too_many(count, field, report);
        return Vec::new();
    }
    let mut terms = Vec::with_capacity(count);
    for owner in &owners {
        for name in &names {
            for tag in &tags {
                let mut term = tag.as_object().cloned().unwrap_or_default();
                term.insert("owner".to_owned(), json!(owner));
                if let Some(name) = name {
                    term.insert("name".to_owned(), json!(name));
                }
                terms.push(Value::Object(term));
            }
        }
    }
    terms
}

type Alternatives = BTreeMap<String, Vec<String>>;

/// Splits a selector into its ids, and the alternatives of every other key.
fn split(
    selector: &BTreeMap<String, String>,
    field: &str,
    prefix: &str,
    report: &mut Report,
) -> (Vec<String>, Alternatives) {
    let mut ids = Vec::new();
    let mut rest = BTreeMap::new();
    for (key, value) in selector {
        let parts: Vec<String> = value.split(',').map(|part| part.trim().to_owned()).collect();
        if !ID_KEYS.contains(&key.as_str()) {
            rest.insert(key.clone(), parts);
            continue;
        }
        for id in parts {
            let is_id = id.split_once(prefix).is_some_and(|(_, tail)| {
                tail.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            });
            if is_id {
                ids.push(id);
            } else {
                report.never_valid(
                    format!("{field}[{key}]"),
                    format!("{id:?} is not an id"),
                    format!("comma-separated ids with the prefix {prefix}"),
                );
            }
        }
    }
    (ids, rest)
}

fn id_terms(ids: Vec<String>) -> Vec<Value> {
    ids.into_iter().map(|id| json!({"id": id})).collect()
}

/// One term per combination of alternatives; the first key varies fastest. Stops when there are more than v1 allows.
fn tag_terms(alternatives: &Alternatives) -> Vec<Value> {
    let mut combinations: Vec<Map<String, Value>> = vec![Map::new()];
    for (key, values) in alternatives {
        let mut next = Vec::new();
        for value in values {
            for combination in &combinations {
                let mut one = combination.clone();
                one.insert(key.clone(), json!(value));
                next.push(one);
            }
        }
        combinations = next;
        if combinations.len() > TERMS_MAX {
            break;
        }
    }
    if alternatives.is_empty() {
        return Vec::new();
    }
    combinations.into_iter().map(|tags| json!({"tags": tags})).collect()
}

fn bounded(terms: Vec<Value>, field: &str, report: &mut Report) -> Vec<Value> {
    if terms.len() > TERMS_MAX {
        too_many(terms.len(), field, report);
        return Vec::new();
    }
    terms
}

fn too_many(count: usize, field: &str, report: &mut Report) {
    report.add(
        Code::TooManyTerms,
        field,
        format!("becomes at least {count} terms; v1 allows {TERMS_MAX}"),
        "add one common tag to these resources and select by it",
    );
}

fn ids_with_tags(field: &str, report: &mut Report) {
    report.add(
        Code::IdsWithTags,
        field,
        "selects by ids and by tags at once; v1 cannot combine them",
        "keep only the ids, or add one common tag to these resources and select by it",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn subnets(entries: &[(&str, &str)]) -> (Vec<Value>, Vec<&'static str>) {
        let mut report = Report::new(0, "x");
        let field = "spec.subnetSelector";
        let found = resources(&selector(entries), "subnet-", field, MixedSelectors::Refused, &mut report);
        assert!(found.only_ids.is_empty());
        (found.terms, report.findings.iter().map(|finding| finding.code.as_str()).collect())
    }

    fn images(entries: &[(&str, &str)]) -> (Vec<Value>, Vec<&'static str>) {
        let mut report = Report::new(0, "x");
        let terms = image_terms(&selector(entries), "spec.amiSelector", &mut report);
        (terms, report.findings.iter().map(|finding| finding.code.as_str()).collect())
    }

    #[test]
    fn each_id_becomes_one_term_without_whitespace() {
        let (terms, codes) = subnets(&[("aws-ids", "subnet-1, subnet-2 ,subnet-3")]);
        assert_eq!(terms, [json!({"id": "subnet-1"}), json!({"id": "subnet-2"}), json!({"id": "subnet-3"})]);
        assert!(codes.is_empty());
        assert_eq!(subnets(&[("aws::ids", "vpc-1")]).1, ["E18"]);
    }

    #[test]
    fn tags_become_the_product_of_their_alternatives() {
        let (terms, _) = subnets(&[("a", "1,2"), ("b", "x,y"), ("c", "*")]);
        let tags: Vec<String> = terms
            .iter()
            .map(|term| {
                format!("{}{}{}", term["tags"]["a"], term["tags"]["b"], term["tags"]["c"]).replace('"', "")
            })
            .collect();
        assert_eq!(tags, ["1x*", "2x*", "1y*", "2y*"]);
    }

    #[test]
    fn selectors_without_v1_equivalent_are_errors() {
        assert_eq!(subnets(&[("aws-ids", "subnet-1"), ("team", "a")]), (Vec::new(), vec!["E12"]));
        let many: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        let many = many.join(",");
        assert_eq!(subnets(&[("a", &many), ("b", &many)]), (Vec::new(), vec!["E11"]));
        assert_eq!(images(&[("aws::ids", "ami-1"), ("aws::name", "x")]), (Vec::new(), vec!["E12"]));
    }

    #[test]
    fn annotated_mode_keeps_ids_beside_tag_terms() {
        let mut report = Report::new(0, "x");
        let entries = selector(&[("aws-ids", "subnet-1, subnet-2"), ("team", "a,b")]);
        let found = resources(&entries, "subnet-", "f", MixedSelectors::Annotated, &mut report);
        assert!(report.findings.is_empty());
        assert_eq!(found.terms, [json!({"tags": {"team": "a"}}), json!({"tags": {"team": "b"}})]);
        assert_eq!(found.only_ids, ["subnet-1", "subnet-2"]);
        let alone =
            resources(&selector(&[("aws-ids", "sg-1")]), "sg-", "f", MixedSelectors::Annotated, &mut report);
        assert_eq!(alone, Selection { terms: vec![json!({"id": "sg-1"})], only_ids: Vec::new() });
    }

    #[test]
    fn images_without_owner_select_self_and_amazon() {
        let (terms, _) = images(&[("aws::name", "eks-*")]);
        assert_eq!(
            terms,
            [json!({"name": "eks-*", "owner": "self"}), json!({"name": "eks-*", "owner": "amazon"})]
        );
        let (terms, _) = images(&[("aws::owners", "1234"), ("team", "a,b")]);
        assert_eq!(
            terms,
            [
                json!({"owner": "1234", "tags": {"team": "a"}}),
                json!({"owner": "1234", "tags": {"team": "b"}})
            ]
        );
        assert_eq!(images(&[("aws-ids", "ami-1")]).0, [json!({"id": "ami-1"})]);
    }
}
