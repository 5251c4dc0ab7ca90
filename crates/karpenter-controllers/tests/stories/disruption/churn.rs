//! Hours of workloads that grow and shrink, machines that vanish and pools that change, and in between hours in which
//! nothing changes: then everything comes to rest soon, at a price near the least possible, and stays at rest.
//!
//! What must hold at every moment is looked at with every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_cluster::mirror::{Change, Mirror, keep_all};
use karpenter_controllers::journal::Entry;
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::Settings;
use karpenter_state::{CatalogChoice, Objects, assemble_fleet, read_dump};
use serde_json::{Value, json};

use crate::disruption::support::{apart, is_at_rest};
use crate::disruption::world::{World, is_closed, is_of, is_running, label, node_names, status_of};

/// What a fleet of a handful of nodes may cost more than the least possible: only three of them may go at a time, and spot
/// nodes are not replaced one for one because there are too few types to choose from. Pods that fill no node add to that: what
/// planning all of them anew would cost is good enough.
const DEARER_MOST: f64 = 1.22;
/// Nodes that may go at once.
const BUDGET: usize = 3;
/// Pods of the workload that is never scaled, each on a node of its own; one may be missing.
const STEADY: usize = 4;

/// What went wrong, in words, and what does not count.
#[derive(Clone, Default)]
struct Watchman {
    wrong: Arc<Mutex<BTreeSet<String>>>,
    /// Nodes whose machines vanished: they go whatever budgets say.
    vanished: Arc<Mutex<BTreeSet<String>>>,
    books: Arc<Mutex<Books>>,
}

/// What claims say of themselves while they are there.
#[derive(Default)]
struct Books {
    price_of: BTreeMap<String, f64>,
    /// Claims for others, by command.
    exchanges: BTreeMap<String, Exchange>,
}

#[derive(Default)]
struct Exchange {
    old: BTreeSet<String>,
    new: BTreeSet<String>,
    launches: usize,
}

impl Books {
    fn enter(&mut self, claim: &NodeClaim) {
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
        let exchange = self.exchanges.entry(command).or_default();
        exchange.old.extend(replaces["claims"].as_object().expect("claims").keys().cloned());
        exchange.new.insert(name);
        exchange.launches = replaces["launches"].as_u64().expect("a number") as usize;
    }

    /// Every exchange that was carried out cost less per hour afterwards; says how many there were.
    fn audit(&self) -> usize {
        let price = |claims: &BTreeSet<String>| -> Option<f64> {
            claims.iter().map(|name| self.price_of.get(name)).sum()
        };
        let mut seen = 0;
        for (command, exchange) in self.exchanges.iter().filter(|(_, one)| one.new.len() == one.launches) {
            let (Some(before), Some(after)) = (price(&exchange.old), price(&exchange.new)) else { continue };
            assert!(after < before, "{command}: {before} $/h before, {after} $/h after");
            seen += 1;
        }
        seen
    }
}

fn price_of(claim: &NodeClaim) -> Option<f64> {
    label(claim, "eks-node-viewer/instance-price").parse().ok()
}

impl Watchman {
    async fn watch(&self, world: &World) {
        let (nodes, _) = Mirror::<Node>::watch(&world.client, keep_all, &[]);
        let (pods, _) = Mirror::<Pod>::watch(&world.client, keep_all, &[]);
        nodes.synced().await;
        pods.synced().await;
        let (watchman, seen, clock) = (self.clone(), nodes.clone(), world.clock);
        nodes.observe(move |_: &Change<Node>| {
            let vanished = watchman.vanished.lock().unwrap_or_else(PoisonError::into_inner);
            let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
            let going: Vec<String> = (seen.list().iter())
                .filter(|node| is_closed(node) && !vanished.contains(&name(node)))
                .map(|node| name(node))
                .collect();
            if going.len() > BUDGET {
                watchman.say(format!("{}: {} nodes go at once: {going:?}", clock.now(), going.len()));
            }
        });
        let (claims, _) = Mirror::<NodeClaim>::watch(&world.client, keep_all, &[]);
        claims.synced().await;
        let books = self.books.clone();
        claims.observe(move |change: &Change<NodeClaim>| {
            if let Change::Applied { new, .. } = change {
                books.lock().unwrap_or_else(PoisonError::into_inner).enter(new);
            }
        });
        let (watchman, seen) = (self.clone(), pods.clone());
        pods.observe(move |_: &Change<Pod>| {
            let ready = seen.list().iter().filter(|pod| is_of(pod, "steady") && is_running(pod)).count();
            if ready + 1 < STEADY {
                watchman.say(format!("{}: {ready} pods of a budget that lets one go", clock.now()));
            }
        });
    }

    fn say(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }
}

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
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
    let mut steady = apart();
    steady["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
    world.deploy("steady", STEADY, 900, steady).await;
    world.pod_budget("steady", json!({"maxUnavailable": 1})).await;
    for (name, millis) in [("small", 250), ("middle", 700), ("large", 1800)] {
        world.deploy(name, 3, millis, json!({})).await;
    }
    world.until_running("steady", STEADY).await;
    world
}

/// An hour in which something happens every few minutes. Says how often everything came to rest for less money.
async fn busy_hour(world: &World, watchman: &Watchman, dice: &mut Dice, hour: u64) -> usize {
    let mut saved = 0;
    if hour.is_multiple_of(3) {
        let labels =
            json!({"spec": {"template": {"metadata": {"labels": {"generation": format!("g{hour}")}}}}});
        world.merge::<NodePool>("general", labels).await;
    }
    for _ in 0..12 {
        match dice.below(4) {
            0 => {
                let nodes = world.nodes().await;
                let spot: Vec<&Node> = nodes
                    .iter()
                    .filter(|node| label(*node, "karpenter.sh/capacity-type") == "spot")
                    .collect();
                if spot.is_empty() {
                    continue;
                }
                let node = spot[dice.below(spot.len() as u64) as usize];
                let name = node.metadata.name.clone().unwrap_or_default();
                watchman.vanished.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                world.cloud.vanish(&id).await.expect("vanished");
            }
            _ => {
                let (name, most) = [("small", 20), ("middle", 10), ("large", 5)][dice.below(3) as usize];
                world.scale(name, dice.below(most) as usize).await;
            }
        }
        saved += savings(world, watchman, 120 + dice.below(360) as i64).await;
    }
    saved
}

/// What the fleet costs and cannot cost less than, and what could still be done, by a second opinion from a dump.
async fn second_opinion(world: &World) -> (f64, f64, usize) {
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
    let fleet = assemble_fleet(&dump.live, &dump.input).fleet;
    let price = fleet.machines.iter().map(|machine| machine.price_per_hour).sum();
    let proposal = propose(&fleet, &Settings { spot_to_spot: true, ..Settings::default() });
    let bound = proposal.outcomes.iter().find_map(|outcome| outcome.lower_bound_per_hour);
    (price, bound.unwrap_or(0.0), proposal.commands.len())
}

/// Everything at rest.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Of all claims that are there.
    price: f64,
    /// The last decision before.
    decision: u64,
}

impl Rest {
    /// `None` while something is under way.
    async fn look(world: &World, watchman: &Watchman) -> Option<Self> {
        let claims = world.claims().await;
        let nodes = node_names(world.nodes().await.iter());
        let is_drifted = claims.iter().any(|claim| status_of(claim, "Drifted") == "True");
        let is_lost = !watchman.vanished.lock().unwrap_or_else(PoisonError::into_inner).is_disjoint(&nodes);
        if is_drifted || is_lost || !is_at_rest(world).await || !world.pods().await.iter().all(is_running) {
            return None;
        }
        // One look takes several requests, and others are at work in between.
        let names: BTreeSet<String> = claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect();
        if world.claim_names().await != names {
            return None;
        }
        let price = claims.iter().map(|claim| price_of(claim).expect("a price")).sum();
        let entries = world.operator.context().journal.entries_after(0);
        // A command is written down before anything of it is to be seen.
        let is_fresh = |entry: &Entry| world.clock.now().duration_since(entry.at).as_secs() < 20;
        if entries.last().is_some_and(is_fresh) {
            return None;
        }
        Some(Self { price, decision: entries.last().map_or(0, |entry| entry.number) })
    }

    /// Whether it was commands alone that came between, and all of them to save money.
    fn is_saved_since(self, world: &World, before: Self) -> Option<bool> {
        let entries = world.operator.context().journal.entries_after(before.decision);
        let is_saving = |entry: &Entry| {
            entry.why.iter().any(|why| why == "reason Underutilized" || why == "reason Empty")
        };
        let begun: Vec<&Entry> = entries.iter().filter(|entry| !entry.what.starts_with("keep ")).collect();
        if begun.is_empty() {
            return Some(false);
        }
        begun.iter().all(|entry| is_saving(entry)).then_some(true)
    }
}

/// So many seconds in which nobody but the controllers does anything: whenever everything is at rest, all claims together
/// cost as much as the last time, and less if that was to be saved. Says how often it was less.
async fn savings(world: &World, watchman: &Watchman, seconds: i64) -> usize {
    let until = world.seconds() + seconds;
    // What was changed before has been noticed.
    world.sleep(5).await;
    let (mut last, mut saved): (Option<Rest>, usize) = (None, 0);
    while world.seconds() < until {
        let now = Rest::look(world, watchman).await;
        if let (Some(before), Some(after)) = (last, now) {
            let prices = (before.price, after.price);
            match after.is_saved_since(world, before) {
                Some(true) => {
                    assert!(after.price < before.price, "{prices:?}: {:#?}", world.decisions().last());
                    saved += 1;
                }
                Some(false) => assert!((after.price - before.price).abs() < 1e-9, "{prices:?} for no reason"),
                None => {}
            }
        }
        last = now.or(last);
        world.sleep(20.min(until - world.seconds())).await;
    }
    saved
}

/// Hours in which nothing changes: at rest within the first half of an hour, and after that nothing is done. Says how often
/// everything came to rest for less money.
async fn quiet_hours(world: &World, watchman: &Watchman, hour: u64, hours: i64) -> usize {
    let began = world.seconds();
    let saved = savings(world, watchman, 1800).await;
    let last = |world: &World| {
        let entries = world.operator.context().journal.entries_after(0);
        entries.last().map(|entry| (entry.number, entry.what.clone()))
    };
    let (done, claims) = (last(world), world.claim_names().await);
    assert!(is_at_rest(world).await, "hour {hour}: {:#?}", world.decisions().last());
    let pods = world.pods().await;
    let waiting = pods.iter().filter(|pod| !is_running(pod)).count();
    assert_eq!(waiting, 0, "hour {hour}: pods without a place");
    world.sleep(began + hours * 3600 - world.seconds()).await;
    assert_eq!(last(world), done, "hour {hour}: nobody decided anything");
    assert_eq!(world.claim_names().await, claims, "hour {hour}");
    let (price, bound, commands) = second_opinion(world).await;
    assert_eq!(commands, 0, "hour {hour}: a second opinion finds nothing to do either");
    assert!(bound > 0.0 && price <= bound * DEARER_MOST, "hour {hour}: {price} $/h, at least {bound}");
    saved
}

/// So many times a busy hour and so many quiet ones in one world. Says how often nodes were exchanged for cheaper ones, and
/// how often the price of everything was seen to fall.
async fn live_through(seed: u64, times: u64, quiet: i64) -> (usize, usize) {
    let world = begin().await;
    let watchman = Watchman::default();
    watchman.watch(&world).await;
    let mut dice = Dice(seed);
    let mut saved = 0;
    for time in 0..times {
        let hour = time * (1 + quiet as u64);
        saved += busy_hour(&world, &watchman, &mut dice, seed + time).await;
        saved += quiet_hours(&world, &watchman, hour + 1, quiet).await;
        let wrong = watchman.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
    let exchanged = watchman.books.lock().unwrap_or_else(PoisonError::into_inner).audit();
    world.stop().await;
    (exchanged, saved)
}

/// A busy hour every six hours.
#[tokio::test(start_paused = true)]
async fn a_day_in_the_life_of_one_process() {
    let (exchanged, saved) = live_through(13, 4, 5).await;
    assert!(exchanged > 0 && saved > 0, "{exchanged} exchanges, {saved} times at rest for less");
}

/// Two hours each, together a day; apart, so that none takes long.
macro_rules! two_hours {
    ($($name:ident: $seed:literal),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                live_through($seed, 1, 1).await;
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
