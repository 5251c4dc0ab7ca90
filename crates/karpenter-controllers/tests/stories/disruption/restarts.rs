//! The process ends in each stage of a command of each kind, and another takes over: the command is finished or taken
//! back, and nothing stays marked.

use std::collections::BTreeSet;

use http::{Method, Request};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_kwok::{Kwok, Registration, UNHEALTHY};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use crate::disruption::support::{allow, drift, is_at_rest, quick, too_large};
use crate::disruption::world::{World, is_closed, is_ending, is_of, is_running};
use crate::lines::{Crash, Death, crashing};

/// What a command is about.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A node for a cheaper one.
    Replace,
    /// A node whose pods fit elsewhere.
    Delete,
    /// A node with nothing on it.
    Empty,
    /// A sick node for a healthy one, which has so long.
    Repair,
    /// A node of a pool of fixed size for one that is as the pool says now.
    FixedDrift,
    /// The same where the old one has to go first.
    TerminateFirst,
    /// A node that drifted for two smaller ones.
    Several,
}

impl Kind {
    /// How many nodes there are in the end.
    fn nodes(self) -> usize {
        if matches!(self, Self::Several) { 2 } else { 1 }
    }

    /// How many pods of `web` there are.
    fn pods(self) -> usize {
        match self {
            Self::Replace | Self::Repair => 1,
            Self::Several => 2,
            Self::Delete => 4,
            Self::Empty | Self::FixedDrift | Self::TerminateFirst => 0,
        }
    }

    /// The most nodes that there ever are, all together: what a process launched before it ended may be launched anew.
    fn machines_most(self) -> usize {
        match self {
            Self::Delete | Self::Empty | Self::TerminateFirst => 2,
            Self::Replace | Self::Repair | Self::FixedDrift => 3,
            Self::Several => 5,
        }
    }

    /// Whether none of those stays that were there before.
    fn is_replaced(self) -> bool {
        !matches!(self, Self::Delete | Self::Empty)
    }
}

/// Where the process ends.
#[derive(Debug, Clone, Copy)]
struct End {
    what: &'static str,
    at: fn(&Request<Body>) -> bool,
    /// With the how manieth of these.
    nth: u32,
    is_written: bool,
}

const fn end(what: &'static str, at: fn(&Request<Body>) -> bool, is_written: bool) -> End {
    End { what, at, nth: 1, is_written }
}

fn touches(request: &Request<Body>, method: Method, kind: &str) -> bool {
    request.method() == method && request.uri().path().contains(kind)
}

fn closes_a_node(request: &Request<Body>) -> bool {
    touches(request, Method::PATCH, "/api/v1/nodes/")
}

fn writes_a_claim(request: &Request<Body>) -> bool {
    touches(request, Method::PATCH, "/nodeclaims/") && request.uri().path().ends_with("/status")
}

fn launches(request: &Request<Body>) -> bool {
    touches(request, Method::POST, "/nodeclaims")
}

fn deletes(request: &Request<Body>) -> bool {
    touches(request, Method::DELETE, "/nodeclaims/")
}

const ENDS: [End; 8] = [
    end("before the node is closed", closes_a_node, false),
    end("once the node is closed", closes_a_node, true),
    end("before a claim is written", writes_a_claim, false),
    end("once a claim was written", writes_a_claim, true),
    end("before the launch", launches, false),
    end("once it was launched", launches, true),
    end("before the deletion", deletes, false),
    end("once it was deleted", deletes, true),
];

/// Something that can be done, but not yet.
async fn prepared(kind: Kind) -> World {
    let world = World::start_with(|options| {
        options.feature_gates.node_repair = matches!(kind, Kind::Repair);
        options.feature_gates.static_capacity = matches!(kind, Kind::FixedDrift | Kind::TerminateFirst);
        options.feature_gates.terminate_first_drift = matches!(kind, Kind::TerminateFirst);
    })
    .await;
    match kind {
        Kind::Replace => too_large(&world).await,
        Kind::Delete | Kind::Empty => {
            world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
            world.deploy("big", 2, 4100, json!({})).await;
            world.until_running("big", 2).await;
            world.until_settled(2).await;
            if matches!(kind, Kind::Delete) {
                world.deploy("web", 4, 500, json!({})).await;
                world.until_running("web", 4).await;
            }
            world.scale("big", 1).await;
            world.until_running("big", 1).await;
        }
        Kind::Repair | Kind::Several => {
            // What a process launched in vain goes as an ordinary node that is empty.
            let empty = json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"});
            world.pool(empty, json!({})).await;
            world.deploy("web", kind.pods(), 1500, json!({})).await;
            world.until_running("web", kind.pods()).await;
            world.until_settled(1).await;
        }
        Kind::FixedDrift | Kind::TerminateFirst => {
            let nodes = if matches!(kind, Kind::TerminateFirst) { "1" } else { "2" };
            world.pool_of(json!({"replicas": 1, "limits": {"nodes": nodes}})).await;
            world.until_settled(1).await;
        }
    }
    world
}

/// From now on it can be done.
async fn begin(kind: Kind, world: &World) {
    match kind {
        Kind::Replace | Kind::Delete | Kind::Empty => allow(world, quick()).await,
        Kind::FixedDrift | Kind::TerminateFirst => drift(world).await,
        Kind::Repair => {
            let name = world.nodes().await[0].metadata.name.clone().expect("a name");
            // Not by the process that is to end.
            let cloud = Kwok::generic(world.client.clone(), world.clock);
            cloud.sicken(&name, UNHEALTHY, "True", "Test").await.expect("sick");
        }
        Kind::Several => {
            let smaller = json!([
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["s"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]},
            ]);
            let template = json!({"spec": {"template": {"spec": {"requirements": smaller}}}});
            world.merge::<NodePool>("general", template).await;
        }
    }
}

/// What must hold at every moment, whichever process works.
async fn look(kind: Kind, end: End, world: &World, before: &BTreeSet<String>) {
    let claims = world.claims().await;
    if matches!(kind, Kind::TerminateFirst) {
        assert!(claims.len() <= 1, "{end:?}: its pool may not have two: {claims:#?}");
    }
    if matches!(kind, Kind::Repair) {
        let is_old = |claim: &&NodeClaim| before.contains(claim.metadata.name.as_deref().unwrap_or_default());
        for claim in claims.iter().filter(is_old).filter(|claim| is_ending(claim)) {
            let annotations = claim.metadata.annotations.clone().unwrap_or_default();
            let has_bound = annotations.contains_key("karpenter.sh/nodeclaim-termination-timestamp");
            assert!(has_bound, "{end:?}: its drain is bounded: {claim:#?}");
        }
    }
}

/// Whether the process ended on the way.
async fn live_through(kind: Kind, end: End) -> bool {
    let mut world = prepared(kind).await;
    let death = Death::default();
    let crash = Crash { at_write: end.nth, is_written: end.is_written };
    let line = crashing(world.server.clone(), crash, end.at, death.clone());
    let old = world.take_over(line).await;
    old.stop().await;
    // Whatever the new process wrote to find its way is behind it.
    world.sleep(30).await;
    if death.has_come() {
        // It came too early to be about the command.
        return false;
    }
    let before = world.claim_names().await;
    begin(kind, &world).await;
    let began = world.seconds();
    let mut machines = before.clone();
    let mut dead = Vec::new();
    let (mut quiet, mut commands) = (0, 0);
    while quiet < 120 {
        if death.has_come() && dead.is_empty() {
            commands = world.decisions().len();
            dead.push(world.take_over(Client::new(world.server.clone(), "default")).await);
        }
        look(kind, end, &world, &before).await;
        let names = world.claim_names().await;
        machines.extend(names.iter().cloned());
        let running = world.pods().await.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
        let is_done = is_at_rest(&world).await
            && world.claims().await.len() == kind.nodes()
            && (!kind.is_replaced() || names.is_disjoint(&before))
            && running == kind.pods();
        quiet = if is_done { quiet + 1 } else { 0 };
        let closed: Vec<_> = world.nodes().await.iter().filter(|node| is_closed(node)).cloned().collect();
        assert!(
            world.seconds() - began < 1500,
            "{kind:?} {end:?}: {closed:#?} {:#?} {running} run, {names:?} after {before:?}",
            world.decisions()
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(
        machines.len() <= kind.machines_most(),
        "{kind:?} {end:?}: {machines:?} {commands} {:#?}",
        world.decisions()
    );
    death.has_come()
}

async fn end_everywhere(kind: Kind, expected: &[&str]) {
    let mut came = Vec::new();
    for end in ENDS {
        if live_through(kind, end).await {
            came.push(end.what);
        }
    }
    assert_eq!(came, expected, "{kind:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_survives_the_end_of_its_process() {
    end_everywhere(Kind::Replace, &ENDS.map(|end| end.what)).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_survives_the_end_of_its_process() {
    let without_launch: Vec<&str> =
        ENDS.iter().filter(|end| !end.what.contains("launch")).map(|end| end.what).collect();
    end_everywhere(Kind::Delete, &without_launch).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_empty_node_survives_the_end_of_its_process() {
    let without_launch: Vec<&str> =
        ENDS.iter().filter(|end| !end.what.contains("launch")).map(|end| end.what).collect();
    end_everywhere(Kind::Empty, &without_launch).await;
}

#[tokio::test(start_paused = true)]
async fn a_repair_survives_the_end_of_its_process() {
    end_everywhere(Kind::Repair, &ENDS.map(|end| end.what)).await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_in_a_fixed_pool_survives_the_end_of_its_process() {
    end_everywhere(Kind::FixedDrift, &ENDS.map(|end| end.what)).await;
}

/// What takes its place is launched by whoever keeps the pool's size.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_first_survives_the_end_of_its_process() {
    end_everywhere(Kind::TerminateFirst, &ENDS.map(|end| end.what)).await;
}

#[tokio::test(start_paused = true)]
async fn two_replacements_survive_the_end_of_their_process() {
    end_everywhere(Kind::Several, &ENDS.map(|end| end.what)).await;
    for is_written in [false, true] {
        let second = End { what: "with the second launch", at: launches, nth: 2, is_written };
        assert!(live_through(Kind::Several, second).await, "{second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_taken_up_is_counted_as_what_it_was() {
    let mut world = prepared(Kind::Replace).await;
    world.cloud.change_faults(|faults| {
        faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
    });
    allow(&world, quick()).await;
    world.until("a replacement", async || world.claim_names().await.len(), |count| *count == 2).await;
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
    world.until_settled(1).await;
    let disrupted = "karpenter_nodeclaims_disrupted_total{capacity_type=\"on-demand\",\
        consolidation_policy=\"when_empty_or_underutilized\",nodepool=\"general\",reason=\"underutilized\",\
        termination_mode=\"graceful\"}";
    assert_eq!(world.metric(disrupted), Some(1.0));
    let pods = disrupted.replace("nodeclaims_disrupted_total", "pods_disruption_initiated_total");
    assert_eq!(world.metric(&pods), Some(1.0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_nobody_saw_to_for_long_is_finished() {
    let mut world = prepared(Kind::Replace).await;
    let before = world.claim_names().await;
    world.cloud.change_faults(|faults| {
        faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
    });
    allow(&world, quick()).await;
    let both = async || world.claim_names().await;
    let both = world.until("a replacement", both, |names| names.len() == 2).await;
    world.sleep(10).await;
    world.operator.stop_signal().stop();
    // Longer than a command may take. The node comes up meanwhile.
    world.sleep(20 * 60).await;
    assert_eq!(world.claim_names().await, both);
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
    world.until_settled(1).await;
    let left = world.claim_names().await;
    assert_eq!(left, both.difference(&before).cloned().collect(), "what was launched takes its place");
    assert_eq!(world.decisions(), Vec::<String>::new(), "nothing was taken back or thought of anew");
    world.until_running("web", 1).await;
    assert!(is_at_rest(&world).await);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proposal_that_rests_is_forgotten_and_made_anew() {
    let mut world = prepared(Kind::Replace).await;
    allow(&world, quick()).await;
    world
        .until("a proposal", async || world.events("ConsolidationCandidate").await.len(), |count| *count > 0)
        .await;
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
    assert!(is_at_rest(&world).await, "nothing was written");
    let before = world.claim_names().await;
    world.until("it goes", async || world.claim_names().await, |names| names.is_disjoint(&before)).await;
    world.until_settled(1).await;
    world.until_running("web", 1).await;
    assert!(is_at_rest(&world).await);
    world.stop().await;
}
