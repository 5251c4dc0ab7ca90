//! Compares the generic types with upstream's list, and tests the file format case by case.

use karpenter_model::labels;
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};

use super::*;
use crate::CatalogError;

fn find<'a>(types: &'a [InstanceType], name: &str) -> &'a InstanceType {
    types.iter().find(|resolved| &*resolved.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

fn label(resolved: &InstanceType, key: &str) -> String {
    resolved.requirements.get(key).and_then(Requirement::single_value).expect(key).to_string()
}

fn price(resolved: &InstanceType, capacity_type: &str) -> f64 {
    let offering = resolved
        .offerings
        .iter()
        .find(|offering| offering.capacity_type().is_some_and(|given| &**given == capacity_type));
    offering.expect(capacity_type).price_per_hour
}

#[test]
fn generic_set_is_complete() {
    let types = generic();
    assert_eq!(types.len(), 144);
    let names: BTreeSet<&str> = types.iter().map(|resolved| &*resolved.name).collect();
    assert_eq!(names.len(), 144);
    assert_eq!((&*types[0].name, &*types[143].name), ("c-1x-amd64-linux", "m-256x-arm64-windows"));
    for resolved in &types {
        assert_eq!(resolved.offerings.len(), 8, "{}", resolved.name);
        assert!(
            resolved.offerings.iter().all(|offering| offering.available && offering.price_per_hour > 0.0)
        );
    }
}

#[test]
fn generic_type_matches_hand_computed_values() {
    let types = generic();
    let m48 = find(&types, "m-48x-arm64-windows");
    assert_eq!(m48.capacity.get(CPU), 48_000);
    assert_eq!(m48.capacity.get(MEMORY), 384 << 30);
    assert_eq!(m48.capacity.get(PODS), 768);
    assert_eq!(m48.capacity.get(EPHEMERAL_STORAGE), 20 << 30);
    assert_eq!((m48.overhead.get(CPU), m48.overhead.get(MEMORY)), (100, 10 << 20));
    for (key, value) in [
        (labels::ARCH, "arm64"),
        (labels::OS, "windows"),
        (INSTANCE_SIZE, "48"),
        (INSTANCE_FAMILY, "m"),
        (INSTANCE_CPU, "48"),
        (INSTANCE_MEMORY, "384Gi"),
    ] {
        assert_eq!(label(m48, key), value);
    }
    let zones = &m48.requirements.get(labels::ZONE).expect("defined").values;
    assert_eq!(zones.iter().map(|zone| &**zone).collect::<Vec<_>>(), generic_zones());
    assert_eq!(find(&types, "c-256x-amd64-linux").capacity.get(PODS), 1024);
}

fn generic_zones() -> Vec<&'static str> {
    vec!["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"]
}

/// Prices with all digits of upstream's list.
#[test]
fn generic_prices_equal_upstream() {
    let types = generic();
    for (name, on_demand, spot) in [
        ("c-1x-amd64-linux", 0.027147483648, 0.019003238553599998),
        ("s-2x-arm64-linux", 0.058589934592, 0.041012954214399995),
        ("m-4x-amd64-windows", 0.134359738368, 0.09405181685759999),
        ("s-16x-amd64-linux", 0.468719476736, 0.32810363371519996),
        ("c-48x-arm64-linux", 1.3030792151040003, 0.9121554505728001),
        ("m-48x-arm64-windows", 1.612316860416, 1.1286218022912),
        ("s-96x-amd64-linux", 2.8123168604160003, 1.9686218022912),
        ("c-192x-amd64-windows", 5.212316860416001, 3.6486218022912005),
        ("m-256x-arm64-windows", 8.599023255552, 6.019316278886399),
        ("c-48x-arm64-windows", 1.303079215104, 0.9121554505728),
        ("c-192x-arm64-linux", 5.212316860416, 3.6486218022912),
    ] {
        let resolved = find(&types, name);
        assert_eq!((price(resolved, "on-demand"), price(resolved, "spot")), (on_demand, spot), "{name}");
    }
}

const ONE: &str = r#"[{
    "name": "m5.large", "architecture": "amd64", "operatingSystems": ["linux"], "someday": {"new": 1},
    "resources": {"cpu": "4020m", "memory": "8192Mi", "nvidia.com/gpu": 1},
    "offerings": [
        {"Price": 0.1, "Available": false, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]},
        {"Price": 0.01, "ReservationCapacity": 3, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
            {"key": "example.com/reservation", "operator": "In", "values": ["r-1"]}]}
    ]}]"#;

#[test]
fn label_of_reservation_id_is_stated_or_known() {
    let label = |more: &str, stated: &str| {
        let entry = format!(
            r#"[{{"name": "a", "offerings": [{{"Price": 1, "ReservationCapacity": 1, {stated} "Requirements": [
                {{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]}},
                {{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}} {more}]}}]}}]"#
        );
        let types = parse(&entry).expect("valid");
        types[0].offerings[0].reservation().map(|(label, id)| format!("{label}={id}"))
    };
    let more = |key: &str| format!(r#", {{"key": "{key}", "operator": "In", "values": ["x"]}}"#);
    let aws = labels::AWS_CAPACITY_RESERVATION_ID;
    assert_eq!(label("", ""), None);
    assert_eq!(label(&more("own"), "").as_deref(), Some("own=x"));
    assert_eq!(label(&(more("own") + &more("other")), ""), None, "either could be it");
    assert_eq!(label(&(more("own") + &more(aws)), "").as_deref(), Some(&*format!("{aws}=x")));
    let stated = r#""ReservationIDLabel": "other","#;
    assert_eq!(label(&(more("own") + &more("other")), stated).as_deref(), Some("other=x"));
}

#[test]
fn file_entry_is_parsed() {
    let types = parse(ONE).expect("valid");
    let m5 = &types[0];
    assert_eq!(m5.capacity.get(CPU), 4020);
    assert_eq!(m5.capacity.get(MEMORY), 8 << 30);
    assert_eq!(m5.capacity.get(PODS), 110, "the default");
    assert_eq!(m5.capacity.get("nvidia.com/gpu"), 1);
    assert_eq!(label(m5, INSTANCE_CPU), "4020m");
    assert_eq!(label(m5, INSTANCE_MEMORY), "8Gi");
    assert_eq!(label(m5, INSTANCE_SIZE), "large");
    assert_eq!(label(m5, INSTANCE_FAMILY), "m5");
    let values = |key| {
        m5.requirements
            .get(key)
            .expect("defined")
            .values
            .iter()
            .map(|value| value.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(labels::ZONE), ["a", "b"]);
    assert_eq!(values(labels::CAPACITY_TYPE), ["on-demand", "reserved"]);
    assert!(m5.offerings.iter().all(|offering| offering.available), "kwok has all capacity");
    assert_eq!(
        m5.offerings.iter().map(|offering| offering.reservation_capacity).collect::<Vec<_>>(),
        [None, Some(3)]
    );
    let named = m5.offerings[1].reservation().map(|(label, id)| (&**label, &**id));
    assert_eq!(named, Some(("example.com/reservation", "r-1")), "the only label of its own");
    assert_eq!(m5.offerings[0].reservation_id_label, None);
    assert!(well_known_labels(&types).contains("example.com/reservation"));
    assert!(well_known_labels(&types).contains(INSTANCE_CPU));
}

#[test]
fn prices_are_parsed_to_the_last_digit() {
    let types = parse(r#"[{"name": "x", "offerings": [{"Price": 0.019003238553599998}]}]"#).expect("valid");
    assert_eq!(types[0].offerings[0].price_per_hour.to_bits(), 0.019003238553599998_f64.to_bits());
}

#[test]
fn missing_fields_have_kwok_defaults() {
    let types = parse(r#"[{"name": "x", "offerings": null, "resources": {"pods": null}}]"#).expect("valid");
    assert_eq!(types[0].capacity.lookup(PODS), Some(0), "null is zero, not the default");
    assert_eq!(label(&types[0], INSTANCE_CPU), "");
    assert_eq!(label(&types[0], INSTANCE_SIZE), "");
    assert_eq!(parse("[]"), Ok(vec![]));
}

#[test]
fn size_and_family_come_from_the_name() {
    for (name, expected_size, expected_family) in [
        ("m5.large", Some("large"), "m5"),
        ("m5.xlarge", Some("xlarge"), "m5"),
        ("c5.24xlarge", Some("24xlarge"), "c5"),
        ("c5.metal", Some("metal"), "c5"),
        ("m7i-flex.large", None, "m7i"),
        ("c8g.metal-24xl", None, "c8g"),
        ("a.b.large", None, "a"),
        ("m5.Large", None, "m5"),
        (".large", None, ""),
        ("n2-standard-4", None, "n2"),
        ("Standard_D4", None, "S"),
        ("ü", None, "ü"),
    ] {
        assert_eq!((size(name), family(name)), (expected_size, expected_family), "{name}");
    }
}

#[test]
fn errors_name_the_entry_and_the_field() {
    let check = |json: &str, expected: &str| {
        assert_eq!(parse(json).expect_err(json).to_string(), expected);
    };
    let quantity =
        parse(r#"[{"name":"a"},{"name":"b","resources":{"cpu":"4 cores"}}]"#).expect_err("no quantity");
    let expected = r#"instance type 1 ("b"): resources.cpu: quantity "4 cores" "#;
    assert!(quantity.to_string().starts_with(expected), "{quantity}");
    check(
        r#"[{"name":"a","resources":{"memory":"-1Gi"}}]"#,
        r#"instance type 0 ("a"): resources.memory: -1Gi is negative"#,
    );
    check(
        r#"[{"name":"a","offerings":[{"Price":"cheap"}]}]"#,
        r#"instance type 0 ("a"): offerings[0].Price: invalid type: string "cheap", expected f64 at line 1 column 42"#,
    );
    check(
        r#"[{"name":"a","offerings":[{},{"Price":-1}]}]"#,
        r#"instance type 0 ("a"): offerings[1].Price: -1 is negative"#,
    );
    check(
        r#"[{"name":"a","offerings":[{"Requirements":[{"key":"k","operator":"in"}]}]}]"#,
        r#"instance type 0 ("a"): offerings[0].Requirements[0].operator: "in" is none of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte"#,
    );
    check(
        r#"[{"name":"a","offerings":[{"Requirements":[{"key":"k","operator":"Gt","values":["x"]}]}]}]"#,
        r#"instance type 0 ("a"): offerings[0].Requirements[0].values: Gt needs one integer"#,
    );
    check(r#"[{"architecture":"amd64"}]"#, r#"instance type 0 (""): name: is missing or empty"#);
    check(
        r#"[{"name":"a"},{"name":"b"},{"name":"a"}]"#,
        r#"instance type 2 ("a"): the name is already used by instance type 0"#,
    );
    check(r#"{"items":[]}"#, "instance types: invalid type: map, expected a sequence at line 1 column 0");
    check("[] []", "instance types: trailing characters at line 1 column 4");
    assert!(matches!(parse("[{"), Err(CatalogError::Entry { index: 0, .. } | CatalogError::Format { .. })));
}
