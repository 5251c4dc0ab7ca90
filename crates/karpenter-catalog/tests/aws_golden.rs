//! Compares every instance type with the instance-types page of upstream's documentation.
//!
//! `testdata/aws_golden.csv` is an extract of that page, made by `tools/catalog/golden.py`. The page was generated from
//! another snapshot of EC2's data than ours. Known differences are listed here with both values; any other difference
//! fails the test.

use std::collections::BTreeSet;

use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_model::resources::ResourceList;

const CLOCK: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";

/// Columns: prefix of type names, column of the page, value on the page, our value. EC2 changed the clock speed of some
/// families. EC2 also reports the 15 interfaces of the largest i7ie, and the 24 of the i8ge, as two network cards. So
/// the default card has fewer interfaces, nodes hold fewer pods, and less memory is reserved for pods.
const CHANGED_FACTS: [(&str, &str, &str, &str); 14] = [
    ("c9g.", CLOCK, "2800", "3300"),
    ("c9gd.", CLOCK, "2800", "3300"),
    ("i7i.", CLOCK, "2400", "3200"),
    ("i7ie.", CLOCK, "3600", "3200"),
    ("m9g.", CLOCK, "2800", "3300"),
    ("m9gd.", CLOCK, "2800", "3300"),
    ("i7ie.48xlarge", "memory", "1446437Mi", "1450210Mi"),
    ("i7ie.48xlarge", "pods", "737", "394"),
    ("i7ie.metal-48xl", "memory", "1446437Mi", "1450210Mi"),
    ("i7ie.metal-48xl", "pods", "737", "394"),
    ("i8ge.48xlarge", "memory", "1441527Mi", "1447995Mi"),
    ("i8ge.48xlarge", "pods", "1178", "590"),
    ("i8ge.metal-48xl", "memory", "1441527Mi", "1447995Mi"),
    ("i8ge.metal-48xl", "pods", "1178", "590"),
];

/// The page was generated with the VPC limits of that provider release. Newer limits have branch interfaces for types
/// for which the page shows none.
const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
const POD_ENI_ADDED: usize = 56;

/// Instance types that the page has, but our listing does not.
const UNLISTED: [&str; 5] = ["g4ad.16xlarge", "g4ad.2xlarge", "g4ad.4xlarge", "g4ad.8xlarge", "g4ad.xlarge"];

#[test]
fn resolved_types_agree_with_the_published_page() {
    let mut lines = include_str!("../testdata/aws_golden.csv").lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let class = AwsNodeClass::default();
    let (mut unexplained, mut unlisted) = (Vec::new(), Vec::new());
    let mut explanations = BTreeSet::new();
    let (mut type_count, mut difference_count, mut pod_eni_added) = (0, 0, 0);
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let name = cells[0];
        type_count += 1;
        let Some(resolved) = aws::catalog().resolve_one(name, &class) else {
            unlisted.push(name);
            continue;
        };
        let allocatable = resolved.allocatable();
        for (column, published) in columns.iter().zip(&cells).skip(1) {
            let ours = match resolved.requirements.get(column) {
                Some(requirement) => requirement.single_value().map(|value| value.to_string()),
                None => allocatable
                    .lookup(column)
                    .map(|amount| ResourceList::quantity(column, amount).to_string()),
            };
            // The page omits labels that a type lacks; the extract has a dash in their place.
            let ours = ours.unwrap_or("-".to_owned());
            if ours == *published {
                continue;
            }
            if *column == POD_ENI && *published == "-" {
                pod_eni_added += 1;
                continue;
            }
            difference_count += 1;
            let is_explained = |fact: &&(&str, &str, &str, &str)| {
                name.starts_with(fact.0) && (fact.1, fact.2, fact.3) == (column, published, &ours)
            };
            match CHANGED_FACTS.iter().find(is_explained) {
                Some(fact) => drop(explanations.insert(*fact)),
                None => unexplained.push(format!("{name} {column}: published {published}, ours {ours}")),
            }
        }
    }
    assert_eq!(unexplained, Vec::<String>::new());
    assert_eq!(explanations, BTreeSet::from(CHANGED_FACTS), "an unused explanation");
    assert_eq!(unlisted, UNLISTED);
    assert_eq!((type_count, difference_count, pod_eni_added), (1363, 74, POD_ENI_ADDED));
}
