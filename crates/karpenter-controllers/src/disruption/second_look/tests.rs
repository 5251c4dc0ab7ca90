use std::sync::Arc;

use jiff::Timestamp;
use karpenter_disruption::carried_out::fleet_of;
use karpenter_disruption::command::{Candidate, Decision, Method};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{NodePool, PodGroup, PodNames, Problem};
use karpenter_model::requirements::Requirement;

use super::*;
use crate::disruption::flight::Stage;
use crate::disruption::order::Order;

fn resources(cpu_millis: i64, pods: i64) -> ResourceList {
    let all = [("cpu", cpu_millis), ("memory", cpu_millis << 20), ("pods", pods)];
    all.into_iter().map(|(name, amount)| (Arc::from(name), amount)).collect()
}

fn wants(key: &str, value: &str) -> Requirement {
    Requirement::in_values(key, [value])
}

/// So many nodes of two CPUs at 0.1 $/h, each with one pod that needs so much.
fn fleet(nodes: u32, cpu_millis: i64) -> Fleet {
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
    let mut fleet = fleet_of(&problem, &karpenter_scheduling::schedule(&problem));
    for pod_there in fleet.problem.nodes.iter_mut().flat_map(|node| &mut node.pods) {
        pod_there.spec = Arc::new(pod(cpu_millis));
    }
    assert_eq!(fleet.machines.len(), nodes as usize);
    fleet
}

/// A proposal to delete one node.
fn due(fleet: &Fleet, machine: usize, standby_until: Option<Timestamp>) -> Flight {
    let one = &fleet.machines[machine];
    let candidate = Candidate {
        machine,
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
        termination_grace_period_secs: None,
        is_thorough: false,
    };
    let order = Order {
        method: Method::Rebalance,
        decision: Decision::Delete,
        targets: Vec::new(),
        launches: Vec::new(),
        moves: Vec::new(),
        price_before_per_hour: 0.1,
        price_after_per_hour: 0.0,
        termination_grace_period_secs: None,
        is_thorough: false,
        terminate_first_reason: "",
    };
    Flight {
        number: machine as u64,
        id: format!("{machine}"),
        order: Arc::new(order),
        stage: Stage::Proposed { until: Timestamp::UNIX_EPOCH, standby_until },
        proposed: Some(Arc::new(command)),
    }
}

fn look(fleet: &Fleet, due: Vec<Flight>) -> Vec<Option<Result<usize, Rejection>>> {
    let waiting = |flight: &Flight| {
        let proposed = flight.proposed.as_ref().expect("a proposal");
        let claims = proposed.candidates.iter().map(|one| one.claim.clone()).collect();
        let is_standby = flight.standby_until().is_some();
        (flight.number, Waiting { method: proposed.method, claims, is_standby })
    };
    let waiting = due.iter().map(waiting).collect();
    let verdicts = look_again(fleet, waiting, due, &Rules::default());
    let moves = |command: Command| command.moves.len();
    verdicts.into_iter().map(|(_, verdict)| verdict.map(|one| one.map(moves))).collect()
}

#[test]
fn what_begins_takes_its_room_from_those_that_come_after() {
    // Two of these pods share a node, three do not.
    let three = fleet(3, 800);
    for machine in [1, 2] {
        assert_eq!(look(&three, vec![due(&three, machine, None)]), [Some(Ok(1))], "each by itself");
    }
    let both = look(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both[0], Some(Ok(1)));
    assert!(matches!(both[1], Some(Err(Rejection::NewResults | Rejection::NotCheaper))), "{both:?}");
    let three = fleet(3, 600);
    let both = look(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both, [Some(Ok(1)), Some(Ok(1))]);
}

#[test]
fn what_begins_takes_its_share_of_budgets() {
    let mut four = fleet(4, 400);
    let pool = four.pools.get_mut("general").expect("the pool");
    pool.allowed.insert(Reason::Underutilized, 1);
    let later = Some(Timestamp::MAX);
    let all = look(&four, vec![due(&four, 1, later), due(&four, 2, later), due(&four, 3, later)]);
    let refused = Rejection::Budget { pool: "general".into() };
    assert_eq!(all, [Some(Ok(1)), Some(Err(refused)), None], "the third waits for the same budget");
}

#[test]
fn what_begins_takes_its_share_of_the_moves_of_an_hour() {
    let mut three = fleet(3, 600);
    let pool = three.pools.get_mut("general").expect("the pool");
    pool.controls.max_moves_per_hour = Some(1);
    let both = look(&three, vec![due(&three, 1, None), due(&three, 2, None)]);
    assert_eq!(both, [Some(Ok(1)), Some(Err(Rejection::MovesExhausted { pool: "general".into() }))]);
}
