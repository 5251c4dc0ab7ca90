use std::sync::Arc;

use jiff::Timestamp;
use karpenter_disruption::apply::cluster_of_plan;
use karpenter_disruption::command::{Candidate, Decision, Method};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{NodePool, PodGroup, PodNames, Problem};
use karpenter_model::requirements::Requirement;

use super::*;
use crate::disruption::command_state::CommandState;
use crate::disruption::resolved_command::ResolvedCommand;

fn resources(cpu_millis: i64, pods: i64) -> ResourceList {
    let all = [("cpu", cpu_millis), ("memory", cpu_millis << 20), ("pods", pods)];
    all.into_iter().map(|(name, amount)| (Arc::from(name), amount)).collect()
}

fn wants(key: &str, value: &str) -> Requirement {
    Requirement::in_values(key, [value])
}

/// Nodes of two CPUs at 0.1 $/h, with one pod of this size each.
fn cluster(nodes: u32, cpu_millis: i64) -> Cluster {
    let place = || [wants(labels::ZONE, "zone-a"), wants(labels::CAPACITY_TYPE, "on-demand")];
    let small = InstanceType {
        name: "small".into(),
        requirements: [wants(labels::INSTANCE_TYPE, "small")].into_iter().chain(place()).collect(),
        offerings: vec![Offering {
            requirements: place().into_iter().collect(),
            price_per_hour: 0.1,
            available: true,
            ..Offering::default()
        }],
        capacity: resources(2000, 110),
        overhead: ResourceList::new(),
        volume_attachment_limits: Default::default(),
    };
    let pod = |cpu_millis| PodSpec {
        namespace: "default".into(),
        requests: resources(cpu_millis, 1),
        ..PodSpec::default()
    };
    let pool = NodePool {
        name: "general".into(),
        weight: 0,
        requirements: Default::default(),
        labels: [(labels::NODEPOOL.into(), "general".into())].into(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    };
    let problem = Problem {
        catalogs: vec![Arc::new(vec![small])],
        pools: vec![pool],
        pods: vec![PodGroup {
            spec: Arc::new(pod(1500)),
            names: PodNames::Numbered { prefix: "web".into(), count: nodes },
            created_at_secs: 0,
        }],
        well_known: labels::WELL_KNOWN.iter().map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    };
    let mut cluster = cluster_of_plan(&problem, &karpenter_scheduling::schedule(&problem));
    for pod_there in cluster.problem.nodes.iter_mut().flat_map(|node| &mut node.pods) {
        pod_there.spec = Arc::new(pod(cpu_millis));
    }
    assert_eq!(cluster.state_nodes.len(), nodes as usize);
    cluster
}

/// A proposed command that deletes one node.
fn due(cluster: &Cluster, state_node: usize, budget_deadline: Option<Timestamp>) -> ActiveCommand {
    let one = &cluster.state_nodes[state_node];
    let candidate = Candidate {
        state_node,
        claim: one.claim.clone(),
        uid: one.uid.clone(),
        node: one.node.clone().unwrap_or_default(),
        pool: one.pool.clone().unwrap_or_default(),
        price_per_hour: one.price_per_hour,
        reschedule_cost: 2.0,
        is_empty: false,
    };
    let command = Command {
        method: Method::Rebalance,
        decision: Decision::Delete,
        candidates: vec![candidate],
        replacements: Vec::new(),
        static_pool: None,
        moves: Vec::new(),
        price_before_per_hour: 0.1,
        price_after_per_hour: 0.0,
        disruption_price_per_hour: 0.0,
        termination_grace_period_secs: None,
    };
    let resolved = ResolvedCommand {
        method: Method::Rebalance,
        decision: Decision::Delete,
        candidates: Vec::new(),
        replacements: Vec::new(),
        moves: Vec::new(),
        price_before_per_hour: 0.1,
        price_after_per_hour: 0.0,
        termination_grace_period_secs: None,
        terminate_first_reason: "",
    };
    ActiveCommand {
        number: state_node as u64,
        id: format!("{state_node}"),
        resolved: Arc::new(resolved),
        state: CommandState::Proposed { until: Timestamp::UNIX_EPOCH, budget_deadline },
        proposed: Some(Arc::new(command)),
    }
}

fn input(cluster: &Cluster, due: Vec<ActiveCommand>) -> Vec<Option<Result<usize, Rejection>>> {
    let proposed_commands = |active: &ActiveCommand| {
        let proposed = active.proposed.as_ref().expect("a proposal");
        let claims = proposed.candidates.iter().map(|one| one.claim.clone()).collect();
        let awaits_budget = active.budget_deadline().is_some();
        (active.number, ProposedCommand { method: proposed.method, claims, awaits_budget })
    };
    let proposed_commands = due.iter().map(proposed_commands).collect();
    let verdicts = validate_commands(cluster, proposed_commands, due, &Rules::default());
    let moves = |command: Command| command.moves.len();
    verdicts.into_iter().map(|(_, verdict)| verdict.map(|one| one.map(moves))).collect()
}

#[test]
fn started_command_uses_capacity_in_later_validations() {
    // Two of these pods fit on one node, three do not.
    let three = cluster(3, 800);
    for state_node in [1, 2] {
        assert_eq!(input(&three, vec![due(&three, state_node, None)]), [Some(Ok(1))], "each by itself");
    }
    let both = input(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both[0], Some(Ok(1)));
    assert!(matches!(both[1], Some(Err(Rejection::NewResults | Rejection::NotCheaper))), "{both:?}");
    let three = cluster(3, 600);
    let both = input(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both, [Some(Ok(1)), Some(Ok(1))]);
}

#[test]
fn started_command_uses_budget_in_later_validations() {
    let mut four = cluster(4, 400);
    let pool = four.pools.get_mut("general").expect("the pool");
    pool.allowed.insert(Reason::Underutilized, 1);
    let later = Some(Timestamp::MAX);
    let all = input(&four, vec![due(&four, 1, later), due(&four, 2, later), due(&four, 3, later)]);
    let rejected = Rejection::Budget { pool: "general".into() };
    assert_eq!(all, [Some(Ok(1)), Some(Err(rejected)), None], "the third waits for the same budget");
}

#[test]
fn started_command_counts_against_max_moves_per_hour() {
    let mut three = cluster(3, 600);
    let pool = three.pools.get_mut("general").expect("the pool");
    pool.pool_policy.max_moves_per_hour = Some(1);
    let both = input(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both, [Some(Ok(1)), Some(Err(Rejection::MovesExhausted { pool: "general".into() }))]);
}
