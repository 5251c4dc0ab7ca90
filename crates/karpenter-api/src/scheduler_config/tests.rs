use super::*;

const ZONE: &str = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}";

fn document(constraints: &str) -> String {
    format!("podTopologySpread:\n  defaultConstraints: [{constraints}]\n")
}

fn keys(text: &str) -> Vec<String> {
    let config = SchedulerConfig::parse(text).expect("a valid document");
    config.default_constraints.into_iter().map(|one| one.topology_key).collect()
}

#[test]
fn document_without_constraints_is_empty() {
    for text in [
        "",
        " \n",
        "{}",
        "podTopologySpread: {}",
        "podTopologySpread:",
        "podTopologySpread: {defaultConstraints: []}",
    ] {
        assert_eq!(keys(text), [""; 0], "{text:?}");
    }
}

#[test]
fn yaml_and_json_are_parsed() {
    let zone = "topology.kubernetes.io/zone";
    let any = "{maxSkew: 3, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, minDomains: 2, \
               nodeTaintsPolicy: Honor, nodeAffinityPolicy: Ignore}";
    assert_eq!(keys(&document(&format!("{ZONE}, {any}"))), [zone, "kubernetes.io/hostname"]);
    let json = format!(
        r#"{{"podTopologySpread":{{"defaultConstraints":[{{"maxSkew":1,"topologyKey":"{zone}","whenUnsatisfiable":"ScheduleAnyway"}}]}}}}"#
    );
    assert_eq!(keys(&json), [zone]);
    let config = SchedulerConfig::parse(&document(any)).expect("a valid document");
    let one = &config.default_constraints[0];
    assert_eq!((one.max_skew, one.min_domains), (3, Some(2)));
    assert_eq!(
        (one.node_taints_policy.as_deref(), one.node_affinity_policy.as_deref()),
        (Some("Honor"), Some("Ignore"))
    );
    // The same topology key may occur twice, with different values of whenUnsatisfiable.
    assert_eq!(
        keys(&document(&format!("{ZONE}, {}", ZONE.replace("DoNotSchedule", "ScheduleAnyway")))),
        [zone, zone]
    );
}

#[test]
fn errors_contain_path_and_reason() {
    let cases = [
        (document(&ZONE.replace("maxSkew: 1", "maxSkew: 0")), "[0].maxSkew must be greater than 0"),
        (
            document("{topologyKey: a, whenUnsatisfiable: DoNotSchedule}"),
            "[0].maxSkew must be greater than 0",
        ),
        (document("{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}"), "[0].topologyKey must be set"),
        (
            document("{maxSkew: 1, topologyKey: a b, whenUnsatisfiable: DoNotSchedule}"),
            "is not a valid label name",
        ),
        (document("{maxSkew: 1, topologyKey: a}"), "[0].whenUnsatisfiable \"\" must be one of"),
        (
            document(&format!("{ZONE}, {}", ZONE.replace('}', ", labelSelector: {}}"))),
            "[1].labelSelector must not be set",
        ),
        (document(&ZONE.replace('}', ", matchLabelKeys: [a]}")), "[0].matchLabelKeys must not be set"),
        (document(&format!("{ZONE}, {ZONE}")), "[1] is a duplicate of [0]"),
        (document(&ZONE.replace("maxSkew", "maxskew")), "maxskew"),
        ("podTopologySpreads: {}".to_owned(), "podTopologySpreads"),
        ("podTopologySpread: {defaultingType: List}".to_owned(), "defaultingType"),
        ("podTopologySpread: {defaultConstraints: [], defaultConstraints: []}".to_owned(), "cannot be read"),
        ("podTopologySpread: [".to_owned(), "cannot be read"),
        ("just text".to_owned(), "cannot be read"),
    ];
    for (text, expected) in cases {
        let error = SchedulerConfig::parse(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
