use super::*;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn claim(name: &str) -> ClaimId {
    ClaimId { name: name.to_owned(), uid: format!("uid-{name}") }
}

fn claims(names: &[&str]) -> Vec<ClaimId> {
    names.iter().map(|name| claim(name)).collect()
}

fn step(stage: &Stage, targets: &[&str], seen: &[(&str, Seen)], queued: usize, second: i64) -> Step {
    let see = |one: &ClaimId| {
        let found = seen.iter().find(|(name, _)| *name == one.name);
        found.map_or(Seen::Gone, |(_, seen)| *seen)
    };
    next_step(stage, &claims(targets), see, queued, time(second))
}

#[test]
fn a_proposal_rests_and_is_looked_at_again() {
    let stage = Stage::Proposed { until: time(15), standby_until: None };
    assert_eq!(step(&stage, &["a"], &[("a", Seen::Ready)], 0, 14), Step::Rest { until: time(15) });
    assert_eq!(step(&stage, &["a"], &[("a", Seen::Ready)], 0, 15), Step::Revalidate);
    // Even if its nodes are gone: that is for the second look to see.
    assert_eq!(step(&stage, &["a"], &[], 0, 900), Step::Revalidate);
    assert_eq!(step(&Stage::Starting, &["a"], &[], 0, 9000), Step::Leave);
}

#[test]
fn replacements_come_first_and_then_the_old_ones_go() {
    use Seen::{Coming, Gone, Leaving, Ready};
    let lost = |name: &str| Failure::ReplacementLost(name.to_owned());
    let cases = [
        // What is seen of the nodes a, b and of the replacements x, y; what follows.
        ([Ready, Ready, Coming, Coming], Step::Wait { pending: claims(&["x", "y"]) }),
        ([Ready, Ready, Ready, Coming], Step::Wait { pending: claims(&["y"]) }),
        ([Ready, Ready, Ready, Ready], Step::Delete { left: claims(&["a", "b"]) }),
        ([Ready, Leaving, Ready, Ready], Step::Delete { left: claims(&["a"]) }),
        ([Ready, Gone, Ready, Ready], Step::Delete { left: claims(&["a"]) }),
        // A node that lost its initialisation is still there.
        ([Coming, Gone, Ready, Ready], Step::Delete { left: claims(&["a"]) }),
        ([Gone, Leaving, Coming, Coming], Step::Finish),
        ([Gone, Gone, Gone, Gone], Step::Finish),
        ([Ready, Ready, Gone, Ready], Step::RollBack { left: claims(&["a", "b"]), failure: lost("x") }),
        ([Ready, Gone, Coming, Leaving], Step::RollBack { left: claims(&["a"]), failure: lost("y") }),
    ];
    for ([a, b, x, y], expected) in cases {
        let stage = Stage::Waiting { since: time(0), replacements: claims(&["x", "y"]) };
        let seen = [("a", a), ("b", b), ("x", x), ("y", y)];
        assert_eq!(step(&stage, &["a", "b"], &seen, 2, 600), expected, "{seen:?}");
    }
}

#[test]
fn deletions_are_tried_again_until_nothing_is_left_or_it_takes_too_long() {
    let stage = Stage::Deleting { since: time(0) };
    let one_left = [("a", Seen::Ready), ("b", Seen::Leaving)];
    assert_eq!(step(&stage, &["a", "b"], &one_left, 2, 600), Step::Delete { left: claims(&["a"]) });
    let failure = Failure::TimedOut(Duration::from_secs(601));
    assert_eq!(
        step(&stage, &["a", "b"], &one_left, 2, 601),
        Step::RollBack { left: claims(&["a"]), failure }
    );
    assert_eq!(step(&stage, &["a", "b"], &[("b", Seen::Leaving)], 2, 601), Step::Finish);
}

#[test]
fn a_replacement_that_never_gets_ready_is_waited_for_ten_minutes_and_longer_in_a_crowd() {
    let stage = Stage::Waiting { since: time(0), replacements: claims(&["x"]) };
    let seen = [("a", Seen::Ready), ("x", Seen::Coming)];
    let waits = |queued, second| matches!(step(&stage, &["a"], &seen, queued, second), Step::Wait { .. });
    assert!(waits(1, 600) && !waits(1, 601));
    // 80 ms for each of ten thousand nodes are 800 s.
    assert!(waits(10_000, 800) && !waits(10_000, 801));
    assert!(waits(1_000_000, 3600) && !waits(1_000_000, 3601));
    assert_eq!(patience(0), Duration::from_secs(600));
    // Ready at the last moment is too late as well: the command has failed for whoever looks at the clock.
    let ready = [("a", Seen::Ready), ("x", Seen::Ready)];
    assert!(matches!(step(&stage, &["a"], &ready, 1, 601), Step::RollBack { .. }));
}
