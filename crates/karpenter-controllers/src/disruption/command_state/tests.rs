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

fn step(
    state: &CommandState,
    candidates: &[&str],
    seen: &[(&str, ClaimObservation)],
    queued: usize,
    second: i64,
) -> CommandStep {
    let observe_claim = |one: &ClaimId| {
        let found = seen.iter().find(|(name, _)| *name == one.name);
        found.map_or(ClaimObservation::Gone, |(_, seen)| *seen)
    };
    next_step(state, &claims(candidates), observe_claim, queued, time(second))
}

#[test]
fn proposed_command_is_validated_after_delay() {
    let state = CommandState::Proposed { until: time(15), budget_deadline: None };
    assert_eq!(
        step(&state, &["a"], &[("a", ClaimObservation::Ready)], 0, 14),
        CommandStep::Sleep { until: time(15) }
    );
    assert_eq!(step(&state, &["a"], &[("a", ClaimObservation::Ready)], 0, 15), CommandStep::Validate);
    // The state machine does not check whether candidates exist; the validation does.
    assert_eq!(step(&state, &["a"], &[], 0, 900), CommandStep::Validate);
    assert_eq!(step(&CommandState::Starting, &["a"], &[], 0, 9000), CommandStep::InProgress);
}

#[test]
fn candidates_are_deleted_after_replacements_are_ready() {
    use ClaimObservation::{Deleting, Gone, NotReady, Ready};
    let lost = |name: &str| RollbackCause::ReplacementLost(name.to_owned());
    let cases = [
        // Columns: observations of candidates a and b and of replacements x and y, then the next step.
        ([Ready, Ready, NotReady, NotReady], CommandStep::AwaitReplacements { pending: claims(&["x", "y"]) }),
        ([Ready, Ready, Ready, NotReady], CommandStep::AwaitReplacements { pending: claims(&["y"]) }),
        ([Ready, Ready, Ready, Ready], CommandStep::Delete { left: claims(&["a", "b"]) }),
        ([Ready, Deleting, Ready, Ready], CommandStep::Delete { left: claims(&["a"]) }),
        ([Ready, Gone, Ready, Ready], CommandStep::Delete { left: claims(&["a"]) }),
        // A candidate whose node is no longer initialized is deleted like the others.
        ([NotReady, Gone, Ready, Ready], CommandStep::Delete { left: claims(&["a"]) }),
        ([Gone, Deleting, NotReady, NotReady], CommandStep::Finish),
        ([Gone, Gone, Gone, Gone], CommandStep::Finish),
        (
            [Ready, Ready, Gone, Ready],
            CommandStep::RollBack { left: claims(&["a", "b"]), failure: lost("x") },
        ),
        (
            [Ready, Gone, NotReady, Deleting],
            CommandStep::RollBack { left: claims(&["a"]), failure: lost("y") },
        ),
    ];
    for ([a, b, x, y], expected) in cases {
        let state = CommandState::AwaitingReplacements { since: time(0), replacements: claims(&["x", "y"]) };
        let seen = [("a", a), ("b", b), ("x", x), ("y", y)];
        assert_eq!(step(&state, &["a", "b"], &seen, 2, 600), expected, "{seen:?}");
    }
}

#[test]
fn deletions_are_retried_until_done_or_timeout() {
    let state = CommandState::Deleting { since: time(0) };
    let one_left = [("a", ClaimObservation::Ready), ("b", ClaimObservation::Deleting)];
    assert_eq!(step(&state, &["a", "b"], &one_left, 2, 600), CommandStep::Delete { left: claims(&["a"]) });
    let failure = RollbackCause::TimedOut(Duration::from_secs(601));
    assert_eq!(
        step(&state, &["a", "b"], &one_left, 2, 601),
        CommandStep::RollBack { left: claims(&["a"]), failure }
    );
    assert_eq!(step(&state, &["a", "b"], &[("b", ClaimObservation::Deleting)], 2, 601), CommandStep::Finish);
}

#[test]
fn timeout_grows_with_candidates_in_progress() {
    let state = CommandState::AwaitingReplacements { since: time(0), replacements: claims(&["x"]) };
    let seen = [("a", ClaimObservation::Ready), ("x", ClaimObservation::NotReady)];
    let waits = |queued, second| {
        matches!(step(&state, &["a"], &seen, queued, second), CommandStep::AwaitReplacements { .. })
    };
    assert!(waits(1, 600) && !waits(1, 601));
    // The timeout has 80 ms for each candidate: 800 s for ten thousand.
    assert!(waits(10_000, 800) && !waits(10_000, 801));
    assert!(waits(1_000_000, 3600) && !waits(1_000_000, 3601));
    assert_eq!(command_timeout(0), Duration::from_secs(600));
    // A replacement that becomes ready after the timeout does not prevent the rollback.
    let ready = [("a", ClaimObservation::Ready), ("x", ClaimObservation::Ready)];
    assert!(matches!(step(&state, &["a"], &ready, 1, 601), CommandStep::RollBack { .. }));
}
