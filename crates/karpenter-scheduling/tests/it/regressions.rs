//! Problems that once gave an invalid plan. Property tests found them; they were then reduced to the smallest problem
//! that shows the fault.
//!
//! A test marked `ignore` shows a fault that is not yet repaired; its text names the cause. The commit that repairs the
//! fault removes the mark.

use crate::support::outcomes;
use crate::support::recipes;

use std::sync::Arc;

use karpenter_model::problem::{Mode, Problem};
use karpenter_model::taints::Effect;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;
use outcomes::{after, in_mode, outcome, unschedulable};
use recipes::{
    BoundRecipe, DaemonRecipe, Deployment, Feature, NodeRecipe, PoolRecipe, Recipe, Team, TypeRecipe,
};

fn types(sizes: &[(i64, i64)]) -> Vec<TypeRecipe> {
    sizes
        .iter()
        .map(|&(cpus, gib_per_cpu)| TypeRecipe {
            cpus,
            gib_per_cpu,
            arm: false,
            price_tenths: 0,
            unavailable_in: 0,
        })
        .collect()
}

const SPOT: u8 = 1;
const ON_DEMAND: u8 = 2;

fn pool(capacity_types: u8) -> PoolRecipe {
    PoolRecipe {
        weight: 0,
        taint: None,
        capacity_types,
        zones: 0,
        team: Team::Silent,
        cpu_limit: None,
        node_limit: None,
        min_types: None,
    }
}

fn node(zone: usize, cpus: i64, pods: &[(usize, i64)]) -> NodeRecipe {
    let pods = pods
        .iter()
        .map(|&(app, cpu_millis)| BoundRecipe { app, cpu_millis, terminating: false, features: vec![] })
        .collect();
    NodeRecipe { zone, cpus, tainted: false, initialized: false, pool: None, pods }
}

fn pods(count: u32, cpu_millis: i64, memory_gib: i64, features: Vec<Feature>) -> Deployment {
    Deployment { count, cpu_millis, memory_gib, other_namespace: false, features }
}

fn zonal_spread(honor_taints: bool) -> Feature {
    Feature::SpreadZone { skew: 1, min_domains: None, hard: true, honor_taints }
}

fn recipe(zones: usize, types: Vec<TypeRecipe>, deployments: Vec<Deployment>) -> Recipe {
    Recipe { zones, types, pools: vec![pool(SPOT)], nodes: vec![], deployments, daemons: vec![] }
}

#[track_caller]
fn assert_valid(recipe: &Recipe) {
    for mode in [Mode::Compat, Mode::Cost] {
        let problem = in_mode(&recipe.build(), mode);
        let plan = schedule(&problem);
        let violations: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "{mode:?}: {}\n{:#?}",
            violations.join("\n"),
            outcome(&problem, &plan)
        );
    }
}

#[track_caller]
fn assert_order_does_not_matter(recipe: &Recipe) {
    for mode in [Mode::Compat, Mode::Cost] {
        let problem = in_mode(&recipe.build(), mode);
        let mut other: Problem = problem.clone();
        let mut catalog = (*problem.catalogs[0]).clone();
        catalog.reverse();
        catalog.iter_mut().for_each(|instance_type| instance_type.offerings.reverse());
        other.catalogs = vec![Arc::new(catalog)];
        other.pools.reverse();
        other.pods.reverse();
        other.daemons.reverse();
        assert_eq!(outcome(&problem, &schedule(&problem)), outcome(&other, &schedule(&other)), "{mode:?}");
    }
}

#[test]
fn spread_counts_zones_of_every_required_term() {
    // The planner placed both pods in zone-a, although zone-b is allowed as well, and has a node without pods.
    assert_valid(&recipe(
        2,
        types(&[(1, 2), (1, 2), (1, 2)]),
        vec![
            pods(2, 100, 0, vec![zonal_spread(false), Feature::TermsZones(vec![0b01, 0b10])]),
            pods(1, 100, 0, vec![Feature::SelectZone(1)]),
        ],
    ));
}

#[test]
fn preferred_taint_does_not_exclude_zones_from_a_spread() {
    let mut recipe = recipe(
        3,
        types(&[(1, 2), (1, 2), (1, 8)]),
        vec![
            pods(1, 100, 0, vec![]),
            pods(3, 100, 0, vec![Feature::Apart { zonal: true, app: 3 }]),
            pods(3, 100, 0, vec![zonal_spread(true)]),
        ],
    );
    recipe.pools = vec![
        PoolRecipe { taint: Some(Effect::PreferNoSchedule), ..pool(SPOT) },
        PoolRecipe { zones: 0b010, ..pool(SPOT) },
    ];
    recipe.nodes = vec![node(0, 8, &[])];
    assert_valid(&recipe);
}

#[test]
fn self_affinity_uses_one_zone_only() {
    let mut recipe = recipe(
        2,
        types(&[(1, 2), (1, 2), (2, 2)]),
        vec![pods(1, 100, 0, vec![Feature::Near { zonal: true, app: 0 }, Feature::SelectZone(1)])],
    );
    recipe.nodes = vec![node(0, 2, &[(0, 100)])];
    assert_valid(&recipe);
}

#[test]
fn equal_offerings_are_chosen_by_name() {
    let mut recipe = recipe(3, types(&[(1, 2), (1, 2), (1, 4)]), vec![pods(1, 100, 0, vec![])]);
    recipe.pools = vec![pool(ON_DEMAND)];
    assert_order_does_not_matter(&recipe);
}

#[test]
fn price_does_not_depend_on_input_order() {
    let daemon = |cpu_millis| DaemonRecipe { cpu_millis, arm: None, tolerates: false, port: None };
    let mut recipe = recipe(
        1,
        types(&[(4, 8), (8, 2), (1, 2)]),
        vec![
            pods(1, 100, 0, vec![]),
            pods(3, 500, 0, vec![Feature::SpreadHost { skew: 1, hard: false }]),
            pods(1, 900, 0, vec![]),
            pods(1, 100, 0, vec![]),
        ],
    );
    recipe.pools = vec![pool(SPOT), PoolRecipe { weight: 10, cpu_limit: Some(4), ..pool(SPOT) }];
    recipe.daemons = vec![daemon(176), daemon(125)];
    assert_order_does_not_matter(&recipe);
}

#[test]
fn cost_mode_tries_next_pool_if_min_values_are_unmet() {
    let mut recipe =
        recipe(1, types(&[(16, 2), (1, 2), (1, 2)]), vec![pods(1, 100, 0, vec![]), pods(1, 100, 2, vec![])]);
    recipe.pools = vec![PoolRecipe { min_types: Some(2), ..pool(SPOT) }, pool(ON_DEMAND)];
    let problem = recipe.build();
    let compat = schedule(&in_mode(&problem, Mode::Compat));
    let cost = schedule(&in_mode(&problem, Mode::Cost));
    assert_eq!(unschedulable(&problem, &compat), Default::default());
    assert_eq!(unschedulable(&problem, &cost), Default::default());
}

#[test]
fn pod_with_affinity_to_pending_pod_is_planned() {
    let recipe = recipe(
        3,
        types(&[(1, 2), (1, 2), (4, 2)]),
        vec![
            pods(1, 3000, 0, vec![Feature::Near { zonal: true, app: 1 }]),
            pods(1, 100, 0, vec![]),
            pods(1, 100, 0, vec![]),
        ],
    );
    let problem = in_mode(&recipe.build(), Mode::Cost);
    let next = after(&problem, &schedule(&problem));
    assert_eq!(outcome(&next, &schedule(&next)).new_nodes, vec![]);
}

#[test]
fn cost_mode_respects_spread_over_capacity_type() {
    let mut recipe = recipe(
        1,
        types(&[(2, 2), (8, 2), (2, 2)]),
        vec![
            pods(
                3,
                1500,
                0,
                vec![
                    Feature::PreferApart { zonal: false, app: 1 },
                    Feature::SpreadZone { skew: 1, min_domains: None, hard: false, honor_taints: false },
                ],
            ),
            pods(8, 100, 2, vec![Feature::SpreadCapacityType { skew: 2 }]),
            pods(5, 1500, 1, vec![]),
        ],
    );
    recipe.pools =
        vec![PoolRecipe { weight: 50, cpu_limit: Some(8), min_types: Some(3), ..pool(SPOT) }, pool(SPOT)];
    recipe.nodes = vec![node(0, 2, &[(3, 367)]), node(0, 2, &[(0, 100), (3, 267)])];
    recipe.daemons = vec![DaemonRecipe { cpu_millis: 134, arm: None, tolerates: false, port: None }];
    assert_valid(&recipe);
}

#[test]
fn cost_mode_keeps_zone_of_affinity() {
    let mut recipe = recipe(
        3,
        types(&[(8, 2), (4, 2), (1, 2)]),
        vec![
            pods(5, 250, 0, vec![]),
            pods(
                4,
                900,
                0,
                vec![Feature::SpreadZone { skew: 1, min_domains: None, hard: false, honor_taints: false }],
            ),
            pods(1, 1500, 0, vec![]),
            pods(4, 100, 6, vec![Feature::Near { zonal: true, app: 1 }]),
            pods(4, 250, 1, vec![Feature::Port(8080)]),
        ],
    );
    recipe.types[1] = TypeRecipe { price_tenths: -1, unavailable_in: 138, ..recipe.types[1].clone() };
    recipe.pools = vec![pool(ON_DEMAND)];
    recipe.nodes = vec![node(0, 4, &[(2, 451)])];
    assert_valid(&recipe);
}

#[test]
fn cost_mode_keeps_pod_that_affinities_select() {
    let mut recipe = recipe(
        3,
        types(&[(1, 2), (2, 2), (2, 4)]),
        vec![
            pods(1, 100, 0, vec![]),
            pods(4, 1500, 0, vec![]),
            pods(2, 100, 6, vec![]),
            pods(5, 1500, 0, vec![Feature::Near { zonal: true, app: 2 }]),
            pods(
                2,
                250,
                0,
                vec![Feature::Apart { zonal: true, app: 3 }, Feature::SpreadCapacityType { skew: 1 }],
            ),
        ],
    );
    recipe.nodes = vec![node(0, 2, &[]), node(0, 2, &[(5, 100)]), node(1, 8, &[(5, 100)])];
    assert_valid(&recipe);
}

#[test]
fn preferred_anti_affinity_is_relaxed() {
    let mut recipe = recipe(
        1,
        types(&[(2, 4), (4, 8), (1, 2)]),
        vec![pods(2, 3000, 0, vec![Feature::PreferApart { zonal: true, app: 0 }])],
    );
    recipe.nodes = vec![node(0, 4, &[])];
    for mode in [Mode::Compat, Mode::Cost] {
        let problem = in_mode(&recipe.build(), mode);
        assert_eq!(
            schedule(&problem).unschedulable.len(),
            0,
            "{mode:?}: {:?}",
            schedule(&problem).unschedulable
        );
    }
}
