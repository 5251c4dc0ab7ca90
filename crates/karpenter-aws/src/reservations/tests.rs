use super::*;
use crate::api::TagFilter;

fn time(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().expect("a time")
}

fn term() -> CapacityReservationSelectorTerm {
    CapacityReservationSelectorTerm::default()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn selector_terms_become_queries() {
    let by_id = |id: &str| CapacityReservationSelectorTerm { id: text(id), ..term() };
    let tags = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let id_query = |id: &str| ReservationQuery { ids: vec![id.to_owned()], ..ReservationQuery::default() };
    let table: Vec<(Vec<CapacityReservationSelectorTerm>, Vec<ReservationQuery>)> = vec![
        (vec![], vec![]),
        (vec![by_id("cr-1")], vec![id_query("cr-1")]),
        // There is one query per distinct id.
        (vec![by_id("cr-2"), by_id("cr-1"), by_id("cr-2")], vec![id_query("cr-1"), id_query("cr-2")]),
        (vec![by_id("")], vec![]),
        (
            vec![CapacityReservationSelectorTerm {
                tags: tags(&[("team", "a"), ("any", "*")]),
                owner_id: text("111122223333"),
                ..term()
            }],
            vec![ReservationQuery {
                owner_id: text("111122223333"),
                tags: vec![TagFilter::exists("any"), TagFilter::is("team", "a")],
                ..ReservationQuery::default()
            }],
        ),
        (
            vec![CapacityReservationSelectorTerm { instance_match_criteria: text("open"), ..term() }],
            vec![ReservationQuery { instance_match_criteria: text("open"), ..ReservationQuery::default() }],
        ),
        (vec![CapacityReservationSelectorTerm { owner_id: text("111122223333"), ..term() }], vec![]),
        (vec![CapacityReservationSelectorTerm { tags: tags(&[]), ..term() }], vec![]),
        // The term is invalid, because it has both an id and tags; a query is made for each.
        (
            vec![CapacityReservationSelectorTerm {
                id: text("cr-1"),
                instance_match_criteria: text("open"),
                ..term()
            }],
            vec![
                ReservationQuery { instance_match_criteria: text("open"), ..ReservationQuery::default() },
                id_query("cr-1"),
            ],
        ),
    ];
    for (terms, expected) in table {
        assert_eq!(queries(&terms), expected, "{terms:?}");
    }
}

fn reservation(id: &str) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "111122223333".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        instance_match_criteria: "open".to_owned(),
        reservation_type: "default".to_owned(),
        state: "active".to_owned(),
        total_count: 5,
        available_count: 3,
        ..CapacityReservation::default()
    }
}

#[test]
fn status_has_fields_of_reservation() {
    let now = time("12:00:00");
    let mut given = reservation("cr-1");
    given.is_interruptible = true;
    given.ends_at = Some(time("13:00:00"));
    let expected = CapacityReservationStatus {
        availability_zone: "us-east-1a".to_owned(),
        end_time: Some(Time(time("13:00:00"))),
        id: "cr-1".to_owned(),
        instance_match_criteria: "open".to_owned(),
        instance_type: "m5.large".to_owned(),
        owner_id: "111122223333".to_owned(),
        reservation_type: text("default"),
        interruptible: Some(true),
        state: text("active"),
    };
    assert_eq!(shown(&given, now), Ok(expected));
}

#[test]
fn capacity_block_is_expiring_forty_minutes_before_its_end() {
    let now = time("12:00:00");
    let table = [
        ("capacity-block", Some("12:40:00"), "expiring"),
        ("capacity-block", Some("12:40:01"), "active"),
        ("capacity-block", Some("12:00:01"), "expiring"),
        ("capacity-block", None, "active"),
        ("default", Some("12:10:00"), "active"),
    ];
    for (kind, end, expected) in table {
        let mut given = reservation("cr-1");
        given.reservation_type = kind.to_owned();
        given.ends_at = end.map(time);
        let state = shown(&given, now).expect("usable").state;
        assert_eq!(state.as_deref(), Some(expected), "{kind} {end:?}");
    }
}

#[test]
fn reservation_with_unknown_criteria_or_type_is_unusable() {
    let now = time("12:00:00");
    let mut odd_criteria = reservation("cr-1");
    odd_criteria.instance_match_criteria = "nearest".to_owned();
    let mut odd_kind = reservation("cr-2");
    odd_kind.reservation_type = "lease".to_owned();
    let mut ended = reservation("cr-3");
    ended.ends_at = Some(now);
    let given =
        [reservation("cr-9"), odd_kind, ended, reservation("cr-4"), odd_criteria, reservation("cr-4")];
    let (usable, unusable) = status(&given, now);
    let ids: Vec<&str> = usable.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["cr-4", "cr-9"], "by id, without duplicates and ended ones");
    let expected = [
        Unusable::MatchCriteria { id: "cr-1".to_owned(), criteria: "nearest".to_owned() },
        Unusable::Kind { id: "cr-2".to_owned(), kind: "lease".to_owned() },
    ];
    assert_eq!(unusable, expected);
}

#[test]
fn status_is_parsed_with_defaults() {
    let shown = |kind: Option<&str>, state: Option<&str>| CapacityReservationStatus {
        id: "cr-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        availability_zone: "a".to_owned(),
        reservation_type: kind.map(str::to_owned),
        state: state.map(str::to_owned),
        ..CapacityReservationStatus::default()
    };
    let read = |kind, state| facts(&[shown(kind, state)]).first().map(|held| (held.kind, held.expiring));
    assert_eq!(read(None, None), Some((ReservationKind::Default, false)));
    assert_eq!(read(Some("default"), Some("active")), Some((ReservationKind::Default, false)));
    assert_eq!(read(Some("capacity-block"), Some("expiring")), Some((ReservationKind::CapacityBlock, true)));
    assert_eq!(read(Some("lease"), None), None);
    assert!(!facts(&[shown(None, None)])[0].interruptible);
}

#[tokio::test(start_paused = true)]
async fn counts_follow_launches_and_terminations() {
    let counts = Counts::new(Clock::starting_at(time("12:00:00")));
    let at = time("12:00:00");
    counts.sync([("cr-1".to_owned(), 2), ("cr-2".to_owned(), 0)], at);
    assert_eq!((counts.left("cr-1"), counts.left("cr-2"), counts.left("cr-3")), (2, 0, 0));

    counts.launched("cr-1", time("12:00:01"));
    assert_eq!(counts.left("cr-1"), 1);
    counts.launched("cr-1", time("11:59:59"));
    assert_eq!(counts.left("cr-1"), 1, "the count of EC2 is newer than the launch and includes it");
    counts.launched("cr-1", at);
    counts.launched("cr-1", at);
    assert_eq!(counts.left("cr-1"), 0, "never negative");

    counts.terminated("cr-1");
    assert_eq!(counts.left("cr-1"), 1);
    counts.exhausted("cr-1");
    assert_eq!(counts.left("cr-1"), 0);
    counts.sync([("cr-1".to_owned(), 4)], time("12:01:00"));
    assert_eq!(counts.left("cr-1"), 4, "the count of EC2 wins");

    counts.terminated("cr-unknown");
    counts.launched("cr-unknown", at);
    assert_eq!(counts.left("cr-unknown"), 0);
}

#[tokio::test(start_paused = true)]
async fn version_changes_with_counts() {
    let counts = Counts::new(Clock::starting_at(time("12:00:00")));
    counts.sync([("cr-1".to_owned(), 2)], time("12:00:00"));
    let version = counts.current().version;
    counts.sync([("cr-1".to_owned(), 2)], time("12:01:00"));
    counts.terminated("cr-other");
    assert_eq!(counts.current().version, version);
    counts.clone().terminated("cr-1");
    assert!(counts.current().version > version);
    assert_eq!(counts.current().of("cr-1"), 3);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_count_is_dropped_after_a_day() {
    let counts = Counts::new(Clock::starting_at(time("12:00:00")));
    counts.sync([("cr-1".to_owned(), 2)], time("12:00:00"));
    let next_day: Timestamp = "2026-01-02T12:00:00Z".parse().expect("a time");
    counts.sync([("cr-2".to_owned(), 1)], next_day);
    assert_eq!((counts.left("cr-1"), counts.left("cr-2")), (0, 1));
}
