//! Tests of hostname spread in cost mode, which computes skew over existing hosts, as kube-scheduler does.

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::problem::{Mode, NodePool, PodGroup, PodNames, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::selector::LabelSelector;
use karpenter_model::spread_share::SpreadShare;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

fn pods(name: &str, count: u32, cpu_millis: i64, min_domains: Option<u32>, spread: bool) -> PodGroup {
    let memory_mib = cpu_millis;
    sized(name, count, (cpu_millis, memory_mib), spread.then_some((1, min_domains)))
}

/// Pods with requests in millicores and MiB, and a hostname spread with `maxSkew` and `minDomains`.
fn sized(
    name: &str,
    count: u32,
    (cpu_millis, memory_mib): (i64, i64),
    spread: Option<(u32, Option<u32>)>,
) -> PodGroup {
    let mut spec = PodSpec { namespace: "default".into(), ..PodSpec::default() };
    spec.labels.insert("app".into(), name.into());
    spec.requests.set("cpu", cpu_millis);
    spec.requests.set("memory", memory_mib << 20);
    spec.requests.set("pods", 1);
    if let Some((max_skew, min_domains)) = spread {
        spec.spread.push(TopologySpread {
            key: labels::HOSTNAME.into(),
            max_skew,
            min_domains,
            hard: true,
            selector: Some(LabelSelector::from_match_labels(&spec.labels)),
            honor_affinity: true,
            honor_taints: false,
        });
    }
    PodGroup {
        spec: Arc::new(spec),
        names: PodNames::Numbered { prefix: name.into(), count },
        created_at_secs: 0,
    }
}

fn problem(pods: Vec<PodGroup>) -> Problem {
    let catalog = karpenter_catalog::kwok::generic();
    let on_demand = |key: &'static str, value: &'static str| Requirement::in_values(key, [value]);
    let requirements: Requirements = [
        on_demand(labels::CAPACITY_TYPE, "on-demand"),
        on_demand(labels::OS, "linux"),
        on_demand(labels::ARCH, "amd64"),
    ]
    .into_iter()
    .collect();
    Problem {
        well_known: karpenter_catalog::kwok::well_known_labels(&catalog)
            .into_iter()
            .chain(labels::WELL_KNOWN.iter().map(|key| Arc::from(*key)))
            .collect(),
        catalogs: vec![Arc::new(catalog)],
        pools: vec![NodePool {
            name: "default".into(),
            weight: 0,
            requirements,
            labels: [(labels::NODEPOOL.into(), "default".into())].into(),
            taints: vec![],
            startup_taints: vec![],
            limits: Default::default(),
            usage: Default::default(),
            catalog: 0,
            hostname_spread_share: None,
        }],
        pods,
        ..Problem::default()
    }
}

fn plan(problem: &Problem, mode: Mode) -> Plan {
    let mut problem = problem.clone();
    problem.options.mode = mode;
    let plan = schedule(&problem);
    let faults: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new(), "{mode:?}");
    assert!(plan.unschedulable.is_empty());
    plan
}

#[test]
fn spread_pods_share_nodes_of_other_pods() {
    let problem = problem(vec![pods("web", 200, 100, None, true), pods("batch", 200, 3000, None, false)]);
    let (compat, cost) = (plan(&problem, Mode::Compat), plan(&problem, Mode::Cost));
    assert_eq!(compat.new_nodes.len(), 200, "one spreading pod per node");
    assert!(cost.new_nodes.len() < 100, "{} nodes", cost.new_nodes.len());
    assert!(cost.price_per_hour < compat.price_per_hour);
}

#[test]
fn min_domains_requires_as_many_hosts() {
    let problem = problem(vec![pods("web", 12, 100, Some(12), true)]);
    assert_eq!(plan(&problem, Mode::Cost).new_nodes.len(), 12);
}

#[test]
fn several_spreads_share_hosts_evenly() {
    let problem = problem(vec![
        pods("web", 60, 200, None, true),
        pods("api", 40, 500, None, true),
        pods("batch", 60, 3000, None, false),
    ]);
    let cost = plan(&problem, Mode::Cost);
    assert!(cost.new_nodes.len() < 40, "{} nodes", cost.new_nodes.len());
}

/// The problem with only those instance types whose number of CPUs is in `cpus`.
fn with_cpus(mut problem: Problem, cpus: std::ops::RangeInclusive<i64>) -> Problem {
    let mut types = (*problem.catalogs[0]).clone();
    types.retain(|of| cpus.contains(&(of.capacity.get("cpu") / 1000)));
    problem.catalogs = vec![Arc::new(types)];
    problem
}

#[test]
fn bound_includes_hostname_spread() {
    let pods = |spread: Option<(u32, Option<u32>)>| {
        vec![sized("web", 500, (900, 3100), spread), sized("batch", 500, (3500, 28 << 10), None)]
    };
    let plain = plan(&with_cpus(problem(pods(None)), 1..=32), Mode::Cost);
    assert!(plain.lower_bound_per_hour < 73.0, "{}", plain.lower_bound_per_hour);
    let problem = with_cpus(problem(pods(Some((1, None)))), 1..=32);
    for mode in [Mode::Compat, Mode::Cost] {
        let plan = plan(&problem, mode);
        // The cheapest possible fleet costs 74.367 per hour: 554 nodes, each with at most one of the small pods.
        assert!((74.3..74.367_5).contains(&plan.lower_bound_per_hour), "{}", plan.lower_bound_per_hour);
    }
}

#[test]
fn limits_of_many_spreads_do_not_lower_the_bound() {
    // Forty equal Deployments; the limit per node applies to each of them separately.
    let mut pods: Vec<PodGroup> =
        (0..40).map(|number| sized(&format!("app-{number}"), 3, (250, 512), Some((1, None)))).collect();
    pods.push(sized("batch", 200, (3500, 28 << 10), None));
    let bound = |percent: u8| {
        let mut problem = with_cpus(problem(pods.clone()), 1..=32);
        problem.options.hostname_spread_share = SpreadShare::from_percent(percent).expect("a share");
        plan(&problem, Mode::Cost).lower_bound_per_hour
    };
    let (strict, free) = (bound(10), bound(100));
    assert!(strict >= free && free > 24.5, "{strict} {free}");
}
