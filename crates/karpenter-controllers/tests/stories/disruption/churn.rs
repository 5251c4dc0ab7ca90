//! Hours of workloads that grow and shrink, machines that vanish and pools that change, and in between hours in which
//! nothing changes: then everything comes to rest soon, at a price near the least possible, and stays at rest.
//!
//! What must hold at every moment is looked at with every event.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_cluster::mirror::{Change, Mirror, keep_all};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::Settings;
use karpenter_state::{CatalogChoice, Objects, assemble_fleet, read_dump};
use serde_json::json;

use crate::disruption::support::{apart, is_at_rest};
use crate::disruption::world::{World, is_closed, is_of, is_running, label};

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

/// An hour in which something happens every few minutes.
async fn busy_hour(world: &World, watchman: &Watchman, dice: &mut Dice, hour: u64) {
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
        world.sleep(120 + dice.below(360) as i64).await;
    }
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

/// An hour in which nothing changes: at rest within the first half, and in the second half nothing is done.
async fn quiet_hour(world: &World, hour: u64) {
    let began = world.seconds();
    world.sleep(1800).await;
    let last = |world: &World| {
        let entries = world.operator.context().journal.entries_after(0);
        entries.last().map(|entry| (entry.number, entry.what.clone()))
    };
    let (done, claims) = (last(world), world.claim_names().await);
    assert!(is_at_rest(world).await, "hour {hour}: {:#?}", world.decisions().last());
    let pods = world.pods().await;
    let waiting = pods.iter().filter(|pod| !is_running(pod)).count();
    assert_eq!(waiting, 0, "hour {hour}: pods without a place");
    world.sleep(began + 3600 - world.seconds()).await;
    assert_eq!(last(world), done, "hour {hour}: nobody decided anything");
    assert_eq!(world.claim_names().await, claims, "hour {hour}");
    let (price, bound, commands) = second_opinion(world).await;
    assert_eq!(commands, 0, "hour {hour}: a second opinion finds nothing to do either");
    assert!(bound > 0.0 && price <= bound * DEARER_MOST, "hour {hour}: {price} $/h, at least {bound}");
}

/// So many hours, every other of them quiet.
async fn live_through(seed: u64, hours: u64) {
    let world = begin().await;
    let watchman = Watchman::default();
    watchman.watch(&world).await;
    let mut dice = Dice(seed);
    for hour in (0..hours).step_by(2) {
        busy_hour(&world, &watchman, &mut dice, seed + hour / 2).await;
        quiet_hour(&world, hour + 1).await;
        let wrong = watchman.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
    // Whatever was done for money saved some.
    for entry in world.operator.context().journal.entries_after(0) {
        if entry.why.iter().any(|why| why == "reason Underutilized") {
            assert!(entry.cost_after_per_hour < entry.cost_before_per_hour, "{entry:?}");
        }
    }
    world.stop().await;
}

/// Two hours each, together a day; apart, so that none takes long.
macro_rules! two_hours {
    ($($name:ident: $seed:literal),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                live_through($seed, 2).await;
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
