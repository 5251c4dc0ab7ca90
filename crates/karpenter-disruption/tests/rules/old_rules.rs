//! The rules before v1, for pools that were made from a Provisioner.

use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{ConsolidationPolicy, Fleet, OldRules, Reason};
use karpenter_disruption::propose::propose;

use crate::builders::*;

fn old_fleet(rules: OldRules) -> Fleet {
    let mut fleet = fleet();
    let general = pool(&mut fleet, "general");
    general.old_rules = Some(rules);
    general.policy = ConsolidationPolicy::WhenEmpty;
    general.consolidate_after_secs = rules.empty_after_secs;
    // No budgets existed, so none may matter.
    general.allowed.clear();
    fleet
}

fn expiring(after_secs: i64) -> OldRules {
    OldRules { expires_after_secs: Some(after_secs), ..OldRules::default() }
}

fn born(fleet: &mut Fleet, machine: usize, age_secs: i64) {
    fleet.machines[machine].old_marks.node_created_at_secs = Some(NOW_SECS - age_secs);
}

#[test]
fn the_oldest_expired_node_goes_first_and_alone_with_its_replacement() {
    for settings in [compat(), cost()] {
        let mut fleet = old_fleet(expiring(600));
        for (name, age) in [("young", 599), ("due", 600), ("oldest", 900)] {
            let machine = add(&mut fleet, name, "medium", &[pod("app", 3500)]);
            born(&mut fleet, machine, age);
        }
        let proposal = propose(&fleet, &settings);
        assert_eq!(claims(&proposal.commands), [["oldest"]]);
        let command = &proposal.commands[0];
        assert_eq!((command.method, command.decision), (Method::Expiration, Decision::Replace));
        assert_eq!((command.replacements.len(), command.moves.len()), (1, 1));
        assert_eq!(*why(&proposal, "due"), Why::NotNow);
        assert_eq!(*why(&proposal, "young"), Why::NeverConsolidated { pool: "general".into() });
        // The next one waits until it is gone.
        let oldest = fleet.machines.iter_mut().find(|one| &*one.claim == "oldest").expect("added");
        oldest.is_leaving = true;
        let at = oldest.at.take().expect("a node");
        fleet.problem.nodes[at].pods.clear();
        assert!(propose(&fleet, &settings).commands.is_empty());
        fleet.machines.retain(|one| &*one.claim != "oldest");
        assert_eq!(claims(&propose(&fleet, &settings).commands), [["due"]]);
    }
}

#[test]
fn an_expired_node_waits_for_budgets_of_pods_and_for_held_pods_but_not_for_places() {
    let mut fleet = old_fleet(expiring(0));
    let machine = add(&mut fleet, "a", "medium", &[pod("app", 3500)]);
    born(&mut fleet, machine, 0);
    let mut guarded = fleet.clone();
    guard(&mut guarded, "default/guard", 0, &[(machine, 0)]);
    assert!(propose(&guarded, &compat()).commands.is_empty());
    let mut held = fleet.clone();
    held.machines[machine].occupants[0].is_do_not_evict = true;
    let proposal = propose(&held, &compat());
    assert!(proposal.commands.is_empty());
    let text = why(&proposal, "a").to_string();
    assert_eq!(text, "Pod has \"karpenter.sh/do-not-evict\" annotation (Pod=default/a-0)");
    // Nothing can be launched, and its time is up all the same.
    fleet.problem.pools.clear();
    pool(&mut fleet, "general").launches_as = None;
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    assert_eq!(proposal.commands[0].decision, Decision::Delete);
}

#[test]
fn the_old_annotation_means_nothing_on_nodes_of_v1_pools() {
    let mut fleet = fleet();
    let machine = add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    fleet.machines[machine].occupants[0].is_do_not_evict = true;
    fleet.machines[machine].old_marks.is_kept_from_consolidation = Some(true);
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["a"]]);
    let asked: Vec<Method> = propose(&fleet, &compat()).outcomes.iter().map(|one| one.method).collect();
    assert!(!asked.contains(&Method::Expiration));
}

#[test]
fn an_empty_node_goes_when_its_own_time_is_over_whatever_pods_and_budgets_of_pods_say() {
    let rules = OldRules { empty_after_secs: Some(30), ..OldRules::default() };
    let mut fleet = old_fleet(rules);
    allow(&mut fleet, "general", Reason::Empty, 1000);
    let machine = add(&mut fleet, "a", "small", &[]);
    bind_daemon(&mut fleet, machine, pod("log", 100)).is_do_not_evict = true;
    guard(&mut fleet, "default/guard", 0, &[(machine, 0)]);
    for (since, goes) in
        [(None, false), (Some(NOW_SECS - 30), false), (Some(NOW_SECS - 31), true), (Some(0), true)]
    {
        fleet.machines[machine].old_marks.empty_since_secs = since;
        let commands = propose(&fleet, &compat()).commands;
        assert_eq!(!commands.is_empty(), goes, "{since:?}");
        assert!(commands.iter().all(|command| command.method == Method::Emptiness));
    }
    // What v1 says aloud counts.
    fleet.machines[machine].occupants[0].is_do_not_disrupt = true;
    assert!(propose(&fleet, &compat()).commands.is_empty());
}

#[test]
fn do_not_consolidate_keeps_a_node_or_offers_it() {
    let mut consolidating = old_fleet(OldRules::default());
    let general = pool(&mut consolidating, "general");
    general.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    general.consolidate_after_secs = Some(0);
    let mut resting = old_fleet(OldRules::default());
    for fleet in [&mut consolidating, &mut resting] {
        for reason in [Reason::Empty, Reason::Underutilized] {
            allow(fleet, "general", reason, 1000);
        }
    }
    for pods in [vec![], vec![pod("app", 1500)]] {
        for (fleet, mark, goes) in [
            (&consolidating, None, true),
            (&consolidating, Some(true), false),
            (&consolidating, Some(false), true),
            (&resting, None, false),
            (&resting, Some(true), false),
            (&resting, Some(false), true),
        ] {
            let mut fleet = fleet.clone();
            let machine = add(&mut fleet, "a", "large", &pods);
            fleet.machines[machine].old_marks.is_kept_from_consolidation = mark;
            let proposal = propose(&fleet, &compat());
            assert_eq!(!proposal.commands.is_empty(), goes, "{mark:?} {} pods", pods.len());
            if mark == Some(true) && fleet.pools["general"].policy != ConsolidationPolicy::WhenEmpty {
                assert!(why(&proposal, "a").to_string().contains("do-not-consolidate"));
            }
        }
    }
}
