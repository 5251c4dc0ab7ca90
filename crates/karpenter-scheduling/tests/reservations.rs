//! Reserved capacity in plans: slots are few, and what finds none uses other capacity if it may.

use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, NodePool, PodGroup, PodNames, Problem};
use karpenter_model::reason::Reason;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

fn offering(capacity_type: &str, price: f64, reservation: Option<(&str, u32)>) -> Offering {
    let mut requirements: Requirements = [
        Requirement::in_values(labels::ZONE, ["a"]),
        Requirement::in_values(labels::CAPACITY_TYPE, [capacity_type]),
    ]
    .into_iter()
    .collect();
    requirements.add(match reservation {
        Some((id, _)) => Requirement::in_values(labels::AWS_CAPACITY_RESERVATION_ID, [id]),
        None => Requirement::does_not_exist(labels::AWS_CAPACITY_RESERVATION_ID),
    });
    Offering {
        requirements,
        price_per_hour: price,
        available: true,
        reservation_capacity: reservation.map(|(_, capacity)| capacity),
    }
}

/// One type of two cpus with a reservation of `slots`; five pods of one and a half cpus, so one pod per node.
fn problem(slots: u32, capacity_types: &[&str]) -> Problem {
    let mut instance_type = InstanceType {
        name: "two".into(),
        requirements: [Requirement::in_values(labels::INSTANCE_TYPE, ["two"])].into_iter().collect(),
        offerings: vec![
            offering("on-demand", 0.1, None),
            offering("reserved", 0.1 / 10_000_000.0, Some(("cr-1", slots))),
        ],
        capacity: Default::default(),
        overhead: Default::default(),
        volume_attachment_limits: Default::default(),
    };
    for (name, amount) in [("cpu", 2000), ("memory", 8 << 30), ("pods", 20)] {
        instance_type.capacity.set(name, amount);
    }
    let mut spec = PodSpec { namespace: "default".into(), ..PodSpec::default() };
    spec.requests.set("cpu", 1500);
    spec.requests.set("pods", 1);
    let keys = labels::WELL_KNOWN.iter().chain([&labels::AWS_CAPACITY_RESERVATION_ID]);
    Problem {
        catalogs: vec![Arc::new(vec![instance_type])],
        pools: vec![NodePool {
            name: "default".into(),
            weight: 0,
            requirements: [Requirement::in_values(labels::CAPACITY_TYPE, capacity_types.iter().copied())]
                .into_iter()
                .collect(),
            labels: [(labels::NODEPOOL.into(), "default".into())].into(),
            taints: vec![],
            startup_taints: vec![],
            limits: Default::default(),
            usage: Default::default(),
            catalog: 0,
        }],
        pods: vec![PodGroup {
            spec: Arc::new(spec),
            names: PodNames::Numbered { prefix: "web".into(), count: 5 },
            created_at_secs: 0,
        }],
        well_known: keys.map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    }
}

fn capacity_types(problem: &Problem, plan: &Plan) -> Vec<String> {
    let mut found: Vec<String> = plan
        .new_nodes
        .iter()
        .map(|node| {
            let offering = &problem.catalogs[0][node.instance_type].offerings[node.offering];
            offering.capacity_type().map(ToString::to_string).unwrap_or_default()
        })
        .collect();
    found.sort();
    found
}

fn planned(problem: &Problem) -> [Plan; 2] {
    [Mode::Compat, Mode::Cost].map(|mode| {
        let mut problem = problem.clone();
        problem.options.mode = mode;
        let plan = schedule(&problem);
        let faults: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
        assert_eq!(faults, Vec::<String>::new(), "{mode:?}");
        assert!(plan.lower_bound_per_hour <= plan.price_per_hour + 1e-12);
        plan
    })
}

#[test]
fn slots_are_used_up_before_other_capacity() {
    let problem = problem(2, &["on-demand", "reserved"]);
    for plan in planned(&problem) {
        assert_eq!(
            capacity_types(&problem, &plan),
            ["on-demand", "on-demand", "on-demand", "reserved", "reserved"]
        );
        assert!((plan.price_per_hour - 0.3).abs() < 1e-6, "{}", plan.price_per_hour);
    }
}

#[test]
fn a_full_reservation_is_left_alone() {
    let problem = problem(0, &["on-demand", "reserved"]);
    for plan in planned(&problem) {
        assert_eq!(capacity_types(&problem, &plan), ["on-demand"; 5]);
    }
}

#[test]
fn pods_that_may_use_nothing_else_are_left_over() {
    let problem = problem(2, &["reserved"]);
    for plan in planned(&problem) {
        assert_eq!(capacity_types(&problem, &plan), ["reserved"; 2]);
        let left: u32 = plan.unschedulable.iter().map(|left| left.pods.count).sum();
        assert_eq!(left, 3);
        assert!(plan.unschedulable.iter().all(|left| left.reasons[0].reason == Reason::ReservationFull));
    }
}
