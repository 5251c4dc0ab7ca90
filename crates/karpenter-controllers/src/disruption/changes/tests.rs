use karpenter_disruption::fleet::{Controls, Occupant, Pool};

use super::*;

const NOW_SECS: i64 = 1_000_000;

fn at(secs_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW_SECS + secs_from_now).expect("a time")
}

/// One machine of a pool with such controls.
fn fleet(controls: Controls, machine: Machine) -> Fleet {
    let pool: Arc<str> = "general".into();
    let machine = Machine { pool: Some(pool.clone()), ..machine };
    let value = Pool { name: pool.clone(), controls, ..Pool::default() };
    Fleet { now_secs: NOW_SECS, machines: vec![machine], pools: [(pool, value)].into(), ..Fleet::default() }
}

/// How many seconds from now is looked again.
fn wait(fleet: &Fleet, moments: &Moments) -> i64 {
    next_look(fleet, &Proposal::default(), moments, at(0)).as_second() - NOW_SECS
}

#[test]
fn the_end_of_a_cool_down_is_worth_a_look() {
    let moved_onto =
        |secs_ago: i64| Machine { moved_onto_at_secs: Some(NOW_SECS - secs_ago), ..Machine::default() };
    let pod = Occupant { moved_at_secs: Some(NOW_SECS - 30), ..Occupant::default() };
    let left = Machine { is_leaving: true, ..moved_onto(40) };
    let cases = [
        (Machine::default(), 300),
        (moved_onto(40), 60),
        // What moved last counts.
        (Machine { occupants: vec![pod], ..moved_onto(40) }, 70),
        (moved_onto(100), 300),
        (left, 300),
    ];
    for (machine, expected) in cases {
        let controls = Controls { cool_down_secs: 100, ..Controls::default() };
        let fleet = fleet(controls, machine);
        assert_eq!(wait(&fleet, &Moments::default()), expected, "{:?}", fleet.machines);
    }
    let without = fleet(Controls::default(), moved_onto(40));
    assert_eq!(wait(&without, &Moments::default()), 300);
}

#[test]
fn the_end_of_an_hour_with_moves_is_worth_a_look_where_they_are_bounded() {
    let moments =
        |pool: &str| Moments { moves_fall_at: [(pool.to_owned(), at(120))].into(), ..Moments::default() };
    let bounded = || Controls { max_moves_per_hour: Some(5), ..Controls::default() };
    assert_eq!(wait(&fleet(bounded(), Machine::default()), &moments("general")), 120);
    assert_eq!(wait(&fleet(bounded(), Machine::default()), &moments("other")), 300);
    assert_eq!(wait(&fleet(Controls::default(), Machine::default()), &moments("general")), 300);
}
