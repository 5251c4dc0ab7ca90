use karpenter_model::requirements::Operator;

use super::*;

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new(key, operator, values.iter().copied())
}

/// Two instance types in two zones: `small` costs 1 and 2 $/h, `large` 10 and 20 $/h.
fn types() -> Vec<InstanceType> {
    let offering = |zone: &str, price_per_hour| Offering {
        requirements: [
            requirement(labels::ZONE, Operator::In, &[zone]),
            requirement(labels::CAPACITY_TYPE, Operator::In, &["spot"]),
        ]
        .into_iter()
        .collect(),
        price_per_hour,
        available: true,
        ..Offering::default()
    };
    let make = |name: &str, family: &str, price: f64| InstanceType {
        name: name.into(),
        requirements: [
            requirement(labels::INSTANCE_TYPE, Operator::In, &[name]),
            requirement("family", Operator::In, &[family]),
            requirement(labels::ZONE, Operator::In, &["a", "b"]),
            requirement(labels::CAPACITY_TYPE, Operator::In, &["spot"]),
        ]
        .into_iter()
        .collect(),
        offerings: vec![offering("a", price), offering("b", 2.0 * price)],
        capacity: [(Arc::from("cpu"), 1000)].into_iter().collect(),
        overhead: ResourceList::new(),
        volume_attachment_limits: BTreeMap::new(),
    };
    vec![make("small", "s", 1.0), make("large", "l", 10.0)]
}

fn well_known() -> BTreeSet<Arc<str>> {
    labels::WELL_KNOWN.into_iter().map(Arc::from).collect()
}

type Wanted<'a> = (&'a str, Operator, &'a [&'a str]);

fn overlay(name: &str, weight: i32, wanted: &[Wanted<'_>]) -> Overlay {
    Overlay {
        name: name.into(),
        weight,
        requirements: wanted
            .iter()
            .map(|(key, operator, values)| requirement(key, *operator, values))
            .collect(),
        price: None,
        capacity: ResourceList::new(),
    }
}

fn priced(name: &str, weight: i32, price: &str, wanted: &[Wanted<'_>]) -> Overlay {
    Overlay { price: PriceChange::parse(price), ..overlay(name, weight, wanted) }
}

fn sized(name: &str, weight: i32, resources: &[(&str, i64)]) -> Overlay {
    let capacity = resources.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect();
    Overlay { capacity, ..overlay(name, weight, &[]) }
}

struct Outcome {
    conflicting: Vec<String>,
    prices: Vec<f64>,
    capacities: Vec<ResourceList>,
}

/// The instance types in NodePool `general`, whose nodes have the label team=red, after the overlays are applied.
fn applied(overlays: Vec<Overlay>) -> Outcome {
    let types = types();
    let labels: Labels = [(Arc::from("team"), Arc::from("red"))].into();
    let pool = PoolView { name: "general", labels: &labels };
    let evaluation = evaluate(overlays, &[(pool, &types)], &well_known());
    let after = evaluation.corrections.apply(&pool, &types).map_or(types, |corrected| corrected.types);
    Outcome {
        conflicting: evaluation.conflicting.iter().map(ToString::to_string).collect(),
        prices: after.iter().flat_map(|one| &one.offerings).map(|one| one.price_per_hour).collect(),
        capacities: after.into_iter().map(|one| one.capacity).collect(),
    }
}

#[test]
fn price_adjustments_are_applied_and_not_negative() {
    let cases = [
        ("0.5", Some(0.5)),
        ("0", Some(0.0)),
        ("+0.5", Some(10.5)),
        ("-.5", Some(9.5)),
        ("-11", Some(0.0)),
        ("+10%", Some(11.0)),
        ("-25%", Some(7.5)),
        ("-100%", Some(0.0)),
        ("ten", None),
        ("+inf", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(PriceChange::parse(text).map(|change| change.apply(10.0)), expected, "{text}");
    }
}

#[test]
fn overlay_changes_selected_offerings_only() {
    let cases: [(&[Wanted<'_>], [f64; 4]); 8] = [
        (&[], [5.0, 5.0, 5.0, 5.0]),
        (&[("family", Operator::In, &["s"])], [5.0, 5.0, 10.0, 20.0]),
        (&[(labels::ZONE, Operator::In, &["b"])], [1.0, 5.0, 10.0, 5.0]),
        (&[(labels::ZONE, Operator::NotIn, &["b"])], [5.0, 2.0, 5.0, 20.0]),
        (&[(labels::NODEPOOL, Operator::In, &["general"])], [5.0, 5.0, 5.0, 5.0]),
        (&[(labels::NODEPOOL, Operator::In, &["other"])], [1.0, 2.0, 10.0, 20.0]),
        (&[("team", Operator::In, &["red"]), ("family", Operator::In, &["l"])], [1.0, 2.0, 5.0, 5.0]),
        // A requirement on a key that neither the NodePool nor the instance type defines selects no instance type.
        (&[("undefined", Operator::In, &["x"])], [1.0, 2.0, 10.0, 20.0]),
    ];
    for (wanted, expected) in cases {
        let outcome = applied(vec![priced("one", 1, "5", wanted)]);
        assert_eq!(outcome.prices, expected, "{wanted:?}");
        assert!(outcome.conflicting.is_empty());
    }
}

#[test]
fn higher_weight_takes_precedence_per_offering() {
    let in_b: &[Wanted<'_>] = &[(labels::ZONE, Operator::In, &["b"])];
    let outcome = applied(vec![priced("all", 1, "5", &[]), priced("b", 10, "7", in_b)]);
    assert_eq!(outcome.prices, [5.0, 7.0, 5.0, 7.0]);
    assert!(outcome.conflicting.is_empty());
}

#[test]
fn equal_weights_conflict_for_the_same_offering_only() {
    let a: &[Wanted<'_>] = &[(labels::ZONE, Operator::In, &["a"])];
    let b: &[Wanted<'_>] = &[(labels::ZONE, Operator::In, &["b"])];
    let outcome = applied(vec![priced("one", 3, "5", a), priced("two", 3, "7", b)]);
    assert_eq!((outcome.prices.as_slice(), outcome.conflicting.len()), (&[5.0, 7.0, 5.0, 7.0][..], 0));
    // The overlay with the later name is applied. The other one is not applied at all, even to types for which there is
    // no conflict.
    let outcome = applied(vec![priced("one", 3, "5", &[]), priced("two", 3, "7", b)]);
    assert_eq!(outcome.prices, [1.0, 7.0, 10.0, 7.0]);
    assert_eq!(outcome.conflicting, ["one"]);
    // Two overlays of equal weight conflict even if an overlay of higher weight takes precedence over both.
    let outcome = applied(vec![priced("c", 9, "9", &[]), priced("b", 1, "5", &[]), priced("a", 1, "6", &[])]);
    assert_eq!(outcome.prices, [9.0; 4]);
    assert_eq!(outcome.conflicting, ["a"]);
    // Overlays without a weight have the same weight, so they can conflict.
    assert_eq!(applied(vec![priced("b", 0, "5", &[]), priced("a", 0, "6", &[])]).conflicting, ["a"]);
}

#[test]
fn capacity_is_merged_per_resource() {
    let outcome = applied(vec![
        sized("heavy", 5, &[("example.com/gpu", 4)]),
        sized("light", 1, &[("example.com/gpu", 2), ("example.com/nic", 8)]),
        sized("same", 1, &[("example.com/disk", 3)]),
        sized("again", 1, &[("example.com/nic", 9)]),
    ]);
    assert_eq!(outcome.conflicting, ["again"]);
    let expected: ResourceList =
        [("cpu", 1000), ("example.com/disk", 3), ("example.com/gpu", 4), ("example.com/nic", 8)]
            .into_iter()
            .map(|(name, amount)| (Arc::from(name), amount))
            .collect();
    assert_eq!(outcome.capacities, [expected.clone(), expected]);
}

#[test]
fn unchanged_types_are_not_copied() {
    let types = types();
    let labels = Labels::new();
    let pool = PoolView { name: "general", labels: &labels };
    let elsewhere: &[Wanted<'_>] = &[(labels::NODEPOOL, Operator::In, &["other"])];
    let evaluation = evaluate(vec![priced("one", 1, "5", elsewhere)], &[(pool, &types)], &well_known());
    assert_eq!(evaluation.corrections.apply(&pool, &types), None);
    let other = PoolView { name: "other", labels: &labels };
    let corrected = evaluation.corrections.apply(&other, &types).expect("the overlay selects this pool");
    let both: BTreeSet<Arc<str>> = ["small".into(), "large".into()].into();
    assert_eq!((corrected.repriced, corrected.resized.len()), (both, 0));
}

#[test]
fn overlay_adjusts_the_instance_price_before_attachments_are_added() {
    let mut types = types();
    types[0].offerings[0].set_price(1.0, 0.25);
    for (change, expected) in [("3", 3.25), ("+0.5", 1.75), ("-50%", 0.75), ("-2", 0.25)] {
        let overlays = vec![priced("a", 0, change, &[("family", Operator::In, &["s"])])];
        let labels = Labels::default();
        let pool = PoolView { name: "pool", labels: &labels };
        let corrections = evaluate(overlays, &[(pool, &types)], &well_known()).corrections;
        let corrected = corrections.apply(&pool, &types).expect("a change");
        let offering = &corrected.types[0].offerings[0];
        assert_eq!((offering.price_per_hour, offering.attached_price()), (expected, 0.25), "{change}");
    }
}
