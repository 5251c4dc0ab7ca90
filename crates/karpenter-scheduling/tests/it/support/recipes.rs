//! Random problems for property tests, described by short recipes: a recipe prints in a few lines, shrinks well, and
//! always builds the same problem.
//!
//! A recipe has one to three NodePools, a small catalog over one to three zones, a few existing nodes with bound pods,
//! DaemonSets, and Deployments with any mix of constraints, including constraints on each other's pods. Its pods need
//! not be schedulable.

#![allow(dead_code)]

use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec};
use karpenter_model::problem::{Daemon, Node, NodePool, Options, PodGroup, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::taints::{Effect, Toleration, TolerationOperator};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::support::builders;
use crate::support::builders::{GIB, ZONES, all_of, near, spread, wants};

/// The effort of every plan. It is enough for problems of this size, and small because a property checks many of them.
const EFFORT: u64 = 100;

pub(crate) const TEAM: &str = "example.com/team";

#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) zones: usize,
    pub(crate) types: Vec<TypeRecipe>,
    pub(crate) pools: Vec<PoolRecipe>,
    pub(crate) nodes: Vec<NodeRecipe>,
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) daemons: Vec<DaemonRecipe>,
}

#[derive(Debug, Clone)]
pub(crate) struct TypeRecipe {
    pub(crate) cpus: i64,
    pub(crate) gib_per_cpu: i64,
    pub(crate) arm: bool,
    /// What is added to the usual price (or subtracted, if negative), in tenths of it.
    pub(crate) price_tenths: i64,
    /// One bit per (zone, capacity type) pair: whether the offering is unavailable.
    pub(crate) unavailable_in: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct PoolRecipe {
    pub(crate) weight: i32,
    pub(crate) taint: Option<Effect>,
    /// Two bits: whether spot and on-demand are allowed.
    pub(crate) capacity_types: u8,
    /// One bit per allowed zone; 0 means no requirement on the zone.
    pub(crate) zones: u8,
    pub(crate) team: Team,
    pub(crate) cpu_limit: Option<i64>,
    pub(crate) node_limit: Option<i64>,
    pub(crate) min_types: Option<u32>,
}

/// The requirement of a NodePool on the custom label.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Team {
    Silent,
    Label(bool),
    Either,
    Exists,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeRecipe {
    pub(crate) zone: usize,
    pub(crate) cpus: i64,
    pub(crate) tainted: bool,
    pub(crate) initialized: bool,
    pub(crate) pool: Option<usize>,
    pub(crate) pods: Vec<BoundRecipe>,
}

#[derive(Debug, Clone)]
pub(crate) struct BoundRecipe {
    pub(crate) app: usize,
    pub(crate) cpu_millis: i64,
    pub(crate) terminating: bool,
    pub(crate) features: Vec<Feature>,
}

#[derive(Debug, Clone)]
pub(crate) struct Deployment {
    pub(crate) count: u32,
    pub(crate) cpu_millis: i64,
    pub(crate) memory_gib: i64,
    pub(crate) other_namespace: bool,
    pub(crate) features: Vec<Feature>,
}

#[derive(Debug, Clone)]
pub(crate) struct DaemonRecipe {
    pub(crate) cpu_millis: i64,
    pub(crate) arm: Option<bool>,
    pub(crate) tolerates: bool,
    pub(crate) port: Option<u16>,
}

/// One constraint or preference of a pod. An `app` of 0 is the pod's own Deployment, other numbers are other
/// Deployments.
#[derive(Debug, Clone)]
pub(crate) enum Feature {
    SelectZone(usize),
    SelectArch { arm: bool },
    SelectCapacityType { spot: bool },
    SelectTeam(bool),
    AvoidTeam(bool),
    TermsZones(Vec<u8>),
    PreferZone(usize),
    SpreadZone { skew: u32, min_domains: Option<u32>, hard: bool, honor_taints: bool },
    SpreadHost { skew: u32, hard: bool },
    SpreadHostOf { skew: u32, min_domains: Option<u32> },
    SpreadCapacityType { skew: u32 },
    Near { zonal: bool, app: usize },
    Apart { zonal: bool, app: usize },
    PreferNear { zonal: bool, app: usize },
    PreferApart { zonal: bool, app: usize },
    Port(u16),
    Tolerate,
    VolumeZones(Vec<u8>),
    Attach(u8),
}

fn any_feature() -> impl Strategy<Value = Feature> {
    let skew = || 1..=2u32;
    let app = || 0..4usize;
    prop_oneof![
        2 => (0..3usize).prop_map(Feature::SelectZone),
        1 => any::<bool>().prop_map(|arm| Feature::SelectArch { arm }),
        1 => any::<bool>().prop_map(|spot| Feature::SelectCapacityType { spot }),
        1 => any::<bool>().prop_map(Feature::SelectTeam),
        1 => any::<bool>().prop_map(Feature::AvoidTeam),
        1 => vec(1..8u8, 1..=2).prop_map(Feature::TermsZones),
        1 => (0..3usize).prop_map(Feature::PreferZone),
        4 => (skew(), option::weighted(0.3, 2..=3u32), prop::bool::weighted(0.8), any::<bool>()).prop_map(
            |(skew, min_domains, hard, honor_taints)| Feature::SpreadZone { skew, min_domains, hard, honor_taints }
        ),
        3 => (skew(), prop::bool::weighted(0.8)).prop_map(|(skew, hard)| Feature::SpreadHost { skew, hard }),
        1 => skew().prop_map(|skew| Feature::SpreadCapacityType { skew }),
        3 => (any::<bool>(), app()).prop_map(|(zonal, app)| Feature::Near { zonal, app }),
        3 => (any::<bool>(), app()).prop_map(|(zonal, app)| Feature::Apart { zonal, app }),
        1 => (any::<bool>(), app()).prop_map(|(zonal, app)| Feature::PreferNear { zonal, app }),
        1 => (any::<bool>(), app()).prop_map(|(zonal, app)| Feature::PreferApart { zonal, app }),
        1 => (8080..8082u16).prop_map(Feature::Port),
        2 => Just(Feature::Tolerate),
        1 => vec(1..8u8, 1..=2).prop_map(Feature::VolumeZones),
        1 => (1..4u8).prop_map(Feature::Attach),
    ]
}

fn any_type() -> impl Strategy<Value = TypeRecipe> {
    (
        prop::sample::select(vec![1i64, 2, 4, 8, 16]),
        prop::sample::select(vec![2i64, 4, 8]),
        prop::bool::weighted(0.2),
        -2..=2i64,
        prop_oneof![3 => Just(0u8), 1 => any::<u8>()],
    )
        .prop_map(|(cpus, gib_per_cpu, arm, price_tenths, unavailable_in)| TypeRecipe {
            cpus,
            gib_per_cpu,
            arm,
            price_tenths,
            unavailable_in,
        })
}

fn any_pool() -> impl Strategy<Value = PoolRecipe> {
    (
        prop::sample::select(vec![0, 0, 10, 50]),
        option::weighted(0.3, prop::sample::select(vec![Effect::NoSchedule, Effect::PreferNoSchedule])),
        1..=3u8,
        prop_oneof![2 => Just(0u8), 1 => 1..8u8],
        prop_oneof![
            3 => Just(Team::Silent),
            1 => any::<bool>().prop_map(Team::Label),
            1 => Just(Team::Either),
            1 => Just(Team::Exists),
        ],
        option::weighted(0.2, 4..40i64),
        option::weighted(0.15, 1..5i64),
        option::weighted(0.1, 2..4u32),
    )
        .prop_map(|(weight, taint, capacity_types, zones, team, cpu_limit, node_limit, min_types)| {
            PoolRecipe { weight, taint, capacity_types, zones, team, cpu_limit, node_limit, min_types }
        })
}

fn any_node() -> impl Strategy<Value = NodeRecipe> {
    let bound = (0..6usize, 100..900i64, prop::bool::weighted(0.1), vec(any_feature(), 0..=1)).prop_map(
        |(app, cpu_millis, terminating, features)| BoundRecipe { app, cpu_millis, terminating, features },
    );
    (
        0..3usize,
        prop::sample::select(vec![2i64, 4, 8]),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.8),
        option::of(0..3usize),
        vec(bound, 0..=3),
    )
        .prop_map(|(zone, cpus, tainted, initialized, pool, pods)| NodeRecipe {
            zone,
            cpus,
            tainted,
            initialized,
            pool,
            pods,
        })
}

fn any_deployment() -> impl Strategy<Value = Deployment> {
    (
        1..=8u32,
        prop::sample::select(vec![100i64, 250, 500, 900, 1500, 3000]),
        prop::sample::select(vec![0i64, 1, 2, 6]),
        prop::bool::weighted(0.15),
        vec(any_feature(), 0..=3),
    )
        .prop_map(|(count, cpu_millis, memory_gib, other_namespace, features)| Deployment {
            count,
            cpu_millis,
            memory_gib,
            other_namespace,
            features,
        })
}

fn any_daemon() -> impl Strategy<Value = DaemonRecipe> {
    (50..300i64, option::weighted(0.3, any::<bool>()), any::<bool>(), option::weighted(0.2, 8080..8082u16))
        .prop_map(|(cpu_millis, arm, tolerates, port)| DaemonRecipe { cpu_millis, arm, tolerates, port })
}

pub(crate) fn any_recipe() -> impl Strategy<Value = Recipe> {
    (
        1..=3usize,
        vec(any_type(), 3..=12),
        vec(any_pool(), 1..=3),
        vec(any_node(), 0..=4),
        vec(any_deployment(), 1..=6),
        vec(any_daemon(), 0..=2),
    )
        .prop_map(|(zones, types, pools, nodes, deployments, daemons)| Recipe {
            zones,
            types,
            pools,
            nodes,
            deployments,
            daemons,
        })
}

/// Recipes with hostname spreads: more pods than usual, most of them with a spread and often no other constraint.
pub(crate) fn any_spreading_recipe() -> impl Strategy<Value = Recipe> {
    let spread = || {
        (1..=4u32, option::weighted(0.1, 2..=6u32))
            .prop_map(|(skew, min_domains)| Feature::SpreadHostOf { skew, min_domains })
    };
    let deployment = (any_deployment(), 1..=40u32, option::weighted(0.6, spread()), 0..=1usize).prop_map(
        |(mut deployment, count, spread, others)| {
            deployment.count = count;
            deployment.features.truncate(others);
            deployment.features.extend(spread);
            deployment
        },
    );
    (any_recipe(), vec(deployment, 1..=4), 0..=2usize, prop::bool::weighted(0.7)).prop_map(
        |(mut recipe, deployments, nodes, is_plain)| {
            recipe.deployments = deployments;
            recipe.nodes.truncate(nodes);
            if is_plain {
                recipe.nodes.clear();
                recipe.pools.truncate(1);
                recipe.deployments.iter_mut().for_each(|deployment| {
                    deployment.features.retain(|feature| matches!(feature, Feature::SpreadHostOf { .. }));
                });
            }
            recipe
        },
    )
}

/// Like [`any_recipe`], but with more existing nodes than pending pods.
pub(crate) fn any_crowded_recipe() -> impl Strategy<Value = Recipe> {
    (any_recipe(), vec(any_node(), 1..=8)).prop_map(|(mut recipe, nodes)| {
        recipe.deployments.iter_mut().for_each(|deployment| deployment.count = deployment.count.min(3));
        recipe.nodes = nodes;
        recipe
    })
}

impl Recipe {
    pub(crate) fn build(&self) -> Problem {
        let pools: Vec<NodePool> =
            self.pools.iter().enumerate().map(|(index, pool)| self.pool(index, pool)).collect();
        let nodes =
            self.nodes.iter().enumerate().map(|(index, node)| self.node(index, node, &pools)).collect();
        Problem {
            catalogs: vec![Arc::new(
                self.types.iter().enumerate().map(|(index, of)| self.instance_type(index, of)).collect(),
            )],
            pools,
            nodes,
            pods: self.deployments.iter().enumerate().map(|(index, of)| self.group(index, of)).collect(),
            daemons: self.daemons.iter().enumerate().map(|(index, of)| self.daemon(index, of)).collect(),
            well_known: labels::WELL_KNOWN.iter().map(|key| Arc::from(*key)).collect(),
            options: Options { effort: EFFORT, ..Options::default() },
        }
    }

    /// The recipe without combinations for which upstream plans pods that kube-scheduler rejects. Upstream's spread
    /// reads only the first required node affinity term and treats `PreferNoSchedule` like a hard taint. Upstream also
    /// lets the first pod of a self-affinity choose another domain if the pod cannot use the domains of the matching
    /// pods.
    pub(crate) fn without_upstream_deviations(mut self) -> Self {
        let apps = self.deployments.len();
        let bound: Vec<usize> =
            self.nodes.iter().flat_map(|node| &node.pods).map(|pod| pod.app % apps).collect();
        for (index, deployment) in self.deployments.iter_mut().enumerate() {
            deployment.features.retain(|feature| match feature {
                Feature::Near { zonal: true, app } => app % apps != 0 || !bound.contains(&index),
                _ => true,
            });
            for feature in &mut deployment.features {
                match feature {
                    Feature::TermsZones(sets) => sets.truncate(1),
                    Feature::SpreadZone { honor_taints, .. } => *honor_taints = false,
                    _ => {}
                }
            }
        }
        self
    }

    fn zone(&self, index: usize) -> &'static str {
        ZONES[index % self.zones]
    }

    fn zones_of(&self, bits: u8) -> Vec<&'static str> {
        (0..3).filter(|index| bits & (1 << index) != 0).map(|index| ZONES[index]).collect()
    }

    fn instance_type(&self, index: usize, recipe: &TypeRecipe) -> InstanceType {
        let name = format!("type-{index:02}");
        let arch = if recipe.arm { "arm64" } else { "amd64" };
        let price = recipe.cpus as f64
            * (0.02 + 0.005 * recipe.gib_per_cpu as f64)
            * (1.0 + 0.1 * recipe.price_tenths as f64);
        let offerings: Vec<Offering> = ZONES[..self.zones]
            .iter()
            .enumerate()
            .flat_map(|(zone_index, zone)| {
                [labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND].into_iter().enumerate().map(
                    move |(kind, capacity_type)| {
                        let factor = if kind == 0 { 0.3 + 0.05 * zone_index as f64 } else { 1.0 };
                        let mut offering = builders::offering(zone, capacity_type, price * factor);
                        offering.available = recipe.unavailable_in & (1 << (2 * zone_index + kind)) == 0;
                        offering
                    },
                )
            })
            .collect();
        let mut instance_type = builders::instance_type(&name, recipe.cpus, &ZONES[..self.zones], price);
        instance_type.requirements.replace(wants(labels::ARCH, &[arch]));
        instance_type.offerings = offerings;
        instance_type.capacity.set("memory", recipe.cpus * recipe.gib_per_cpu * GIB);
        instance_type.capacity.set("pods", 8 + recipe.cpus * 4);
        instance_type.volume_attachment_limits.insert("csi".into(), 2);
        instance_type
    }

    fn pool(&self, index: usize, recipe: &PoolRecipe) -> NodePool {
        let name = format!("pool-{index}");
        let mut pool = builders::pool(&name);
        pool.weight = recipe.weight;
        pool.taints = recipe.taint.iter().map(|effect| builders::taint("team", *effect)).collect();
        if index == 0 {
            pool.startup_taints = vec![builders::taint("starting", Effect::NoSchedule)];
        }
        let kinds: Vec<&str> = [labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND]
            .into_iter()
            .enumerate()
            .filter(|(kind, _)| recipe.capacity_types & (1 << kind) != 0)
            .map(|(_, name)| name)
            .collect();
        pool.requirements = all_of([wants(labels::CAPACITY_TYPE, &kinds)]);
        if recipe.zones != 0 {
            pool.requirements.add(wants(labels::ZONE, &self.zones_of(recipe.zones)));
        }
        match recipe.team {
            Team::Silent => {}
            Team::Label(red) => {
                pool.labels.insert(TEAM.into(), team(red).into());
            }
            Team::Either => pool.requirements.add(wants(TEAM, &["red", "blue"])),
            Team::Exists => pool.requirements.add(Requirement::exists(TEAM)),
        }
        if let Some(cpus) = recipe.cpu_limit {
            pool.limits.set("cpu", cpus * 1000);
        }
        if let Some(nodes) = recipe.node_limit {
            pool.limits.set("nodes", nodes);
        }
        if let Some(types) = recipe.min_types {
            pool.requirements.add(Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(types)));
        }
        pool
    }

    fn node(&self, index: usize, recipe: &NodeRecipe, pools: &[NodePool]) -> Node {
        let mut node = builders::node(&format!("node-{index}"), self.zone(recipe.zone), recipe.cpus);
        node.initialized = recipe.initialized;
        if recipe.tainted {
            node.taints = vec![builders::taint("team", Effect::NoSchedule)];
        }
        if let Some(pool) = recipe.pool {
            let pool = &pools[pool % pools.len()];
            node.pool = Some(pool.name.clone());
            node.labels.extend(pool.labels.clone());
        }
        node.volume_limits.insert("csi".into(), 2);
        node.pods = recipe
            .pods
            .iter()
            .map(|of| {
                let mut spec = builders::pod(&self.app(of.app), of.cpu_millis);
                of.features.iter().for_each(|feature| self.apply(feature, of.app, &mut spec));
                let mut bound = builders::bound(spec);
                bound.is_terminating = of.terminating;
                bound
            })
            .collect();
        node
    }

    fn app(&self, index: usize) -> String {
        format!("app-{}", index % self.deployments.len())
    }

    fn group(&self, index: usize, recipe: &Deployment) -> PodGroup {
        let app = self.app(index);
        let mut spec = builders::pod(&app, recipe.cpu_millis);
        spec.requests.set("memory", recipe.memory_gib * GIB);
        if recipe.other_namespace {
            spec.namespace = "other".into();
        }
        recipe.features.iter().for_each(|feature| self.apply(feature, index, &mut spec));
        builders::group(&app, spec, recipe.count)
    }

    fn daemon(&self, index: usize, recipe: &DaemonRecipe) -> Daemon {
        let mut daemon = builders::daemon(&format!("daemon-{index}"), recipe.cpu_millis);
        let spec = Arc::make_mut(&mut daemon.spec);
        if let Some(arm) = recipe.arm {
            spec.node_selector = all_of([wants(labels::ARCH, &[if arm { "arm64" } else { "amd64" }])]);
        }
        if recipe.tolerates {
            spec.tolerations =
                vec![Toleration { key: "".into(), operator: TolerationOperator::Exists, effect: None }];
        }
        spec.host_ports = recipe.port.iter().map(|number| builders::port(*number)).collect();
        daemon
    }

    fn apply(&self, feature: &Feature, own: usize, spec: &mut PodSpec) {
        let term = |zonal: &bool, app: &usize| -> PodAffinityTerm {
            let key = if *zonal { labels::ZONE } else { labels::HOSTNAME };
            near(key, &self.app(own + app))
        };
        let zone_sets = |sets: &[u8]| -> Vec<Requirements> {
            sets.iter().map(|bits| all_of([wants(labels::ZONE, &self.zones_of(*bits))])).collect()
        };
        let own_app = self.app(own);
        match feature {
            Feature::SelectZone(zone) => spec.node_selector.replace(wants(labels::ZONE, &[self.zone(*zone)])),
            Feature::SelectArch { arm } => {
                spec.node_selector.replace(wants(labels::ARCH, &[if *arm { "arm64" } else { "amd64" }]));
            }
            Feature::SelectCapacityType { spot } => spec.node_selector.replace(wants(
                labels::CAPACITY_TYPE,
                &[if *spot { labels::CAPACITY_TYPE_SPOT } else { labels::CAPACITY_TYPE_ON_DEMAND }],
            )),
            Feature::SelectTeam(red) => spec.node_selector.replace(wants(TEAM, &[team(*red)])),
            Feature::AvoidTeam(red) => spec.node_selector.replace(Requirement::new(
                TEAM,
                karpenter_model::requirements::Operator::NotIn,
                [team(*red)],
            )),
            Feature::TermsZones(sets) => spec.required_terms = zone_sets(sets),
            Feature::PreferZone(zone) => {
                spec.preferred_terms.push((1, all_of([wants(labels::ZONE, &[self.zone(*zone)])])));
            }
            Feature::SpreadZone { skew, min_domains, hard, honor_taints } => {
                let mut constraint = spread(labels::ZONE, &own_app, *skew);
                constraint.min_domains = if *hard { *min_domains } else { None };
                constraint.hard = *hard;
                constraint.honor_taints = *honor_taints;
                spec.spread.push(constraint);
            }
            Feature::SpreadHost { skew, hard } => {
                let mut constraint = spread(labels::HOSTNAME, &own_app, *skew);
                constraint.hard = *hard;
                spec.spread.push(constraint);
            }
            Feature::SpreadHostOf { skew, min_domains } => {
                let mut constraint = spread(labels::HOSTNAME, &own_app, *skew);
                constraint.min_domains = *min_domains;
                spec.spread.push(constraint);
            }
            Feature::SpreadCapacityType { skew } => {
                spec.spread.push(spread(labels::CAPACITY_TYPE, &own_app, *skew));
            }
            // kube-scheduler requires one pod to match all affinity terms, upstream checks each term separately; with a
            // single term both agree.
            Feature::Near { zonal, app } => spec.affinity = vec![term(zonal, app)],
            Feature::Apart { zonal, app } => spec.anti_affinity.push(term(zonal, app)),
            Feature::PreferNear { zonal, app } => spec.preferred_affinity.push((1, term(zonal, app))),
            Feature::PreferApart { zonal, app } => spec.preferred_anti_affinity.push((1, term(zonal, app))),
            Feature::Port(number) => {
                spec.host_ports.insert(builders::port(*number));
            }
            Feature::Tolerate => spec.tolerations.push(builders::tolerates("team")),
            Feature::VolumeZones(sets) => spec.volumes.alternatives = zone_sets(sets),
            Feature::Attach(count) => {
                spec.volumes.attachments = (0..*count)
                    .map(|volume| (Arc::from("csi"), Arc::from(format!("{own_app}-{volume}").as_str())))
                    .collect();
            }
        }
    }
}

fn team(red: bool) -> &'static str {
    if red { "red" } else { "blue" }
}
