use karpenter_disruption::command::Decision;
use karpenter_disruption::fleet::ConsolidationPolicy;

use super::super::order::Target;
use super::*;

fn id(name: &str) -> ClaimId {
    ClaimId { name: name.to_owned(), uid: format!("uid-{name}") }
}

/// A command for claim `a` that has launched `replacement`.
fn waiting(method: Method, replacement: &str, since: Timestamp) -> Flight {
    let target = Target {
        id: id("a"),
        node: "node-a".to_owned(),
        pool: "general".to_owned(),
        policy: ConsolidationPolicy::default(),
        pods: 1,
        repair: None,
    };
    let order = Order {
        method,
        decision: Decision::Replace,
        targets: vec![target],
        launches: Vec::new(),
        moves: Vec::new(),
        price_before_per_hour: 1.0,
        price_after_per_hour: 1.0,
        termination_grace_period_secs: None,
        is_thorough: false,
        terminate_first_reason: "",
    };
    let stage = Stage::Waiting { since, replacements: vec![id(replacement)] };
    Flight { number: 1, id: "1".to_owned(), order: Arc::new(order), stage, proposed: None }
}

#[test]
fn what_failed_for_one_reason_is_not_forgotten_when_another_fails() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let mut flights = Flights::default();
    flights.fail(&waiting(Method::Drift, "b", at(0)), at(0));
    flights.fail(&waiting(Method::Rebalance, "c", at(60)), at(60));
    let see = |ready: &'static [&str]| {
        move |id: &ClaimId| if ready.contains(&id.name.as_str()) { Seen::Ready } else { Seen::Coming }
    };
    let mut resting = |now: i64, ready: &'static [&str]| -> Vec<Reason> {
        let resting = flights.resting(at(now), see(ready), |_| Vec::new());
        resting.get("a").into_iter().flatten().copied().collect()
    };
    assert_eq!(resting(60, &["a"]), [Reason::Drifted, Reason::Underutilized]);
    assert_eq!(resting(60, &["a", "b"]), [Reason::Underutilized], "what drift launched is there");
    assert_eq!(resting(60, &["a", "c"]), [Reason::Drifted]);
    assert_eq!(resting(900, &["a"]), [Reason::Underutilized], "the rest of drift is over");
    assert_eq!(resting(960, &["a"]), []);
}

#[test]
fn what_drifted_in_the_same_pool_waits_for_the_same_replacement() {
    let now = Timestamp::from_second(60).expect("a time");
    let claims_of =
        |pool: &str| if pool == "general" { vec!["a".into(), "d".into()] } else { vec!["e".into()] };
    for (method, others) in [(Method::Drift, true), (Method::Rebalance, false)] {
        let mut flights = Flights::default();
        flights.fail(&waiting(method, "b", now), now);
        let resting = flights.resting(now, |_| Seen::Coming, claims_of);
        let wanted: &[&str] = if others { &["a", "d"] } else { &["a"] };
        assert_eq!(resting.keys().map(|claim| &**claim).collect::<Vec<_>>(), wanted, "{method:?}");
        assert!(resting.values().all(|reasons| reasons.iter().eq([&method.reason()])), "{method:?}");
    }
}
