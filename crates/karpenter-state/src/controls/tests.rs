use super::*;

fn pool(annotations: &[(&str, &str)]) -> NodePool {
    let mut pool = NodePool::default();
    pool.metadata.name = Some("general".to_owned());
    let annotations =
        annotations.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()));
    pool.metadata.annotations = Some(annotations.collect());
    pool
}

fn read(name: &str, value: &str) -> (PoolPolicy, usize) {
    let (controls, errors) = controls(&pool(&[(name, value)]));
    (controls, errors.len())
}

#[test]
fn each_annotation_sets_its_own_control_and_nothing_else() {
    let defaults = PoolPolicy::default();
    assert_eq!(controls(&pool(&[])), (defaults.clone(), vec![]));
    let cases = [
        ("saving-ratio", "0.2", PoolPolicy { saving_ratio: Some(0.2), ..defaults.clone() }),
        ("min-saving-percent", "12.5", PoolPolicy { min_saving_ratio: 0.125, ..defaults.clone() }),
        ("min-saving-per-hour", "0.05", PoolPolicy { min_saving_per_hour: 0.05, ..defaults.clone() }),
        ("cool-down", "1h30m", PoolPolicy { cool_down_secs: 5400, ..defaults.clone() }),
        ("cool-down", "1500ms", PoolPolicy { cool_down_secs: 2, ..defaults.clone() }),
        ("balanced-k", "4", PoolPolicy { balanced_k: 4.0, ..defaults.clone() }),
        ("max-moves-per-hour", "0", PoolPolicy { max_moves_per_hour: Some(0), ..defaults.clone() }),
        ("max-moves-per-hour", "250", PoolPolicy { max_moves_per_hour: Some(250), ..defaults.clone() }),
        ("many-to-many", "disabled", PoolPolicy { is_many_to_many_enabled: false, ..defaults.clone() }),
        ("many-to-many", "enabled", defaults.clone()),
        ("m-to-n", "disabled", PoolPolicy { is_many_to_many_enabled: false, ..defaults.clone() }),
        ("m-to-n", "enabled", defaults.clone()),
        ("dry-run", "true", PoolPolicy { is_dry_run: true, ..defaults.clone() }),
        ("dry-run", "false", defaults),
    ];
    for (name, value, expected) in cases {
        assert_eq!(read(name, value), (expected, 0), "{name}: {value}");
    }
}

#[test]
fn invalid_annotation_is_reported_and_uses_the_safe_value() {
    let defaults = PoolPolicy::default();
    let moves_nothing = PoolPolicy { max_moves_per_hour: Some(0), ..defaults.clone() };
    let cases = [
        ("saving-ratio", "-1", moves_nothing.clone()),
        ("min-saving-percent", "5%", moves_nothing.clone()),
        ("min-saving-percent", "101", moves_nothing.clone()),
        ("min-saving-percent", "NaN", moves_nothing.clone()),
        ("min-saving-percent", "", moves_nothing.clone()),
        ("min-saving-per-hour", "-1", moves_nothing.clone()),
        ("min-saving-per-hour", "inf", moves_nothing.clone()),
        ("cool-down", "10", moves_nothing.clone()),
        ("cool-down", "-10m", moves_nothing.clone()),
        ("balanced-k", "0", defaults.clone()),
        ("max-moves-per-hour", "-1", moves_nothing.clone()),
        ("max-moves-per-hour", "many", moves_nothing),
        ("many-to-many", "no", PoolPolicy { is_many_to_many_enabled: false, ..defaults.clone() }),
        ("m-to-n", "off", PoolPolicy { is_many_to_many_enabled: false, ..defaults.clone() }),
        ("dry-run", "yes", PoolPolicy { is_dry_run: true, ..defaults.clone() }),
        ("dry-rum", "true", defaults),
    ];
    for (name, value, expected) in cases {
        assert_eq!(read(name, value), (expected, 1), "{name}: {value}");
    }
    let (_, errors) = controls(&pool(&[("dry-run", "yes")]));
    assert_eq!(
        errors[0].to_string(),
        "nodepool general: annotation karpenter.sh/consolidation-dry-run: \"yes\" is invalid; \
         valid: \"true\" or \"false\"; it counts as true"
    );
}

#[test]
fn share_of_hostname_spreads_is_read_from_its_annotation() {
    let of = |value: Option<&str>| {
        let mut pool = pool(&[]);
        let annotation = value.map(|value| (ANNOTATION_HOSTNAME_SPREAD_SHARE.to_owned(), value.to_owned()));
        pool.metadata.annotations = Some(annotation.into_iter().collect());
        let converted =
            crate::convert::pool::convert_pool(&pool, 0, Default::default(), &mut Default::default());
        let share = converted.hostname_spread_share.map(SpreadShare::percent);
        (
            share,
            controls(&pool)
                .1
                .iter()
                .map(|error| (error.event_reason(), error.to_string()))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(of(None), (None, vec![]));
    assert_eq!(of(Some("0")), (Some(0), vec![]));
    assert_eq!(of(Some("100")), (Some(100), vec![]));
    let words = "nodepool general: annotation karpenter.sh/hostname-spread-share: \"half\" is invalid; valid: a whole \
                 number of percent from 0 to 100, such as 10; the value of --hostname-spread-share is used";
    assert_eq!(of(Some("half")), (None, vec![("InvalidHostnameSpreadShare", words.to_owned())]));
}

#[test]
fn contradicting_annotations_use_the_stricter_value() {
    for (long, short, is_enabled, message) in [
        ("enabled", "enabled", true, 0),
        ("disabled", "disabled", false, 0),
        ("enabled", "disabled", false, 1),
        ("disabled", "enabled", false, 1),
        ("enabled", "maybe", false, 1),
    ] {
        let (controls, errors) = controls(&pool(&[("many-to-many", long), ("m-to-n", short)]));
        assert_eq!(
            (controls.is_many_to_many_enabled, errors.len()),
            (is_enabled, message),
            "{long}, {short}"
        );
    }
    let (_, errors) = controls(&pool(&[("many-to-many", "enabled"), ("m-to-n", "disabled")]));
    assert_eq!(
        errors[0].to_string(),
        "nodepool general: annotation karpenter.sh/consolidation-m-to-n: \"disabled\" is invalid; valid: the same \
         as of karpenter.sh/consolidation-many-to-many, or one of the two alone; both count as disabled"
    );
}
