//! Tests of the rules of the v1alpha5 API, for NodePools that are derived from a Provisioner.

use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, LegacyRules, Reason};
use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::verdict::Verdict;

use crate::builders::*;

fn old_fleet(rules: LegacyRules) -> Cluster {
    let mut cluster = cluster();
    let general = pool(&mut cluster, "general");
    general.legacy_rules = Some(rules);
    general.policy = ConsolidationPolicy::WhenEmpty;
    general.consolidate_after_secs = rules.empty_after_secs;
    // The v1alpha5 API has no budgets.
    general.allowed.clear();
    cluster
}

fn expiring(after_secs: i64) -> LegacyRules {
    LegacyRules { expires_after_secs: Some(after_secs), ..LegacyRules::default() }
}

fn born(cluster: &mut Cluster, state_node: usize, age_secs: i64) {
    cluster.state_nodes[state_node].legacy_marks.node_created_at_secs = Some(NOW_SECS - age_secs);
}

#[test]
fn oldest_expired_node_is_replaced_alone() {
    for settings in [compat(), cost()] {
        let mut cluster = old_fleet(expiring(600));
        for (name, age) in [("young", 599), ("due", 600), ("oldest", 900)] {
            let state_node = add(&mut cluster, name, "medium", &[pod("app", 3500)]);
            born(&mut cluster, state_node, age);
        }
        let evaluation = evaluate(&cluster, &settings);
        assert_eq!(claims(&evaluation.commands), [["oldest"]]);
        let command = &evaluation.commands[0];
        assert_eq!((command.method, command.decision), (Method::Expiration, Decision::Replace));
        assert_eq!((command.replacements.len(), command.moves.len()), (1, 1));
        assert_eq!(*verdict(&evaluation, "due"), Verdict::NotNow);
        assert_eq!(*verdict(&evaluation, "young"), Verdict::NeverConsolidated { pool: "general".into() });
        // The next expired node waits until the first one is deleted.
        let oldest = cluster.state_nodes.iter_mut().find(|one| &*one.claim == "oldest").expect("added");
        oldest.is_marked_for_deletion = true;
        let at = oldest.at.take().expect("a node");
        cluster.problem.nodes[at].pods.clear();
        assert!(evaluate(&cluster, &settings).commands.is_empty());
        cluster.state_nodes.retain(|one| &*one.claim != "oldest");
        assert_eq!(claims(&evaluate(&cluster, &settings).commands), [["due"]]);
    }
}

#[test]
fn expired_node_respects_pdbs_and_do_not_evict_but_not_capacity() {
    let mut cluster = old_fleet(expiring(0));
    let state_node = add(&mut cluster, "a", "medium", &[pod("app", 3500)]);
    born(&mut cluster, state_node, 0);
    let mut guarded = cluster.clone();
    guard(&mut guarded, "default/guard", 0, &[(state_node, 0)]);
    assert!(evaluate(&guarded, &compat()).commands.is_empty());
    let mut held = cluster.clone();
    held.state_nodes[state_node].pods[0].is_do_not_evict = true;
    let evaluation = evaluate(&held, &compat());
    assert!(evaluation.commands.is_empty());
    let text = verdict(&evaluation, "a").to_string();
    assert_eq!(text, "Pod has \"karpenter.sh/do-not-evict\" annotation (Pod=default/a-0)");
    // Nothing can be launched, but the expired node is deleted in any case.
    cluster.problem.pools.clear();
    pool(&mut cluster, "general").launches_as = None;
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    assert_eq!(evaluation.commands[0].decision, Decision::Delete);
}

#[test]
fn do_not_evict_is_ignored_in_v1_pools() {
    let mut cluster = cluster();
    let state_node = add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    cluster.state_nodes[state_node].pods[0].is_do_not_evict = true;
    cluster.state_nodes[state_node].legacy_marks.do_not_consolidate = Some(true);
    assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["a"]]);
    let asked: Vec<Method> = evaluate(&cluster, &compat()).outcomes.iter().map(|one| one.method).collect();
    assert!(!asked.contains(&Method::Expiration));
}

#[test]
fn ttl_after_empty_ignores_pdbs() {
    let rules = LegacyRules { empty_after_secs: Some(30), ..LegacyRules::default() };
    let mut cluster = old_fleet(rules);
    allow(&mut cluster, "general", Reason::Empty, 1000);
    let state_node = add(&mut cluster, "a", "small", &[]);
    bind_daemon(&mut cluster, state_node, pod("log", 100)).is_do_not_evict = true;
    guard(&mut cluster, "default/guard", 0, &[(state_node, 0)]);
    for (since, goes) in
        [(None, false), (Some(NOW_SECS - 30), false), (Some(NOW_SECS - 31), true), (Some(0), true)]
    {
        cluster.state_nodes[state_node].legacy_marks.empty_since_secs = since;
        let commands = evaluate(&cluster, &compat()).commands;
        assert_eq!(!commands.is_empty(), goes, "{since:?}");
        assert!(commands.iter().all(|command| command.method == Method::Emptiness));
    }
    // The v1 annotation do-not-disrupt is respected.
    cluster.state_nodes[state_node].pods[0].is_do_not_disrupt = true;
    assert!(evaluate(&cluster, &compat()).commands.is_empty());
}

#[test]
fn do_not_consolidate_blocks_or_allows_consolidation() {
    let mut consolidating = old_fleet(LegacyRules::default());
    let general = pool(&mut consolidating, "general");
    general.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    general.consolidate_after_secs = Some(0);
    let mut held_off = old_fleet(LegacyRules::default());
    for cluster in [&mut consolidating, &mut held_off] {
        for reason in [Reason::Empty, Reason::Underutilized] {
            allow(cluster, "general", reason, 1000);
        }
    }
    for pods in [vec![], vec![pod("app", 1500)]] {
        for (cluster, mark, goes) in [
            (&consolidating, None, true),
            (&consolidating, Some(true), false),
            (&consolidating, Some(false), true),
            (&held_off, None, false),
            (&held_off, Some(true), false),
            (&held_off, Some(false), true),
        ] {
            let mut cluster = cluster.clone();
            let state_node = add(&mut cluster, "a", "large", &pods);
            cluster.state_nodes[state_node].legacy_marks.do_not_consolidate = mark;
            let evaluation = evaluate(&cluster, &compat());
            assert_eq!(!evaluation.commands.is_empty(), goes, "{mark:?} {} pods", pods.len());
            if mark == Some(true) && cluster.pools["general"].policy != ConsolidationPolicy::WhenEmpty {
                assert!(verdict(&evaluation, "a").to_string().contains("do-not-consolidate"));
            }
        }
    }
}
