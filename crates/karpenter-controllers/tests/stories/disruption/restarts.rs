//! The process ends in each stage of a command of each kind, and another takes over: the command is finished or taken
//! back, and nothing stays marked.

use std::collections::BTreeSet;

use http::{Method, Request};
use karpenter_kwok::Registration;
use kube::Client;
use kube::client::Body;
use serde_json::json;

use crate::disruption::support::{allow, is_at_rest, quick, too_large};
use crate::disruption::world::{World, is_closed, is_of, is_running};
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
}

/// Where the process ends.
#[derive(Debug, Clone, Copy)]
struct End {
    what: &'static str,
    at: fn(&Request<Body>) -> bool,
    is_written: bool,
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
    End { what: "before the node is closed", at: closes_a_node, is_written: false },
    End { what: "once the node is closed", at: closes_a_node, is_written: true },
    End { what: "before a claim is written", at: writes_a_claim, is_written: false },
    End { what: "once a claim was written", at: writes_a_claim, is_written: true },
    End { what: "before the launch", at: launches, is_written: false },
    End { what: "once it was launched", at: launches, is_written: true },
    End { what: "before the deletion", at: deletes, is_written: false },
    End { what: "once it was deleted", at: deletes, is_written: true },
];

/// Something that can be saved, but is not allowed to be yet; and how many pods of `web` there are.
async fn prepared(kind: Kind) -> (World, usize) {
    let world = World::start().await;
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
    }
    let pods = match kind {
        Kind::Replace => 1,
        Kind::Delete => 4,
        Kind::Empty => 0,
    };
    (world, pods)
}

/// Whether the process ended on the way.
async fn live_through(kind: Kind, end: End) -> bool {
    let (mut world, pods) = prepared(kind).await;
    let death = Death::default();
    let crash = Crash { at_write: 1, is_written: end.is_written };
    let line = crashing(world.server.clone(), crash, end.at, death.clone());
    let old = world.take_over(line).await;
    old.stop().await;
    // Whatever the new process wrote to find its way is behind it.
    world.sleep(30).await;
    if death.has_come() {
        // It came too early to be about the command.
        return false;
    }
    allow(&world, quick()).await;
    let began = world.seconds();
    let mut machines: BTreeSet<String> = world.claim_names().await;
    let mut dead = Vec::new();
    let (mut quiet, mut commands) = (0, 0);
    while quiet < 120 {
        if death.has_come() && dead.is_empty() {
            commands = world.decisions().len();
            dead.push(world.take_over(Client::new(world.server.clone(), "default")).await);
        }
        machines.extend(world.claim_names().await);
        let running = world.pods().await.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
        let is_done = is_at_rest(&world).await && world.claims().await.len() == 1 && running == pods;
        quiet = if is_done { quiet + 1 } else { 0 };
        let closed: Vec<_> = world.nodes().await.iter().filter(|node| is_closed(node)).cloned().collect();
        assert!(
            world.seconds() - began < 1500,
            "{kind:?} {end:?}: {closed:#?} {:#?} {running} run",
            world.decisions()
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let launched_most = if matches!(kind, Kind::Replace) { 3 } else { 2 };
    assert!(
        machines.len() <= launched_most,
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
async fn a_command_that_is_taken_up_is_counted_as_what_it_was() {
    let (mut world, _) = prepared(Kind::Replace).await;
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
async fn a_proposal_that_rests_is_forgotten_and_made_anew() {
    let (mut world, _) = prepared(Kind::Replace).await;
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
