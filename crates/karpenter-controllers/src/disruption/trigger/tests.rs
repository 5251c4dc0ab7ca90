use karpenter_disruption::cluster::{NodePod, NodePoolView, PoolPolicy};

use super::*;

const NOW_SECS: i64 = 1_000_000;

fn at(secs_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW_SECS + secs_from_now).expect("a time")
}

/// One node of a NodePool with this policy.
fn cluster(pool_policy: PoolPolicy, state_node: StateNode) -> Cluster {
    let pool: Arc<str> = "general".into();
    let state_node = StateNode { pool: Some(pool.clone()), ..state_node };
    let value = NodePoolView { name: pool.clone(), pool_policy, ..NodePoolView::default() };
    Cluster {
        now_secs: NOW_SECS,
        state_nodes: vec![state_node],
        pools: [(pool, value)].into(),
        ..Cluster::default()
    }
}

/// After how many seconds this cluster is evaluated again.
fn wait(cluster: &Cluster, deadlines: &AnswerDeadlines) -> i64 {
    next_evaluation_at(cluster, &Evaluation::default(), deadlines, at(0)).as_second() - NOW_SECS
}

#[test]
fn evaluation_is_due_at_end_of_cool_down() {
    let moved_onto =
        |secs_ago: i64| StateNode { moved_onto_at_secs: Some(NOW_SECS - secs_ago), ..StateNode::default() };
    let pod = NodePod { moved_at_secs: Some(NOW_SECS - 30), ..NodePod::default() };
    let left = StateNode { is_marked_for_deletion: true, ..moved_onto(40) };
    let cases = [
        (StateNode::default(), 300),
        (moved_onto(40), 60),
        // The cool-down starts with the latest move.
        (StateNode { pods: vec![pod], ..moved_onto(40) }, 70),
        (moved_onto(100), 300),
        (left, 300),
    ];
    for (state_node, expected) in cases {
        let controls = PoolPolicy { cool_down_secs: 100, ..PoolPolicy::default() };
        let cluster = cluster(controls, state_node);
        assert_eq!(wait(&cluster, &AnswerDeadlines::default()), expected, "{:?}", cluster.state_nodes);
    }
    let without = cluster(PoolPolicy::default(), moved_onto(40));
    assert_eq!(wait(&without, &AnswerDeadlines::default()), 300);
}

#[test]
fn evaluation_is_due_when_move_limit_reopens() {
    let deadlines = |pool: &str| AnswerDeadlines {
        move_limit_reopens_at: [(pool.to_owned(), at(120))].into(),
        ..AnswerDeadlines::default()
    };
    let bounded = || PoolPolicy { max_moves_per_hour: Some(5), ..PoolPolicy::default() };
    assert_eq!(wait(&cluster(bounded(), StateNode::default()), &deadlines("general")), 120);
    assert_eq!(wait(&cluster(bounded(), StateNode::default()), &deadlines("other")), 300);
    assert_eq!(wait(&cluster(PoolPolicy::default(), StateNode::default()), &deadlines("general")), 300);
}
