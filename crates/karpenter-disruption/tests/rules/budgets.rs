//! Which nodes count towards a budget, and which use it up.

use karpenter_disruption::budgets::{left, remaining};
use karpenter_disruption::command::Method;
use karpenter_disruption::fleet::{Machine, Reason};

use crate::builders::*;

#[test]
fn who_counts_and_who_uses_it_up() {
    type Change = fn(&mut Machine);
    // (nodes, disrupting for most reasons, disrupting for reason Unhealthy) with two sound nodes besides.
    let cases: [(&str, Change, (u32, u32, u32)); 8] = [
        ("sound", |_| {}, (3, 0, 0)),
        ("not ready", |one| one.is_ready = false, (3, 1, 0)),
        ("leaving", |one| one.is_leaving = true, (3, 1, 1)),
        ("coming up", |one| one.is_initialized = false, (2, 0, 0)),
        ("rebooting", |one| one.is_rebooting = true, (3, 1, 1)),
        ("rebooting, not up again", |one| (one.is_rebooting, one.is_initialized) = (true, false), (3, 1, 1)),
        ("instance ending", |one| (one.is_leaving, one.is_instance_terminating) = (true, true), (2, 0, 0)),
        ("not ready and leaving", |one| (one.is_leaving, one.is_ready) = (true, false), (3, 1, 1)),
    ];
    for (case, change, (nodes, disrupting, sick)) in cases {
        let mut fleet = fleet();
        for name in ["a", "b", "c"] {
            add(&mut fleet, name, "small", &[]);
        }
        change(&mut fleet.machines[0]);
        for reason in Reason::ALL {
            let found = remaining(&fleet, reason)["general"];
            let expected = if reason == Reason::Unhealthy { sick } else { disrupting };
            assert_eq!((found.nodes, found.disrupting), (nodes, expected), "{case}, {reason:?}");
        }
    }
}

#[test]
fn nothing_is_allowed_unless_it_is_said() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[]);
    pool(&mut fleet, "general").allowed.clear();
    assert_eq!(left(&fleet, Reason::Empty)["general"], 0);
    assert!(remaining(&fleet, Reason::Empty)["general"].is_blocking());
}

#[test]
fn waiting_proposals_use_budgets_up_and_never_below_zero() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[]);
    }
    allow(&mut fleet, "general", Reason::Drifted, 2);
    wait(&mut fleet, Method::Emptiness, &["a"]);
    assert_eq!(left(&fleet, Reason::Drifted)["general"], 1);
    fleet.machines[1].is_leaving = true;
    fleet.machines[2].is_ready = false;
    assert_eq!(left(&fleet, Reason::Drifted)["general"], 0);
}
