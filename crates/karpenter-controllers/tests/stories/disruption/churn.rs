//! Tests that disruption converges. Simulated hours in which workloads scale, instances disappear and NodePools change
//! are followed by hours without changes. In these, disruption must quickly reach a price near the lower bound and then
//! stop.
//!
//! Invariants are checked on every watch event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_controllers::decision_journal::JournalEntry;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::Settings;
use karpenter_runtime::store::{Change, Store, keep_all};
use karpenter_state::{CatalogChoice, Objects, assemble_disruption, read_dump};
use serde_json::{Value, json};

use crate::disruption::support::{anti_affinity, is_settled};
use crate::disruption::world::{World, has_disrupted_taint, is_of, is_running, label, node_names, status_of};

/// The maximum ratio of the fleet's price to the lower bound. A fleet of a few nodes cannot get closer, for three
/// reasons: the budget allows three disruptions at a time; spot nodes are not replaced one for one, because there are
/// too few instance types; and some pods do not fill a node, which even a full repack could not avoid.
const PRICE_RATIO_MAX: f64 = 1.22;
/// The disruption budget: how many nodes may be disrupted at the same time.
const BUDGET: usize = 3;
/// The number of replicas of the workload that is never scaled. Each replica runs on its own node, and its
/// PodDisruptionBudget allows one replica to be unavailable.
const STEADY: usize = 4;

/// Checks invariants on every watch event and records violations.
#[derive(Clone, Default)]
struct InvariantChecker {
    violations: Arc<Mutex<BTreeSet<String>>>,
    /// Nodes whose instances disappeared; budgets do not apply to them.
    terminated_externally: Arc<Mutex<BTreeSet<String>>>,
    ledger: Arc<Mutex<PriceLedger>>,
}

/// Prices and replacements of all NodeClaims that were observed.
#[derive(Default)]
struct PriceLedger {
    price_of: BTreeMap<String, f64>,
    /// NodeClaims of one command, by the name of the command.
    replacements: BTreeMap<String, Replacement>,
}

#[derive(Default)]
struct Replacement {
    old: BTreeSet<String>,
    new: BTreeSet<String>,
    launches: usize,
}

impl PriceLedger {
    fn record(&mut self, claim: &NodeClaim) {
        let name = claim.metadata.name.clone().unwrap_or_default();
        if let Some(price) = price_of(claim) {
            self.price_of.insert(name.clone(), price);
        }
        let annotations = claim.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get("karpenter.sh/replaces")) else { return };
        let replaces: Value = serde_json::from_str(text).expect("JSON");
        if replaces["method"] == "Drift" {
            return;
        }
        let command = replaces["command"].as_str().expect("a name").to_owned();
        let replacement = self.replacements.entry(command).or_default();
        replacement.old.extend(replaces["claims"].as_object().expect("claims").keys().cloned());
        replacement.new.insert(name);
        replacement.launches = replaces["launches"].as_u64().expect("a number") as usize;
    }

    /// Asserts that every completed replacement lowered the price per hour. Returns the number of replacements.
    fn check_prices(&self) -> usize {
        let price = |claims: &BTreeSet<String>| -> Option<f64> {
            claims.iter().map(|name| self.price_of.get(name)).sum()
        };
        let mut seen = 0;
        for (command, replacement) in
            self.replacements.iter().filter(|(_, one)| one.new.len() == one.launches)
        {
            let (Some(before), Some(after)) = (price(&replacement.old), price(&replacement.new)) else {
                continue;
            };
            assert!(after < before, "{command}: {before} $/h before, {after} $/h after");
            seen += 1;
        }
        seen
    }
}

fn price_of(claim: &NodeClaim) -> Option<f64> {
    label(claim, "eks-node-viewer/instance-price").parse().ok()
}

impl InvariantChecker {
    async fn watch(&self, world: &World) {
        let (nodes, _) = Store::<Node>::watch(&world.client, keep_all, &[]);
        let (pods, _) = Store::<Pod>::watch(&world.client, keep_all, &[]);
        nodes.synced().await;
        pods.synced().await;
        let (checker, seen, clock) = (self.clone(), nodes.clone(), world.clock);
        nodes.observe(move |_: &Change<Node>| {
            let terminated_externally =
                checker.terminated_externally.lock().unwrap_or_else(PoisonError::into_inner);
            let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
            let disrupted: Vec<String> = (seen.list().iter())
                .filter(|node| has_disrupted_taint(node) && !terminated_externally.contains(&name(node)))
                .map(|node| name(node))
                .collect();
            if disrupted.len() > BUDGET {
                checker.record_violation(format!(
                    "{}: {} nodes go at once: {disrupted:?}",
                    clock.now(),
                    disrupted.len()
                ));
            }
        });
        let (claims, _) = Store::<NodeClaim>::watch(&world.client, keep_all, &[]);
        claims.synced().await;
        let ledger = self.ledger.clone();
        claims.observe(move |change: &Change<NodeClaim>| {
            if let Change::Applied { new, .. } = change {
                ledger.lock().unwrap_or_else(PoisonError::into_inner).record(new);
            }
        });
        let (checker, seen) = (self.clone(), pods.clone());
        pods.observe(move |_: &Change<Pod>| {
            let ready = seen.list().iter().filter(|pod| is_of(pod, "steady") && is_running(pod)).count();
            if ready + 1 < STEADY {
                checker
                    .record_violation(format!("{}: {ready} pods of a budget that lets one go", clock.now()));
            }
        });
    }

    fn record_violation(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }
}

/// A generator of pseudo-random numbers. With the same seed it produces the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

async fn begin() -> World {
    let world = World::start_with(|options| options.feature_gates.spot_to_spot_consolidation = true).await;
    let requirement = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let disruption = json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": BUDGET.to_string()}]});
    let requirements = json!([
        requirement("karpenter.sh/capacity-type", &["on-demand", "spot"]),
        requirement("kubernetes.io/os", &["linux"]),
        requirement("kubernetes.io/arch", &["amd64"]),
        requirement("karpenter.kwok.sh/instance-family", &["c", "s"]),
        requirement("karpenter.kwok.sh/instance-cpu", &["1", "2", "4", "8"]),
    ]);
    world.pool(disruption, json!({"spec": {"requirements": requirements}})).await;
    let mut steady = anti_affinity();
    steady["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
    world.deploy("steady", STEADY, 900, steady).await;
    world.pod_budget("steady", json!({"maxUnavailable": 1})).await;
    for (name, millis) in [("small", 250), ("middle", 700), ("large", 1800)] {
        world.deploy(name, 3, millis, json!({})).await;
    }
    world.until_running("steady", STEADY).await;
    world
}

/// Simulates an hour in which something changes every few minutes. Returns how often the price of the settled fleet
/// fell.
async fn busy_hour(world: &World, checker: &InvariantChecker, random: &mut Random, hour: u64) -> usize {
    let mut saved = 0;
    if hour.is_multiple_of(3) {
        let labels =
            json!({"spec": {"template": {"metadata": {"labels": {"generation": format!("g{hour}")}}}}});
        world.merge::<NodePool>("general", labels).await;
    }
    for _ in 0..12 {
        match random.below(4) {
            0 => {
                let nodes = world.nodes().await;
                let spot: Vec<&Node> = nodes
                    .iter()
                    .filter(|node| label(*node, "karpenter.sh/capacity-type") == "spot")
                    .collect();
                if spot.is_empty() {
                    continue;
                }
                let node = spot[random.below(spot.len() as u64) as usize];
                let name = node.metadata.name.clone().unwrap_or_default();
                checker.terminated_externally.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                world.cloud.terminate_externally(&id).await.expect("terminated");
            }
            _ => {
                let (name, most) = [("small", 20), ("middle", 10), ("large", 5)][random.below(3) as usize];
                world.scale(name, random.below(most) as usize).await;
            }
        }
        saved += savings(world, checker, 120 + random.below(360) as i64).await;
    }
    saved
}

/// Evaluates a dump of the cluster without the controller. Returns the price of the fleet, its lower bound, and the
/// number of commands that this evaluation finds.
async fn independent_evaluation(world: &World) -> (f64, f64, usize) {
    let objects = Objects {
        node_pools: world.list::<NodePool>().await,
        kwok_node_classes: world.list::<KWOKNodeClass>().await,
        node_claims: world.list::<NodeClaim>().await,
        nodes: world.list::<Node>().await,
        pods: world.list::<Pod>().await.into_iter().map(Into::into).collect(),
        replica_sets: world.list::<ReplicaSet>().await,
        pod_disruption_budgets: world.list::<PodDisruptionBudget>().await,
        ..Objects::default()
    };
    let dump = read_dump(objects, &CatalogChoice::Kwok, world.clock.now());
    let cluster = assemble_disruption(&dump.live, &dump.input).cluster;
    let price = cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum();
    let evaluation = evaluate(&cluster, &Settings { spot_to_spot: true, ..Settings::default() });
    let bound = evaluation.outcomes.iter().find_map(|outcome| outcome.lower_bound_per_hour);
    (price, bound.unwrap_or(0.0), evaluation.commands.len())
}

/// The fleet at a moment when no command is in progress.
#[derive(Debug, Clone, Copy)]
struct SettledFleet {
    /// Sum over all NodeClaims, in $/h.
    price: f64,
    /// Number of the last journal entry.
    decision: u64,
}

impl SettledFleet {
    /// The state of the fleet if it is settled; `None` while a command is in progress.
    async fn observe(world: &World, checker: &InvariantChecker) -> Option<Self> {
        let claims = world.claims().await;
        let nodes = node_names(world.nodes().await.iter());
        let is_drifted = claims.iter().any(|claim| status_of(claim, "Drifted") == "True");
        let is_lost =
            !checker.terminated_externally.lock().unwrap_or_else(PoisonError::into_inner).is_disjoint(&nodes);
        if is_drifted || is_lost || !is_settled(world).await || !world.pods().await.iter().all(is_running) {
            return None;
        }
        // Reading the state takes several requests, and the cluster may change in between.
        let names: BTreeSet<String> = claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect();
        if world.claim_names().await != names {
            return None;
        }
        let price = claims.iter().map(|claim| price_of(claim).expect("a price")).sum();
        let entries = world.operator.context().journal.entries_after(0);
        // The journal contains a command before its effects are visible in objects, so a recent entry means that the
        // fleet is not settled.
        let is_fresh = |entry: &JournalEntry| world.clock.now().duration_since(entry.at).as_secs() < 20;
        if entries.last().is_some_and(is_fresh) {
            return None;
        }
        Some(Self { price, decision: entries.last().map_or(0, |entry| entry.number) })
    }

    /// Whether consolidation commands, and no other commands, were executed since `before`. `None` if there were other
    /// commands.
    fn is_saved_since(self, world: &World, before: Self) -> Option<bool> {
        let entries = world.operator.context().journal.entries_after(before.decision);
        let is_saving = |entry: &JournalEntry| {
            entry.why.iter().any(|why| why == "reason Underutilized" || why == "reason Empty")
        };
        let begun: Vec<&JournalEntry> = entries
            .iter()
            .filter(|entry| {
                !["do not disrupt ", "roll back "].iter().any(|start| entry.what.starts_with(start))
            })
            .collect();
        if begun.is_empty() {
            return Some(false);
        }
        begun.iter().all(|entry| is_saving(entry)).then_some(true)
    }
}

/// Observes the cluster for this many seconds without changing it. Whenever the fleet is settled, its price must be the
/// previous one, or lower if consolidation happened in between. Returns how often it was lower.
async fn savings(world: &World, checker: &InvariantChecker, seconds: i64) -> usize {
    let until = world.seconds() + seconds;
    // The controllers need some seconds to observe the preceding changes.
    world.sleep(5).await;
    let (mut last, mut saved): (Option<SettledFleet>, usize) = (None, 0);
    while world.seconds() < until {
        let now = SettledFleet::observe(world, checker).await;
        if let (Some(before), Some(after)) = (last, now) {
            let prices = (before.price, after.price);
            match after.is_saved_since(world, before) {
                Some(true) => {
                    assert!(after.price < before.price, "{prices:?}: {:#?}", world.decisions().last());
                    saved += 1;
                }
                Some(false) => {
                    assert!((after.price - before.price).abs() < 1e-9, "{prices:?} without a command")
                }
                None => {}
            }
        }
        last = now.or(last);
        world.sleep(20.min(until - world.seconds())).await;
    }
    saved
}

/// Simulates hours without changes. The fleet must settle within the first half hour, and nothing may be disrupted
/// after that. Returns how often the settled fleet became cheaper.
async fn quiet_hours(world: &World, checker: &InvariantChecker, hour: u64, hours: i64) -> usize {
    let began = world.seconds();
    let saved = savings(world, checker, 1800).await;
    let last = |world: &World| {
        let entries = world.operator.context().journal.entries_after(0);
        entries.last().map(|entry| (entry.number, entry.what.clone()))
    };
    let (done, claims) = (last(world), world.claim_names().await);
    assert!(is_settled(world).await, "hour {hour}: {:#?}", world.decisions().last());
    let pods = world.pods().await;
    let waiting = pods.iter().filter(|pod| !is_running(pod)).count();
    assert_eq!(waiting, 0, "hour {hour}: pending pods");
    world.sleep(began + hours * 3600 - world.seconds()).await;
    assert_eq!(last(world), done, "hour {hour}: no decision may follow");
    assert_eq!(world.claim_names().await, claims, "hour {hour}");
    let (price, bound, commands) = independent_evaluation(world).await;
    assert_eq!(commands, 0, "hour {hour}: an independent evaluation finds no command either");
    assert!(bound > 0.0 && price <= bound * PRICE_RATIO_MAX, "hour {hour}: {price} $/h, lower bound {bound}");
    saved
}

/// Simulates `times` times one busy hour and then `quiet` quiet hours. Returns the number of replacements, and how
/// often the price of the settled fleet fell.
async fn run(seed: u64, times: u64, quiet: i64) -> (usize, usize) {
    let world = begin().await;
    let checker = InvariantChecker::default();
    checker.watch(&world).await;
    let mut random = Random(seed);
    let mut saved = 0;
    for time in 0..times {
        let hour = time * (1 + quiet as u64);
        saved += busy_hour(&world, &checker, &mut random, seed + time).await;
        saved += quiet_hours(&world, &checker, hour + 1, quiet).await;
        let violations = checker.violations.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(violations.is_empty(), "{violations:#?}");
    }
    let replaced = checker.ledger.lock().unwrap_or_else(PoisonError::into_inner).check_prices();
    world.stop().await;
    (replaced, saved)
}

/// One busy hour every six hours.
#[tokio::test(start_paused = true)]
async fn fleet_settles_near_lower_bound_over_a_day_of_one_process() {
    let (replaced, saved) = run(13, 4, 5).await;
    assert!(replaced > 0 && saved > 0, "{replaced} replacements, {saved} times cheaper");
}

/// Tests with one busy and one quiet hour. Each seed is a separate test, so that no test takes long.
macro_rules! two_hours {
    ($($name:ident: $seed:literal),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                run($seed, 1, 1).await;
            }
        )*
    };
}

two_hours! {
    two_hours_from_noon: 1,
    two_hours_from_two: 2,
    two_hours_from_four: 3,
    two_hours_from_six: 4,
    two_hours_from_eight: 5,
    two_hours_from_ten: 6,
    two_hours_from_midnight: 7,
    two_hours_from_two_at_night: 8,
    two_hours_from_four_at_night: 9,
    two_hours_before_dawn: 10,
    two_hours_of_the_morning: 11,
    two_hours_before_noon: 12,
}
