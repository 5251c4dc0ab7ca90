use super::*;
use crate::api::{TagFilter, Tags};

fn term(id: Option<&str>, tags: &[(&str, &str)]) -> SubnetSelectorTerm {
    let tags: Tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    SubnetSelectorTerm { id: id.map(str::to_owned), tags: (!tags.is_empty()).then_some(tags) }
}

fn by_ids(ids: &[&str]) -> SubnetQuery {
    SubnetQuery { ids: ids.iter().map(|id| (*id).to_owned()).collect(), tags: Vec::new() }
}

fn by_tags(tags: Vec<TagFilter>) -> SubnetQuery {
    SubnetQuery { ids: Vec::new(), tags }
}

#[test]
fn selector_terms_become_queries() {
    let table = [
        ("nothing", vec![], vec![]),
        ("ids together", vec![term(Some("s1"), &[]), term(Some("s2"), &[])], vec![by_ids(&["s1", "s2"])]),
        (
            "one per tagged term, ids last",
            vec![term(Some("s1"), &[]), term(None, &[("a", "1"), ("b", "*")]), term(None, &[("c", "2")])],
            vec![
                by_tags(vec![TagFilter::is("a", "1"), TagFilter::exists("b")]),
                by_tags(vec![TagFilter::is("c", "2")]),
                by_ids(&["s1"]),
            ],
        ),
        ("an id beats tags", vec![term(Some("s1"), &[("a", "1")])], vec![by_ids(&["s1"])]),
        (
            "an empty id is none",
            vec![term(Some(""), &[("a", "1")])],
            vec![by_tags(vec![TagFilter::is("a", "1")])],
        ),
        ("an empty term selects nothing", vec![term(None, &[])], vec![]),
    ];
    for (case, terms, expected) in table {
        assert_eq!(queries(&terms), expected, "{case}");
    }
}

#[test]
fn status_lists_subnets_by_free_addresses_without_duplicates() {
    let subnet = |id: &str, free: i64| Subnet {
        id: id.to_owned(),
        zone: "a".to_owned(),
        zone_id: Some("use1-az1".to_owned()),
        available_ip_count: free,
        ..Subnet::default()
    };
    type Row<'a> = (&'a [(&'a str, i64)], &'a [&'a str]);
    let table: [Row; 5] = [
        (&[], &[]),
        (&[("s1", 1), ("s2", 5)], &["s2", "s1"]),
        (&[("s2", 5), ("s1", 5)], &["s1", "s2"]),
        (&[("s1", 0), ("s3", 9), ("s2", 9)], &["s2", "s3", "s1"]),
        (&[("s1", 3), ("s1", 3)], &["s1"]),
    ];
    for (given, expected) in table {
        let subnets: Vec<Subnet> = given.iter().map(|(id, free)| subnet(id, *free)).collect();
        let listed = status(&subnets);
        let ids: Vec<&str> = listed.iter().map(|subnet| subnet.id.as_str()).collect();
        assert_eq!(ids, expected, "{given:?}");
        assert!(listed.iter().all(|subnet| subnet.zone_id.as_deref() == Some("use1-az1")));
    }
}

#[test]
fn ids_of_awsnodetemplate_restrict_results_of_tags() {
    let mut class = EC2NodeClass::default();
    class.spec.subnet_selector_terms = vec![term(None, &[("a", "1")]), term(Some("s9"), &[])];
    let tags = vec![TagFilter::is("a", "1")];
    assert_eq!(queries_of(&class), [by_tags(tags.clone()), by_ids(&["s9"])]);
    let before = class_version(&class, ANNOTATION_SUBNET_IDS);
    class.metadata.annotations = Some([(ANNOTATION_SUBNET_IDS.to_owned(), "s1, s2".to_owned())].into());
    let both = SubnetQuery { tags, ..by_ids(&["s1", "s2"]) };
    assert_eq!(queries_of(&class), [both, by_ids(&["s9"])]);
    assert_ne!(
        class_version(&class, ANNOTATION_SUBNET_IDS),
        before,
        "what was found before is not what is asked for now"
    );
}
