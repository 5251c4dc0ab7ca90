//! Tests in which the process crashes at each step of each kind of command, and another process takes over. The command
//! must then be finished or rolled back, and no taint or condition of it may remain.

use std::collections::BTreeSet;

use http::{Method, Request};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_kwok::{Kwok, Registration, UNHEALTHY};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use crate::clients::{CrashState, WriteCrash, crashing};
use crate::disruption::support::{consolidate_soon, drift, is_settled, oversized_node, set_disruption};
use crate::disruption::world::{World, has_disrupted_taint, is_deleting, is_of, is_running};

/// The kind of command.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A node is replaced by a cheaper one.
    Replace,
    /// A node whose pods fit elsewhere is deleted.
    Delete,
    /// An empty node is deleted.
    Empty,
    /// An unhealthy node is replaced, with a bounded drain.
    Repair,
    /// A drifted node of a static NodePool is replaced.
    StaticDrift,
    /// A drifted node of a static NodePool at its node limit is terminated before its replacement is launched.
    TerminateFirst,
    /// A drifted node is replaced by two smaller ones.
    Several,
}

impl Kind {
    /// The number of nodes at the end of the test.
    fn nodes(self) -> usize {
        if matches!(self, Self::Several) { 2 } else { 1 }
    }

    /// The number of pods of the Deployment `web`.
    fn pods(self) -> usize {
        match self {
            Self::Replace | Self::Repair => 1,
            Self::Several => 2,
            Self::Delete => 4,
            Self::Empty | Self::StaticDrift | Self::TerminateFirst => 0,
        }
    }

    /// The maximum number of NodeClaims that exist during the whole test. It allows for a replacement that is launched
    /// again, because the process that launched it crashed.
    fn claims_max(self) -> usize {
        match self {
            Self::Delete | Self::Empty | Self::TerminateFirst => 2,
            Self::Replace | Self::Repair | Self::StaticDrift => 3,
            Self::Several => 5,
        }
    }

    /// Whether all original nodes are replaced.
    fn replaces_all(self) -> bool {
        !matches!(self, Self::Delete | Self::Empty)
    }
}

/// The request at which the process ends.
#[derive(Debug, Clone, Copy)]
struct CrashPoint {
    what: &'static str,
    at: fn(&Request<Body>) -> bool,
    /// The process crashes at this occurrence of the request, counted from 1.
    nth: u32,
    is_written: bool,
}

const fn point(what: &'static str, at: fn(&Request<Body>) -> bool, is_written: bool) -> CrashPoint {
    CrashPoint { what, at, nth: 1, is_written }
}

fn touches(request: &Request<Body>, method: Method, kind: &str) -> bool {
    request.method() == method && request.uri().path().contains(kind)
}

fn taints_node(request: &Request<Body>) -> bool {
    touches(request, Method::PATCH, "/api/v1/nodes/")
}

fn patches_claim_status(request: &Request<Body>) -> bool {
    touches(request, Method::PATCH, "/nodeclaims/") && request.uri().path().ends_with("/status")
}

fn creates_claim(request: &Request<Body>) -> bool {
    touches(request, Method::POST, "/nodeclaims")
}

fn deletes_claim(request: &Request<Body>) -> bool {
    touches(request, Method::DELETE, "/nodeclaims/")
}

const CRASH_POINTS: [CrashPoint; 8] = [
    point("before the node is tainted", taints_node, false),
    point("after the node is tainted", taints_node, true),
    point("before a claim status is patched", patches_claim_status, false),
    point("after a claim status is patched", patches_claim_status, true),
    point("before the launch", creates_claim, false),
    point("after the launch", creates_claim, true),
    point("before the deletion", deletes_claim, false),
    point("after the deletion", deletes_claim, true),
];

/// A cluster that is prepared for the command. The command starts only after [`begin`].
async fn prepared(kind: Kind) -> World {
    let world = World::start_with(|options| {
        options.feature_gates.node_repair = matches!(kind, Kind::Repair);
        options.feature_gates.static_capacity = matches!(kind, Kind::StaticDrift | Kind::TerminateFirst);
        options.feature_gates.terminate_first_drift = matches!(kind, Kind::TerminateFirst);
    })
    .await;
    match kind {
        Kind::Replace => oversized_node(&world).await,
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
            // If the command is rolled back, its replacement is an ordinary empty node, which is then deleted.
            let empty = json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"});
            world.pool(empty, json!({})).await;
            world.deploy("web", kind.pods(), 1500, json!({})).await;
            world.until_running("web", kind.pods()).await;
            world.until_settled(1).await;
        }
        Kind::StaticDrift | Kind::TerminateFirst => {
            let nodes = if matches!(kind, Kind::TerminateFirst) { "1" } else { "2" };
            world.pool_of(json!({"replicas": 1, "limits": {"nodes": nodes}})).await;
            world.until_settled(1).await;
        }
    }
    world
}

/// Allows or triggers the command.
async fn begin(kind: Kind, world: &World) {
    match kind {
        Kind::Replace | Kind::Delete | Kind::Empty => set_disruption(world, consolidate_soon()).await,
        Kind::StaticDrift | Kind::TerminateFirst => drift(world).await,
        Kind::Repair => {
            let name = world.nodes().await[0].metadata.name.clone().expect("a name");
            // The condition is set with another client, because the process whose client would be used may crash.
            let cloud = Kwok::generic(world.client.clone(), world.clock);
            cloud.inject_condition(&name, UNHEALTHY, "True", "Test").await.expect("injected");
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

/// Asserts what must hold at every moment.
async fn check_invariants(kind: Kind, point: CrashPoint, world: &World, before: &BTreeSet<String>) {
    let claims = world.claims().await;
    if matches!(kind, Kind::TerminateFirst) {
        assert!(claims.len() <= 1, "{point:?}: the node limit is one: {claims:#?}");
    }
    if matches!(kind, Kind::Repair) {
        let is_old = |claim: &&NodeClaim| before.contains(claim.metadata.name.as_deref().unwrap_or_default());
        for claim in claims.iter().filter(is_old).filter(|claim| is_deleting(claim)) {
            let annotations = claim.metadata.annotations.clone().unwrap_or_default();
            let has_bound = annotations.contains_key("karpenter.sh/nodeclaim-termination-timestamp");
            assert!(has_bound, "{point:?}: its drain is bounded: {claim:#?}");
        }
    }
}

/// Runs the command and crashes the process at `point`. Returns whether the crash happened.
async fn run(kind: Kind, point: CrashPoint) -> bool {
    let mut world = prepared(kind).await;
    let crash_state = CrashState::default();
    let crash = WriteCrash { at_write: point.nth, is_written: point.is_written };
    let line = crashing(world.server.clone(), crash, point.at, crash_state.clone());
    let old = world.take_over(line).await;
    old.stop().await;
    // Wait until the new process has finished the writes that it makes at its start.
    world.sleep(30).await;
    if crash_state.has_crashed() {
        // The process crashed before the command started, so there is nothing to check.
        return false;
    }
    let before = world.claim_names().await;
    begin(kind, &world).await;
    let began = world.seconds();
    let mut claims_seen = before.clone();
    let mut dead = Vec::new();
    let (mut quiet, mut commands) = (0, 0);
    while quiet < 120 {
        if crash_state.has_crashed() && dead.is_empty() {
            commands = world.decisions().len();
            dead.push(world.take_over(Client::new(world.server.clone(), "default")).await);
        }
        check_invariants(kind, point, &world, &before).await;
        let names = world.claim_names().await;
        claims_seen.extend(names.iter().cloned());
        let running = world.pods().await.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
        let is_done = is_settled(&world).await
            && world.claims().await.len() == kind.nodes()
            && (!kind.replaces_all() || names.is_disjoint(&before))
            && running == kind.pods();
        quiet = if is_done { quiet + 1 } else { 0 };
        let tainted: Vec<_> =
            world.nodes().await.iter().filter(|node| has_disrupted_taint(node)).cloned().collect();
        assert!(
            world.seconds() - began < 1500,
            "{kind:?} {point:?}: {tainted:#?} {:#?} {running} run, {names:?} after {before:?}",
            world.decisions()
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(
        claims_seen.len() <= kind.claims_max(),
        "{kind:?} {point:?}: {claims_seen:?} {commands} {:#?}",
        world.decisions()
    );
    crash_state.has_crashed()
}

async fn crash_at_every_point(kind: Kind, expected: &[&str]) {
    let mut came = Vec::new();
    for point in CRASH_POINTS {
        if run(kind, point).await {
            came.push(point.what);
        }
    }
    assert_eq!(came, expected, "{kind:?}");
}

#[tokio::test(start_paused = true)]
async fn replacement_survives_a_crash() {
    crash_at_every_point(Kind::Replace, &CRASH_POINTS.map(|point| point.what)).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_survives_a_crash() {
    let without_launch: Vec<&str> =
        CRASH_POINTS.iter().filter(|point| !point.what.contains("launch")).map(|point| point.what).collect();
    crash_at_every_point(Kind::Delete, &without_launch).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_of_empty_node_survives_a_crash() {
    let without_launch: Vec<&str> =
        CRASH_POINTS.iter().filter(|point| !point.what.contains("launch")).map(|point| point.what).collect();
    crash_at_every_point(Kind::Empty, &without_launch).await;
}

#[tokio::test(start_paused = true)]
async fn repair_survives_a_crash() {
    crash_at_every_point(Kind::Repair, &CRASH_POINTS.map(|point| point.what)).await;
}

#[tokio::test(start_paused = true)]
async fn static_drift_survives_a_crash() {
    crash_at_every_point(Kind::StaticDrift, &CRASH_POINTS.map(|point| point.what)).await;
}

/// The static capacity controller, not the command, launches the replacement.
#[tokio::test(start_paused = true)]
async fn terminate_first_drift_survives_a_crash() {
    crash_at_every_point(Kind::TerminateFirst, &CRASH_POINTS.map(|point| point.what)).await;
}

#[tokio::test(start_paused = true)]
async fn command_with_two_replacements_survives_a_crash() {
    crash_at_every_point(Kind::Several, &CRASH_POINTS.map(|point| point.what)).await;
    for is_written in [false, true] {
        let second = CrashPoint { what: "with the second launch", at: creates_claim, nth: 2, is_written };
        assert!(run(Kind::Several, second).await, "{second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_command_is_counted_with_its_original_reason() {
    let mut world = prepared(Kind::Replace).await;
    world.cloud.change_faults(|faults| {
        faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
    });
    set_disruption(&world, consolidate_soon()).await;
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
async fn command_older_than_its_timeout_is_finished_by_the_next_process() {
    let mut world = prepared(Kind::Replace).await;
    let before = world.claim_names().await;
    world.cloud.change_faults(|faults| {
        faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
    });
    set_disruption(&world, consolidate_soon()).await;
    let both = async || world.claim_names().await;
    let both = world.until("a replacement", both, |names| names.len() == 2).await;
    world.sleep(10).await;
    world.operator.shutdown_signal().request();
    // The replacement registers during this time, which is longer than the timeout of a command.
    world.sleep(20 * 60).await;
    assert_eq!(world.claim_names().await, both);
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
    world.until_settled(1).await;
    let left = world.claim_names().await;
    assert_eq!(left, both.difference(&before).cloned().collect(), "the replacement stays");
    assert_eq!(world.decisions(), Vec::<String>::new(), "nothing is rolled back or disrupted again");
    world.until_running("web", 1).await;
    assert!(is_settled(&world).await);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn command_before_validation_is_computed_again_by_the_next_process() {
    let mut world = prepared(Kind::Replace).await;
    set_disruption(&world, consolidate_soon()).await;
    world
        .until(
            "a candidate event",
            async || world.events("ConsolidationCandidate").await.len(),
            |count| *count > 0,
        )
        .await;
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
    assert!(is_settled(&world).await, "nothing was written");
    let before = world.claim_names().await;
    world
        .until("the node is replaced", async || world.claim_names().await, |names| names.is_disjoint(&before))
        .await;
    world.until_settled(1).await;
    world.until_running("web", 1).await;
    assert!(is_settled(&world).await);
    world.stop().await;
}
