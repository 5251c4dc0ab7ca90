//! What owners ask for by annotation, and budgets of pods that are counted together.

use karpenter_disruption::command::Method;
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{Controls, Fleet};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

/// Two nodes that could each be replaced by a smaller one, and not by one for both.
fn two_large() -> Fleet {
    let mut fleet = fleet();
    for name in ["a", "b"] {
        add(&mut fleet, name, "large", &[pod("app", 1800), pod("app", 1800)]);
        let at = fleet.problem.nodes.len() - 1;
        fleet.problem.nodes[at].allocatable.set("cpu", 3700);
    }
    fleet
}

fn with(controls: Controls) -> Fleet {
    let mut fleet = two_large();
    pool(&mut fleet, "general").controls = controls;
    fleet
}

fn modes() -> [Settings; 2] {
    [compat(), cost()]
}

#[test]
fn savings_have_to_be_worth_it() {
    // Each saves 0.2 of 0.4.
    for settings in modes() {
        for (ratio, per_hour, is_enough) in
            [(0.0, 0.0, true), (0.5, 0.0, true), (0.51, 0.0, false), (0.0, 0.41, false), (0.4, 0.15, true)]
        {
            let controls =
                Controls { min_saving_ratio: ratio, min_saving_per_hour: per_hour, ..Controls::default() };
            let proposal = propose(&with(controls), &settings);
            assert_eq!(!proposal.commands.is_empty(), is_enough, "{ratio} {per_hour} {:?}", settings.mode);
        }
    }
    let controls = Controls { min_saving_per_hour: 0.41, ..Controls::default() };
    let proposal = propose(&with(controls), &compat());
    let Why::BelowThreshold { saving_per_hour, wanted_per_hour } = why(&proposal, "a") else {
        panic!("{}", why(&proposal, "a"))
    };
    assert!((saving_per_hour - 0.2).abs() < 1e-9);
    assert_eq!(*wanted_per_hour, 0.41);
}

#[test]
fn what_was_moved_is_left_alone_for_a_while() {
    for settings in modes() {
        let controls = Controls { cool_down_secs: 600, ..Controls::default() };
        let mut fleet = with(controls);
        fleet.machines[0].moved_onto_at_secs = Some(NOW_SECS - 599);
        fleet.machines[1].occupants[1].moved_at_secs = Some(NOW_SECS - 10);
        let proposal = propose(&fleet, &settings);
        assert!(proposal.commands.is_empty());
        assert_eq!(*why(&proposal, "a"), Why::CoolDown { until_secs: NOW_SECS + 1 });
        assert_eq!(*why(&proposal, "b"), Why::CoolDown { until_secs: NOW_SECS + 590 });
        fleet.machines[0].moved_onto_at_secs = Some(NOW_SECS - 600);
        assert_eq!(claims(&propose(&fleet, &settings).commands), [["a"]]);
        // Drift has to be.
        fleet.machines[1].drifted_since_secs = Some(1);
        assert_eq!(propose(&fleet, &settings).commands[0].method, Method::Drift);
    }
}

#[test]
fn no_more_moves_than_an_hour_allows() {
    for settings in modes() {
        let controls = Controls { max_moves_per_hour: Some(5), moved_last_hour: 3, ..Controls::default() };
        let mut fleet = with(controls);
        let moved: usize = propose(&fleet, &settings).commands.iter().map(|one| one.pods_moved()).sum();
        assert_eq!(moved, 2, "two are left, and a node has two");
        pool(&mut fleet, "general").controls.moved_last_hour = 4;
        let proposal = propose(&fleet, &settings);
        assert!(proposal.commands.is_empty());
        let expected = Why::MovesExhausted { pool: "general".into(), per_hour: 5, left: 1, wanted: 2 };
        assert_eq!(*why(&proposal, "a"), expected, "{:?}", settings.mode);
        // Four were moved, not five: nothing is said that did not happen.
        assert_eq!(
            expected.to_string(),
            "NodePool \"general\" lets 5 pods be moved per hour, 1 of them now; 2 would be moved"
        );
    }
}

#[test]
fn a_dry_run_only_tells() {
    for settings in modes() {
        let controls = Controls { is_dry_run: true, ..Controls::default() };
        let mut fleet = with(controls);
        add(&mut fleet, "empty", "small", &[]);
        let proposal = propose(&fleet, &settings);
        assert!(proposal.commands.is_empty());
        assert_eq!(claims(&proposal.rehearsals), [["empty"]]);
        assert_eq!(*why(&proposal, "empty"), Why::DryRun { method: Method::Emptiness });
        assert_eq!(*why(&proposal, "a"), Why::NotNow);
    }
}

#[test]
fn a_dry_run_does_not_keep_a_drifted_node() {
    for settings in modes() {
        let mut fleet = with(Controls { is_dry_run: true, ..Controls::default() });
        fleet.machines[1].drifted_since_secs = Some(1);
        let proposal = propose(&fleet, &settings);
        assert_eq!(claims(&proposal.commands), [["b"]], "{:?}", settings.mode);
        assert_eq!(proposal.commands[0].method, Method::Drift);
    }
}

#[test]
fn several_nodes_are_launched_only_where_that_is_wanted() {
    // Six CPUs of pods on a node that costs as much as five small ones: three small ones would do.
    let mut fleet = fleet();
    let types = vec![instance_type("small", 2, 0.1), instance_type("large", 8, 0.5)];
    fleet.problem.catalogs[0] = std::sync::Arc::new(types);
    add(&mut fleet, "a", "large", &[pod("app", 1800), pod("app", 1800), pod("app", 1800)]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(proposal.commands.len(), 1, "{}", why(&proposal, "a"));
    assert_eq!(proposal.commands[0].replacements.len(), 3);
    assert!((proposal.commands[0].saving_per_hour() - 0.2).abs() < 1e-9);
    let mut kept = fleet.clone();
    pool(&mut kept, "general").controls.is_many_to_many_enabled = false;
    assert!(propose(&kept, &cost()).commands.is_empty(), "one node for it is not cheaper");
    // The owner says so only after the proposal was made.
    let rejected = revalidate(&proposal.commands[0], &kept, &cost()).expect_err("not wanted any more");
    assert_eq!(rejected, Rejection::NewResults);
    assert!(revalidate(&proposal.commands[0], &fleet, &cost()).is_ok());
}

#[test]
fn what_owners_say_while_a_proposal_rests_counts() {
    for settings in modes() {
        let fleet = two_large();
        let command = propose(&fleet, &settings).commands.remove(0);
        let mut dry = fleet.clone();
        pool(&mut dry, "general").controls.is_dry_run = true;
        let rejected = revalidate(&command, &dry, &settings).expect_err("a dry run");
        assert_eq!(rejected, Rejection::Churn { gone: command.candidates.len() });
        let mut limited = fleet.clone();
        pool(&mut limited, "general").controls.max_moves_per_hour = Some(1);
        let rejected = revalidate(&command, &limited, &settings).expect_err("two pods would move");
        assert_eq!(rejected, Rejection::MovesExhausted { pool: "general".into() });
        assert!(revalidate(&command, &fleet, &settings).is_ok());
    }
}

#[test]
fn a_dry_run_of_one_pool_does_not_hold_up_another() {
    let mut fleet = two_large();
    add_pool(&mut fleet, "dry", &["on-demand"]);
    pool(&mut fleet, "dry").controls.is_dry_run = true;
    add_to(&mut fleet, "empty", "dry", "small", "on-demand", &[]);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.rehearsals), [["empty"]]);
    assert_eq!(claims(&proposal.commands), [["a"]]);
}

#[test]
fn pods_have_to_be_evictable_together() {
    let mut fleet = two_large();
    let budget = guard(&mut fleet, "default/guard", 3, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(proposal.commands.len(), 1, "three evictions are enough for one node");
    let left = proposal.standings.iter().find(|one| matches!(one.why, Why::PodBudgetJoint { .. }));
    let expected = Why::PodBudgetJoint { name: "default/guard".into(), wanted: 4, allowed: 3 };
    assert_eq!(left.map(|one| &one.why), Some(&expected));
    fleet.pod_budgets[budget].disruptions_allowed = 1;
    assert!(propose(&fleet, &cost()).commands.is_empty());
    assert_eq!(propose(&fleet, &compat()).commands.len(), 1, "upstream lets them queue");
    fleet.pod_budgets[budget].always_allows_unready = true;
    for machine in &mut fleet.machines {
        machine.occupants[0].is_unready = true;
    }
    assert_eq!(propose(&fleet, &cost()).commands.len(), 1, "unready pods do not count");
}

#[test]
fn drifted_nodes_queue_for_a_budget_one_after_the_other() {
    let mut fleet = two_large();
    guard(&mut fleet, "default/guard", 1, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    for machine in &mut fleet.machines {
        machine.drifted_since_secs = Some(1);
    }
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    assert!(matches!(why(&proposal, "b"), Why::PodBudgetJoint { .. }));
    // A drain that is bounded does not wait for budgets, and others wait for it.
    fleet.machines[0].termination_grace_period_secs = Some(60);
    fleet.machines[1].termination_grace_period_secs = Some(60);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), [["a"], ["b"]]);
    fleet.machines[1].termination_grace_period_secs = None;
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    assert!(matches!(why(&proposal, "b"), Why::PodBudgetJoint { .. }));
}

#[test]
fn what_is_leaving_has_its_evictions_still_to_come() {
    let mut fleet = two_large();
    guard(&mut fleet, "default/guard", 2, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    fleet.machines[0].is_leaving = true;
    fleet.machines[0].at = None;
    fleet.problem.nodes[0].pods.clear();
    assert!(propose(&fleet, &cost()).commands.is_empty());
}
