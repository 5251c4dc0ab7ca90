use karpenter_model::requirements::Operator;

use super::*;

fn selector(id: Option<&str>, name: Option<&str>) -> PlacementGroupSelector {
    PlacementGroupSelector { id: id.map(str::to_owned), name: name.map(str::to_owned) }
}

#[test]
fn selector_queries_id_or_name() {
    let id = |id: &str| Some(PlacementGroupQuery::Id(id.to_owned()));
    let name = |name: &str| Some(PlacementGroupQuery::Name(name.to_owned()));
    assert_eq!(query(&selector(Some("pg-1"), None)), id("pg-1"));
    assert_eq!(query(&selector(None, Some("near"))), name("near"));
    assert_eq!(query(&selector(Some("pg-1"), Some("near"))), id("pg-1"));
    assert_eq!(query(&selector(Some(""), Some("near"))), name("near"));
    assert_eq!(query(&selector(None, None)), None);
    assert_eq!(query(&selector(Some(""), Some(""))), None);
}

#[test]
fn group_with_unknown_strategy_is_ignored() {
    let group = |strategy: &str, partition_count: i32| PlacementGroup {
        id: "pg-1".to_owned(),
        strategy: strategy.to_owned(),
        partition_count,
        ..PlacementGroup::default()
    };
    let partitions = |strategy, count| facts(&group(strategy, count)).map(|group| group.partitions().count());
    assert_eq!(partitions("cluster", 0), Some(0));
    assert_eq!(partitions("spread", 7), Some(0));
    assert_eq!(partitions("partition", 7), Some(7));
    assert_eq!(partitions("partition", -1), Some(0));
    assert_eq!(partitions("huddle", 0), None);
}

#[test]
fn launch_uses_lowest_allowed_partition() {
    let group = |count: u32| aws::PlacementGroup {
        id: "pg-1".into(),
        name: "near".into(),
        strategy: aws::PlacementStrategy::Partition,
        partition_count: count,
    };
    let required =
        |operator, values: &[&str]| Requirement::new("partition", operator, values.iter().copied());
    // Partitions are compared as numbers, because as strings "10" would sort before "2".
    let table: [(Option<Requirement>, Option<u32>); 9] = [
        (None, None),
        (Some(required(Operator::In, &["10", "2"])), Some(2)),
        (Some(required(Operator::In, &["3"])), Some(3)),
        (Some(required(Operator::NotIn, &["1"])), Some(2)),
        (Some(required(Operator::Gt, &["4"])), Some(5)),
        (Some(required(Operator::Exists, &[])), None),
        (Some(required(Operator::In, &["99"])), None),
        (Some(required(Operator::DoesNotExist, &[])), None),
        (Some(required(Operator::In, &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"])), None),
    ];
    for (required, expected) in table {
        assert_eq!(launch_partition(&group(10), required.as_ref()), expected, "{required:?}");
    }
    assert_eq!(
        launch_partition(&group(1), Some(&required(Operator::In, &["1"]))),
        Some(1),
        "there is no choice"
    );
    let spread = aws::PlacementGroup { strategy: aws::PlacementStrategy::Spread, ..group(3) };
    assert_eq!(launch_partition(&spread, Some(&required(Operator::In, &["1"]))), None);
}
