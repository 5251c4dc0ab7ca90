use super::*;

fn req(operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new("k", operator, values.iter().copied())
}

#[test]
fn has_depends_on_operator() {
    let cases: &[(Operator, &[&str], &str, bool)] = &[
        (Operator::In, &["a", "b"], "a", true),
        (Operator::In, &["a", "b"], "c", false),
        (Operator::NotIn, &["a"], "a", false),
        (Operator::NotIn, &["a"], "c", true),
        (Operator::Exists, &[], "anything", true),
        (Operator::DoesNotExist, &[], "anything", false),
        (Operator::Gt, &["4"], "4", false),
        (Operator::Gt, &["4"], "5", true),
        (Operator::Gt, &["4"], "x", false),
        (Operator::Lt, &["4"], "3", true),
        (Operator::Lt, &["4"], "4", false),
        (Operator::Gte, &["4"], "4", true),
        (Operator::Lte, &["4"], "4", true),
        (Operator::Lte, &["4"], "5", false),
    ];
    for (operator, values, value, expected) in cases {
        assert_eq!(req(*operator, values).has(value), *expected, "{operator:?} {values:?} has {value}");
    }
}

#[test]
fn intersection_agrees_with_has_on_sample_values() {
    let samples = ["a", "b", "c", "1", "3", "5", "9"];
    let all = [
        req(Operator::In, &["a", "b", "3"]),
        req(Operator::In, &["c", "5"]),
        req(Operator::NotIn, &["a", "5"]),
        req(Operator::NotIn, &["3"]),
        req(Operator::Exists, &[]),
        req(Operator::DoesNotExist, &[]),
        req(Operator::Gt, &["3"]),
        req(Operator::Lt, &["5"]),
        req(Operator::Gte, &["5"]),
        req(Operator::Lte, &["1"]),
    ];
    for a in &all {
        for b in &all {
            let both = a.intersection(b);
            for value in samples {
                assert_eq!(both.has(value), a.has(value) && b.has(value), "{a} ∩ {b} has {value}");
            }
            if a.has_intersection(b) != (both.operator() != Operator::DoesNotExist) {
                panic!("has_intersection({a}, {b}) disagrees with {both}");
            }
        }
    }
}

#[test]
fn contradictory_bounds_keep_min_values() {
    let a = req(Operator::Gt, &["9"]).with_min_values(Some(2));
    let both = a.intersection(&req(Operator::Lt, &["3"]));
    assert_eq!(both.operator(), Operator::DoesNotExist);
    assert_eq!(both.min_values, Some(2));
}

#[test]
fn compatible_needs_defined_keys_unless_open_or_excluding() {
    let node: Requirements = [Requirement::in_values("zone", ["a"])].into_iter().collect();
    let open: BTreeSet<Arc<str>> = ["arch".into()].into();
    let pod = |r: Requirement| -> Requirements { [r].into_iter().collect() };
    assert!(node.compatible(&pod(Requirement::in_values("arch", ["arm64"])), &open).is_ok());
    assert!(node.compatible(&pod(Requirement::new("team", Operator::NotIn, ["x"])), &open).is_ok());
    assert!(node.compatible(&pod(Requirement::does_not_exist("team")), &open).is_ok());
    assert!(matches!(
        node.compatible(&pod(Requirement::in_values("team", ["x"])), &open),
        Err(Incompatible::Undefined { .. })
    ));
    assert!(matches!(
        node.compatible(&pod(Requirement::exists("x/zone")), &open),
        Err(Incompatible::Undefined { hint: Some(hint), .. }) if &*hint == "zone"
    ));
    assert!(matches!(
        node.compatible(&pod(Requirement::in_values("zone", ["b"])), &open),
        Err(Incompatible::Conflict { .. })
    ));
}

#[test]
fn requirements_that_only_exclude_do_not_conflict() {
    let a: Requirements = [Requirement::does_not_exist("k")].into_iter().collect();
    let b: Requirements = [Requirement::new("k", Operator::NotIn, ["x"])].into_iter().collect();
    assert!(a.intersects(&b));
    let c: Requirements = [Requirement::exists("k")].into_iter().collect();
    assert!(!a.intersects(&c));
}

#[test]
fn any_value_avoids_excluded_integers() {
    let mut r = req(Operator::NotIn, &["0", "1"]);
    assert_eq!(r.any_value().as_deref(), Some("2"));
    r.lte = Some(1);
    assert_eq!(r.any_value(), None);
    assert_eq!(req(Operator::Gt, &["7"]).any_value().as_deref(), Some("8"));
    assert_eq!(req(Operator::DoesNotExist, &[]).any_value(), None);
}

#[test]
fn display_truncates_long_lists() {
    let r = req(Operator::In, &["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(r.to_string(), "k In [1 2 3 4 5 and 2 others]");
    assert_eq!(req(Operator::Gt, &["3"]).to_string(), "k Exists >=4");
}

#[test]
fn clones_share_content_until_changed() {
    let key = |name: &str| Requirement::in_values(name, ["a", "b"]);
    let first: Requirements = [key("m"), key("c"), key("x")].into_iter().collect();
    let mut second = first.clone();
    second.add(key("d"));
    second.add(Requirement::in_values("m", ["b", "c"]));
    second.remove("x");
    assert_eq!(first.keys().map(|key| &**key).collect::<Vec<_>>(), ["c", "m", "x"]);
    assert_eq!(first.get("m"), Some(&key("m")));
    assert_eq!(second.keys().map(|key| &**key).collect::<Vec<_>>(), ["c", "d", "m"]);
    assert_eq!(second.get("m"), Some(&Requirement::in_values("m", ["b"])));
    assert_eq!(second.remove("x"), None);

    let mut all = Requirements::new();
    all.extend(&first);
    all.extend(&second);
    assert_eq!(all.to_string(), "c In [a b], d In [a b], m In [b], x In [a b]");
    all.replace(key("m"));
    all.replace(Requirement::exists("a"));
    assert_eq!(all.to_string(), "a Exists, c In [a b], d In [a b], m In [a b], x In [a b]");
}

#[test]
fn conflict_contains_both_sides() {
    let few: Requirements = [Requirement::in_values("k", ["a"])].into_iter().collect();
    let many: Requirements =
        [Requirement::in_values("k", ["b"]), Requirement::exists("l")].into_iter().collect();
    for (offered, wanted) in [(&few, &many), (&many, &few)] {
        let expected = Incompatible::Conflict {
            offered: offered.get("k").expect("there").clone(),
            wanted: wanted.get("k").expect("there").clone(),
        };
        assert_eq!(offered.first_conflict(wanted), Some(expected));
    }
}
