use std::sync::Arc;

use karpenter_catalog::aws;
use karpenter_model::instance_type::Overrides;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;

use super::*;

/// Parses an offering, such as `on-demand a 0.10`, or `reserved a 0.01 cr-1*3` with a reservation of three instances.
/// `!` marks a capacity block, `~` an interruptible reservation, and a leading `x` an unavailable offering.
fn offering(text: &str) -> Offering {
    let (available, text) = match text.strip_prefix('x') {
        Some(rest) => (false, rest),
        None => (true, text),
    };
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [capacity_type, zone, price, reservation @ ..] = &parts[..] else { panic!("{text}") };
    let mut requirements: Requirements = [
        Requirement::in_values(labels::CAPACITY_TYPE, [*capacity_type]),
        Requirement::in_values(labels::ZONE, [*zone]),
    ]
    .into_iter()
    .collect();
    let mut capacity = None;
    if let [reservation] = reservation {
        let kind = if reservation.contains('!') { "capacity-block" } else { "default" };
        let is_interruptible = reservation.contains('~').to_string();
        let plain = reservation.replace(['!', '~'], "");
        let (id, left) = plain.split_once('*').expect("a count");
        capacity = Some(left.parse().expect("a number"));
        let reserved = [
            (labels::AWS_CAPACITY_RESERVATION_ID, id.to_owned()),
            (labels::AWS_CAPACITY_RESERVATION_TYPE, kind.to_owned()),
            (labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE, is_interruptible),
        ];
        for (key, value) in reserved {
            requirements.add(Requirement::in_values(key, [value]));
        }
    }
    let price_per_hour = price.parse().expect("a price");
    Offering {
        requirements,
        price_per_hour,
        available,
        reservation_capacity: capacity,
        ..Offering::default()
    }
}

fn instance_type(name: &str, offerings: &[&str]) -> InstanceType {
    let (family, size) = name.split_once('.').expect("a size");
    let mut capacity: ResourceList = [("cpu", 4000), ("memory", 8 << 30), ("pods", 58)]
        .map(|(name, amount)| (Arc::from(name), amount))
        .into_iter()
        .collect();
    match family {
        "gpu" => capacity.set(NVIDIA_GPU, 1),
        "amd" => capacity.set(AMD_GPU, 1),
        "inf" => capacity.set(AWS_NEURON, 1),
        "gaudi" => capacity.set(HABANA_GAUDI, 1),
        _ => {}
    }
    let requirements = [
        Requirement::in_values(labels::INSTANCE_TYPE, [name]),
        Requirement::in_values(aws::labels::INSTANCE_SIZE, [size]),
        Requirement::in_values(aws::labels::INSTANCE_FAMILY, [family]),
        Requirement::in_values(labels::CAPACITY_TYPE, ["on-demand", "spot", "reserved"]),
        Requirement::in_values(labels::ZONE, ["a", "b", "c"]),
    ];
    InstanceType {
        name: name.into(),
        requirements: requirements.into_iter().collect(),
        offerings: offerings.iter().map(|text| offering(text)).collect(),
        capacity,
        overhead: ResourceList::new(),
        volume_attachment_limits: BTreeMap::new(),
    }
}

fn capacity_types(values: &[&str]) -> Requirement {
    Requirement::in_values(labels::CAPACITY_TYPE, values.iter().copied())
}

fn constraints(requirements: impl IntoIterator<Item = Requirement>) -> LaunchConstraints {
    LaunchConstraints { requirements: requirements.into_iter().collect(), requests: ResourceList::new() }
}

/// The candidates as text: the name of each, with zone and price of its offerings.
fn left(types: &[InstanceType], constraints: &LaunchConstraints) -> String {
    let shown = |candidates: Vec<Candidate<'_>>| {
        let texts = candidates.iter().map(|candidate| {
            let offers = candidate
                .offerings
                .iter()
                .map(|offer| format!("{}:{}", offer.zone().expect("a zone"), offer.price_per_hour));
            format!("{}({})", candidate.instance_type.name, offers.collect::<Vec<_>>().join(" "))
        });
        texts.collect::<Vec<_>>().join(" ")
    };
    filter(types, constraints, true).map_or_else(|error| error.to_string(), shown)
}

/// An offering may have more or less capacity than its instance type.
#[test]
fn too_small_offerings_are_filtered() {
    let list =
        |name: &str, amount: i64| -> ResourceList { [(Arc::from(name), amount)].into_iter().collect() };
    let mut sizes = instance_type("a.l", &["on-demand a 2", "on-demand b 1", "on-demand c 3"]);
    let overrides =
        |capacity: ResourceList| Some(Arc::new(Overrides { capacity, overhead: ResourceList::new() }));
    sizes.offerings[1].overrides = overrides(list("cpu", 2000));
    sizes.offerings[2].overrides = overrides(list("example.com/slots", 1));
    let types = [sizes];
    for (requests, expected) in [
        (list("cpu", 2000), "a.l(a:2 b:1 c:3)"),
        (list("cpu", 2001), "a.l(a:2 c:3)"),
        (list("example.com/slots", 1), "a.l(c:3)"),
        (list("example.com/slots", 2), UNAVAILABLE),
    ] {
        assert_eq!(left(&types, &LaunchConstraints { requests, ..constraints([]) }), expected);
    }
}

const UNAVAILABLE: &str = "all requested instance types were unavailable during launch";

#[test]
fn filters() {
    let any = || constraints([]);
    let all_kinds = || constraints([capacity_types(&["on-demand", "spot", "reserved"])]);
    let mixed = || constraints([capacity_types(&["on-demand", "spot"])]);
    let only_reserved = || constraints([capacity_types(&["reserved"])]);
    let zone = |zone: &str| constraints([Requirement::in_values(labels::ZONE, [zone])]);
    let with_min_values =
        |least| constraints([Requirement::exists(aws::labels::INSTANCE_FAMILY).with_min_values(Some(least))]);
    let t = instance_type;
    let table: Vec<(&str, Vec<InstanceType>, LaunchConstraints, &str)> = vec![
        ("nothing", vec![], any(), UNAVAILABLE),
        (
            "cheapest first, then by name",
            vec![t("b.l", &["on-demand a 2"]), t("c.l", &["on-demand a 1"]), t("a.l", &["on-demand a 2"])],
            any(),
            "c.l(a:1) a.l(a:2) b.l(a:2)",
        ),
        (
            "unavailable offerings are dropped",
            vec![t("a.l", &["xon-demand a 1"]), t("b.l", &["on-demand a 2", "xspot a 1"])],
            any(),
            "b.l(a:2)",
        ),
        ("all of it", vec![t("a.l", &["xon-demand a 1"])], any(), UNAVAILABLE),
        ("required zone", vec![t("a.l", &["on-demand a 1", "on-demand b 1"])], zone("b"), "a.l(b:1)"),
        ("zone without offerings", vec![t("a.l", &["on-demand a 1"])], zone("c"), UNAVAILABLE),
        ("a zone that the type does not have", vec![t("a.l", &["on-demand a 1"])], zone("z"), UNAVAILABLE),
        (
            "required capacity type",
            vec![t("a.l", &["on-demand a 1", "spot a 0.5"])],
            constraints([capacity_types(&["spot"])]),
            "a.l(a:0.5)",
        ),
        (
            "an exhausted reservation is dropped",
            vec![t("a.l", &["reserved a 0.1 cr-1*0", "on-demand a 1"])],
            all_kinds(),
            "a.l(a:1)",
        ),
        (
            "reserved capacity drops everything else",
            vec![t("a.l", &["reserved a 0.1 cr-1*1", "on-demand a 1"]), t("b.l", &["on-demand a 0.01"])],
            all_kinds(),
            "a.l(a:0.1)",
        ),
        (
            "unless reserved is not allowed",
            vec![t("a.l", &["reserved a 0.1 cr-1*1", "on-demand a 1"])],
            mixed(),
            "a.l(a:1)",
        ),
        (
            "the cheapest kind of reservation wins",
            vec![t("a.l", &["reserved a 0.2 cr-1*1"]), t("b.l", &["reserved a 0.1 cr-2*1!"])],
            only_reserved(),
            "b.l(a:0.1)",
        ),
        (
            "at equal prices a default reservation wins",
            vec![t("a.l", &["reserved a 0.1 cr-1*1!", "reserved b 0.1 cr-2*1", "reserved c 0.1 cr-3*1~"])],
            only_reserved(),
            "a.l(b:0.1)",
        ),
        (
            "then a block",
            vec![t("a.l", &["reserved a 0.1 cr-1*1!", "reserved c 0.1 cr-3*1~"])],
            only_reserved(),
            "a.l(a:0.1)",
        ),
        (
            "an interruptible one when it is cheaper",
            vec![t("a.l", &["reserved a 0.2 cr-1*1", "reserved c 0.1 cr-3*1~"])],
            only_reserved(),
            "a.l(c:0.1)",
        ),
        (
            "of blocks only the cheapest",
            vec![
                t("a.l", &["reserved a 0.3 cr-1*1!", "reserved b 0.2 cr-2*1!"]),
                t("b.l", &["reserved a 0.25 cr-3*1!"]),
            ],
            only_reserved(),
            "a.l(b:0.2)",
        ),
        (
            "one reservation per zone, the one with most room",
            vec![t("a.l", &["reserved a 0.1 cr-1*1", "reserved a 0.1 cr-2*5", "reserved b 0.1 cr-3*1"])],
            only_reserved(),
            "a.l(a:0.1 b:0.1)",
        ),
        (
            "exotic types are dropped unless requested",
            vec![
                t("gpu.l", &["on-demand a 0.1"]),
                t("amd.l", &["on-demand a 0.1"]),
                t("inf.l", &["on-demand a 0.1"]),
                t("gaudi.l", &["on-demand a 0.1"]),
                t("m.metal", &["on-demand a 0.1"]),
                t("m.metal-24xl", &["on-demand a 0.1"]),
                t("m.l", &["on-demand a 5"]),
            ],
            any(),
            "m.l(a:5)",
        ),
        (
            "unless nothing else is left",
            vec![t("gpu.l", &["on-demand a 2"]), t("m.metal", &["on-demand a 1"])],
            any(),
            "m.metal(a:1) gpu.l(a:2)",
        ),
        (
            "or minValues needs them",
            vec![t("gpu.l", &["on-demand a 2"]), t("m.l", &["on-demand a 1"])],
            with_min_values(2),
            "m.l(a:1) gpu.l(a:2)",
        ),
        (
            "spot above the on-demand price is dropped",
            vec![t("a.l", &["on-demand a 1", "spot a 0.9", "spot b 1.1"]), t("b.l", &["spot a 1.2"])],
            mixed(),
            "a.l(a:1 a:0.9)",
        ),
        (
            "spot at the on-demand price is kept",
            vec![t("a.l", &["on-demand a 1", "spot b 1"])],
            mixed(),
            "a.l(a:1 b:1)",
        ),
        (
            "expensive spot is kept if nothing else is left",
            vec![t("a.l", &["xon-demand a 1", "spot b 2"])],
            mixed(),
            "a.l(b:2)",
        ),
        (
            "and stays when only spot is asked for",
            vec![t("a.l", &["on-demand a 1", "spot b 2"])],
            constraints([capacity_types(&["spot"])]),
            "a.l(b:2)",
        ),
        (
            "or minValues needs it, at any price",
            vec![t("a.l", &["on-demand a 1"]), t("b.l", &["spot b 2"])],
            with_min_values(2),
            "a.l(a:1) b.l(b:2)",
        ),
        (
            "too few values",
            vec![t("a.l", &["on-demand a 1"]), t("a.xl", &["on-demand a 2"])],
            with_min_values(2),
            "truncating instance types based on the passed-in requirements, validating minValues, minValues requirement is \
             not met for label(s) (label(s)=[\"karpenter.k8s.aws/instance-family\"])",
        ),
    ];
    for (case, types, constraints, expected) in table {
        assert_eq!(left(&types, &constraints), expected, "{case}");
    }
}

#[test]
fn instance_type_must_fit_requests() {
    let types = [instance_type("a.l", &["on-demand a 1"])];
    let requests = |pairs: &[(&str, i64)]| LaunchConstraints {
        requirements: Requirements::new(),
        requests: pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect(),
    };
    let table = [
        (&[("cpu", 4000)][..], true),
        (&[("cpu", 4001)][..], false),
        (&[("memory", 9 << 30)][..], false),
        (&[("example.com/device", 1)][..], false),
    ];
    for (pairs, fits) in table {
        assert_eq!(filter(&types, &requests(pairs), true).is_ok(), fits, "{pairs:?}");
    }
}

#[test]
fn at_most_sixty_instance_types_are_requested() {
    let types: Vec<InstanceType> = (0..100)
        .map(|number| instance_type(&format!("f{number:03}.l"), &[&format!("on-demand a {}", 100 - number)]))
        .collect();
    let candidates = filter(&types, &constraints([]), true).expect("types");
    assert_eq!(candidates.len(), INSTANCE_TYPES_MAX);
    assert_eq!(&*candidates[0].instance_type.name, "f099.l", "the cheapest are kept");
    let counted = constraints([Requirement::exists(aws::labels::INSTANCE_FAMILY).with_min_values(Some(61))]);
    assert!(filter(&types, &counted, true).is_err(), "values are counted after truncation");
    assert!(filter(&types, &counted, false).is_ok(), "best effort launches all the same");
}

#[test]
fn min_values_ignore_excluded_values() {
    let types = [instance_type("a.l", &["on-demand a 1"]), instance_type("b.l", &["on-demand a 1"])];
    let requirement =
        Requirement::in_values(aws::labels::INSTANCE_FAMILY, ["a", "b"]).with_min_values(Some(2));
    assert!(filter(&types, &constraints([requirement]), true).is_ok());
    let zones = Requirement::in_values(labels::ZONE, ["a"]).with_min_values(Some(2));
    assert!(
        filter(&types, &constraints([zones]), true).is_err(),
        "the types' other zones are not the claim's"
    );
}

#[test]
fn capacity_type_prefers_reserved_then_spot() {
    let table = [
        (
            "all there",
            vec!["reserved a 0.1 cr-1*1", "spot a 0.5", "on-demand a 1"],
            vec!["reserved", "spot", "on-demand"],
            "reserved",
        ),
        (
            "reservation empty",
            vec!["reserved a 0.1 cr-1*0", "spot a 0.5", "on-demand a 1"],
            vec!["reserved", "spot", "on-demand"],
            "spot",
        ),
        (
            "reserved not asked for",
            vec!["reserved a 0.1 cr-1*1", "spot a 0.5", "on-demand a 1"],
            vec!["spot", "on-demand"],
            "spot",
        ),
        ("no spot", vec!["xspot a 0.5", "on-demand a 1"], vec!["spot", "on-demand"], "on-demand"),
        ("only on demand", vec!["spot a 0.5", "on-demand a 1"], vec!["on-demand"], "on-demand"),
        ("expensive spot", vec!["spot a 2", "on-demand a 1"], vec!["spot", "on-demand"], "on-demand"),
    ];
    for (case, offerings, asked, expected) in table {
        let types = [instance_type("a.l", &offerings)];
        let constraints = constraints([capacity_types(&asked)]);
        let candidates = filter(&types, &constraints, true).expect("types");
        assert_eq!(capacity_type(&candidates, &constraints), expected, "{case}");
    }
}

#[test]
fn tenancy_is_dedicated_only_if_default_is_excluded() {
    let tenancy = |values: &[&str]| {
        constraints([Requirement::in_values(labels::AWS_INSTANCE_TENANCY, values.iter().copied())]).tenancy()
    };
    assert_eq!(constraints([]).tenancy(), "default");
    assert_eq!(tenancy(&["default"]), "default");
    assert_eq!(tenancy(&["dedicated"]), "dedicated");
    assert_eq!(tenancy(&["dedicated", "default"]), "default");
    assert_eq!(tenancy(&["host"]), "default");
}
