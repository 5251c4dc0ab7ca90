//! Compares resolved types with the values the AWS provider publishes on its instance-types page.
//!
//! `testdata/aws_golden.csv` is a selection of that page, taken as it stands by
//! `tools/catalog/golden.py`. The page was made from other snapshots of EC2's data than ours, so
//! the few known differences are listed here with both values, and nothing else may differ.

use std::collections::BTreeSet;

use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_model::resources::ResourceList;

const CLOCK: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";

/// Type, column, the page's value, ours. EC2 changed the clock speed it reports for two families,
/// and now reports the 15 interfaces of the i7ie as two network cards of 8 and 7: with fewer
/// interfaces on the default card there are fewer pods and less memory is kept for them.
const CHANGED_FACTS: [(&str, &str, &str, &str); 4] = [
    ("i7ie.48xlarge", CLOCK, "3600", "3200"),
    ("i7ie.48xlarge", "memory", "1446437Mi", "1450210Mi"),
    ("i7ie.48xlarge", "pods", "737", "394"),
    ("m9g.large", CLOCK, "2800", "3300"),
];

#[test]
fn resolved_types_agree_with_the_published_page() {
    let mut lines = include_str!("../testdata/aws_golden.csv").lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let class = AwsNodeClass::default();
    let mut differences = BTreeSet::new();
    let mut type_count = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let name = cells[0];
        let resolved =
            aws::catalog().resolve_one(name, &class).unwrap_or_else(|| panic!("{name} is missing"));
        let allocatable = resolved.allocatable();
        for (column, published) in columns.iter().zip(&cells).skip(1) {
            let ours = match resolved.requirements.get(column) {
                Some(requirement) => requirement.single_value().map(|value| value.to_string()),
                None => allocatable
                    .lookup(column)
                    .map(|amount| ResourceList::quantity(column, amount).to_string()),
            };
            // The page leaves out what a type lacks, which the extract writes as a dash.
            let ours = ours.unwrap_or("-".to_owned());
            if ours != *published {
                differences.insert((name, *column, *published, ours));
            }
        }
        type_count += 1;
    }
    assert_eq!(type_count, 70);
    let expected =
        CHANGED_FACTS.map(|(name, column, published, ours)| (name, column, published, ours.to_owned()));
    assert_eq!(differences, BTreeSet::from(expected));
}
