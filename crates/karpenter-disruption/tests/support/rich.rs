//! Generates clusters with more features: zones and pods that are spread over them or pinned to one, static NodePools,
//! every policy and every setting. Spot-to-spot replacement is enabled, but rare with three instance types.

use std::collections::BTreeSet;

use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, PoolPolicy, Reason};
use karpenter_disruption::command::Command;
use karpenter_disruption::settings::Settings;
use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::selector::LabelSelector;
use proptest::prelude::*;

use crate::builders::*;

#[derive(Debug, Clone)]
pub(crate) struct Rich {
    plain: crate::World,
    /// The zone of each node.
    zones: Vec<usize>,
    /// Additional pods: node, kind, size.
    pods: Vec<(usize, u8, i64)>,
    policies: Vec<u8>,
    pool_policy: Vec<u8>,
    /// Whether each node of the static NodePool has drifted.
    fixed: Vec<bool>,
    fixed_allowed: u32,
    nodes_left: u32,
    spot_to_spot: bool,
    terminate_first: bool,
}

pub(crate) fn worlds() -> impl Strategy<Value = Rich> {
    let pod = (0usize..12, 0u8..2, prop::sample::select(vec![100i64, 300, 700]));
    let pools = (
        prop::collection::vec(0u8..6, 2),
        prop::collection::vec(0u8..14, 2),
        prop::collection::vec(prop::bool::weighted(0.1), 0..3),
        0u32..3,
        0u32..3,
    );
    let rest = (prop::collection::vec(0usize..2, 12), prop::collection::vec(pod, 0..10));
    (crate::worlds(), rest, pools, any::<bool>(), any::<bool>()).prop_map(
        |(plain, (zones, pods), pools, spot_to_spot, terminate_first)| {
            let (policies, pool_policy, fixed, fixed_allowed, nodes_left) = pools;
            Rich {
                plain,
                zones,
                pods,
                policies,
                pool_policy,
                fixed,
                fixed_allowed,
                nodes_left,
                spot_to_spot,
                terminate_first,
            }
        },
    )
}

pub(crate) fn settings(world: &Rich) -> [Settings; 2] {
    crate::settings().map(|settings| Settings {
        spot_to_spot: world.spot_to_spot,
        terminate_first_drift: world.terminate_first,
        ..settings
    })
}

const SPREAD: &str = "over-zones";
const TOGETHER: &str = "in-one-zone";

fn spec(app: &str, cpu_millis: i64) -> PodSpec {
    let mut spec = pod(app, cpu_millis);
    let selector = Some(LabelSelector::from_match_labels(&label_map(&[("app", app)])));
    if app == SPREAD {
        spec.spread.push(TopologySpread {
            key: labels::ZONE.into(),
            max_skew: 1,
            min_domains: None,
            hard: true,
            selector,
            honor_affinity: true,
            honor_taints: false,
        });
    } else {
        spec.affinity.push(PodAffinityTerm {
            key: labels::ZONE.into(),
            selector,
            namespaces: BTreeSet::from(["default".into()]),
        });
    }
    spec
}

pub(crate) fn build(world: &Rich) -> Cluster {
    let mut cluster = crate::build(&world.plain);
    let count = cluster.state_nodes.len();
    for (index, zone) in world.zones.iter().enumerate().take(count) {
        cluster.state_nodes[index].zone = Some(ZONES[*zone].into());
        cluster.problem.nodes[index].labels.insert(labels::ZONE.into(), ZONES[*zone].into());
    }
    let (mut in_zone, mut home) = ([0_i64; 2], None);
    for (state_node, kind, cpu_millis) in &world.pods {
        let state_node = state_node % count;
        let zone = world.zones[state_node];
        let used: i64 =
            cluster.problem.nodes[state_node].pods.iter().map(|one| one.spec.requests.get("cpu")).sum();
        if used + cpu_millis > cluster.problem.nodes[state_node].allocatable.get("cpu") {
            continue;
        }
        // Clusters that cannot exist are not generated.
        if *kind == 0 {
            if in_zone[zone] > in_zone[1 - zone] {
                continue;
            }
            in_zone[zone] += 1;
            bind(&mut cluster, state_node, spec(SPREAD, *cpu_millis));
        } else if *home.get_or_insert(zone) == zone {
            bind(&mut cluster, state_node, spec(TOGETHER, *cpu_millis));
        }
    }
    for (name, (policy, kind)) in
        ["general", "mixed"].iter().zip(world.policies.iter().zip(&world.pool_policy))
    {
        let pool = pool(&mut cluster, name);
        pool.policy = match policy {
            0 => ConsolidationPolicy::WhenEmpty,
            1 | 2 => ConsolidationPolicy::Balanced,
            _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        };
        match kind {
            0 => pool.pool_policy.is_dry_run = true,
            1 => pool.pool_policy.min_saving_ratio = 0.3,
            2 => pool.pool_policy.min_saving_per_hour = 0.15,
            3 => pool.pool_policy.max_moves_per_hour = Some(2),
            4 => (pool.pool_policy.max_moves_per_hour, pool.pool_policy.moved_last_hour) = (Some(8), 5),
            5 => pool.pool_policy.is_many_to_many_enabled = false,
            6 => pool.pool_policy.balanced_k = 1.2,
            _ => {}
        }
    }
    add_static_pool(&mut cluster, "fixed", world.fixed.len() as u32, Some(world.nodes_left));
    allow(&mut cluster, "fixed", Reason::Drifted, world.fixed_allowed);
    for (number, has_drifted) in world.fixed.iter().enumerate() {
        let name = format!("f{number}");
        let pods = [pod("plain", 300)];
        let state_node =
            add_to(&mut cluster, &name, "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &pods);
        cluster.state_nodes[state_node].drifted_since_secs = has_drifted.then_some(number as i64);
    }
    cluster
}

/// Removes settings that upstream does not have, and causes of methods (repair, static drift) that have tests of their
/// own.
pub(crate) fn leave_to_upstream(cluster: &mut Cluster) {
    for pool in cluster.pools.values_mut() {
        pool.pool_policy = PoolPolicy::default();
    }
    for state_node in &mut cluster.state_nodes {
        state_node.repair = None;
        state_node.drifted_since_secs.take_if(|_| state_node.pool.as_deref() == Some("fixed"));
    }
}

pub(crate) const KINDS: [&str; 4] =
    ["moves pods spread over zones", "moves pods of one zone", "balanced", "bounded"];

/// The features of a command.
pub(crate) fn kinds(cluster: &Cluster, command: &Command) -> Vec<&'static str> {
    let app_of = |from: &karpenter_scheduling::simulate::BoundAt| {
        let pod = &cluster.problem.nodes[from.node as usize].pods[from.pod as usize];
        pod.spec.labels.get("app").map(|app| app.to_string()).unwrap_or_default()
    };
    let moves = |app: &str| command.moves.iter().any(|(from, _)| app_of(from) == app);
    let is_saving = command.method.reason() == Reason::Underutilized;
    let any_pool = |is: fn(&karpenter_disruption::cluster::NodePoolView) -> bool| {
        is_saving && command.candidates.iter().any(|one| is(&cluster.pools[&one.pool]))
    };
    let said = [
        moves(SPREAD),
        moves(TOGETHER),
        any_pool(|pool| pool.policy == ConsolidationPolicy::Balanced),
        any_pool(|pool| pool.pool_policy.max_moves_per_hour.is_some()),
    ];
    KINDS.into_iter().zip(said).filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
}
