use karpenter_disruption::cluster::ConsolidationPolicy;
use karpenter_disruption::command::Decision;

use super::super::resolved_command::Candidate;
use super::*;

fn id(name: &str) -> ClaimId {
    ClaimId { name: name.to_owned(), uid: format!("uid-{name}") }
}

/// A command for claim `a` with this replacement.
fn awaiting_replacement(method: Method, replacement: &str, since: Timestamp) -> ActiveCommand {
    let candidate = Candidate {
        id: id("a"),
        node: "node-a".to_owned(),
        pool: "general".to_owned(),
        policy: ConsolidationPolicy::default(),
        pods: 1,
        repair: None,
    };
    let resolved = ResolvedCommand {
        method,
        decision: Decision::Replace,
        candidates: vec![candidate],
        replacements: Vec::new(),
        moves: Vec::new(),
        price_before_per_hour: 1.0,
        price_after_per_hour: 1.0,
        termination_grace_period_secs: None,
        terminate_first_reason: "",
    };
    let state = CommandState::AwaitingReplacements { since, replacements: vec![id(replacement)] };
    ActiveCommand { number: 1, id: "1".to_owned(), resolved: Arc::new(resolved), state, proposed: None }
}

#[test]
fn hold_offs_of_reasons_are_independent() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let mut command_queue = CommandQueue::default();
    command_queue.fail(&awaiting_replacement(Method::Drift, "b", at(0)), at(0));
    command_queue.fail(&awaiting_replacement(Method::Rebalance, "c", at(60)), at(60));
    let observe_claim = |ready: &'static [&str]| {
        move |id: &ClaimId| {
            if ready.contains(&id.name.as_str()) {
                ClaimObservation::Ready
            } else {
                ClaimObservation::NotReady
            }
        }
    };
    let mut held_off = |now: i64, ready: &'static [&str]| -> Vec<Reason> {
        let held_off = command_queue.held_off(at(now), observe_claim(ready), |_| Vec::new());
        held_off.get("a").into_iter().flatten().copied().collect()
    };
    assert_eq!(held_off(60, &["a"]), [Reason::Drifted, Reason::Underutilized]);
    assert_eq!(held_off(60, &["a", "b"]), [Reason::Underutilized], "what drift launched is there");
    assert_eq!(held_off(60, &["a", "c"]), [Reason::Drifted]);
    assert_eq!(held_off(900, &["a"]), [Reason::Underutilized], "the hold-off of drift ended");
    assert_eq!(held_off(960, &["a"]), []);
}

#[test]
fn failed_drift_holds_off_all_drifted_claims_of_pool() {
    let now = Timestamp::from_second(60).expect("a time");
    let claims_of =
        |pool: &str| if pool == "general" { vec!["a".into(), "d".into()] } else { vec!["e".into()] };
    for (method, others) in [(Method::Drift, true), (Method::Rebalance, false)] {
        let mut command_queue = CommandQueue::default();
        command_queue.fail(&awaiting_replacement(method, "b", now), now);
        let held_off = command_queue.held_off(now, |_| ClaimObservation::NotReady, claims_of);
        let wanted: &[&str] = if others { &["a", "d"] } else { &["a"] };
        assert_eq!(held_off.keys().map(|claim| &**claim).collect::<Vec<_>>(), wanted, "{method:?}");
        assert!(held_off.values().all(|reasons| reasons.iter().eq([&method.reason()])), "{method:?}");
    }
}
