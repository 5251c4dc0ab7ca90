//! Waits until instances are terminated, and reports the progress.

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;
use kube::Client;
use serde_json::Value;

use super::plan::is_unfinished;
use super::{POLL_INTERVAL, observe};
use crate::install::delete;
use crate::kinds::{
    EC2_NODE_CLASS, KWOK_NODE_CLASS, NODE_CLAIM, condition, is_being_deleted, is_held, name, text, title,
};
use crate::{Error, Progress};

/// Deletes NodeClaims, and waits until they and their Nodes are gone.
pub(super) async fn terminate_instances(
    client: &Client,
    clock: Clock,
    deadline: Timestamp,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let mut reported = String::new();
    loop {
        let claims = observe::all(client, NODE_CLAIM).await?;
        let mut nodes = observe::nodes(client).await?;
        nodes.retain(is_held);
        for claim in claims.iter().filter(|claim| !is_being_deleted(claim)) {
            delete(client, claim, progress).await?;
        }
        // A Node that has no NodeClaim is deleted here; the controller removes its finalizer after the drain.
        if claims.is_empty() {
            for node in nodes.iter().filter(|node| !is_being_deleted(node)) {
                delete(client, node, progress).await?;
            }
        }
        if claims.is_empty() && nodes.is_empty() {
            progress("all instances are terminated");
            return Ok(());
        }
        let line = format!("waiting for {} NodeClaims and {} nodes", claims.len(), nodes.len());
        if reported != line {
            progress(&line);
            reported = line;
        }
        if clock.now() >= deadline {
            return Err(Error::TimedOut(left_over(&claims, &nodes)));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// The objects that are left, what each of them waits for, and a fix.
pub(super) fn left_over(claims: &[Value], nodes: &[Value]) -> String {
    let mut lines: Vec<String> = claims.iter().map(waits_for).collect();
    let is_known = |node: &&Value| claims.iter().any(|claim| text(claim, "/status/nodeName") == name(node));
    lines.extend(nodes.iter().filter(|node| !is_known(node)).map(title));
    format!(
        "timed out; the controller still runs and nothing else was removed. Remaining: {}. Pods that cannot be evicted \
         are listed by kubectl get pods --field-selector spec.nodeName=NODE -A and kubectl get pdb -A; then run the command \
         again, with a longer --timeout, or with --nodes keep",
        lines.join("; ")
    )
}

fn waits_for(claim: &Value) -> String {
    let conditions = ["Drained", "VolumesDetached", "InstanceTerminating"];
    let open = conditions.iter().find_map(|kind| {
        let (status, reason, message) = condition(claim, kind)?;
        let reported = if message.is_empty() { reason } else { message };
        (status != "True").then(|| format!("{kind}: {reported}"))
    });
    let node = match text(claim, "/status/nodeName") {
        "" => "no node".to_owned(),
        node => format!("node {node}"),
    };
    match open {
        Some(open) => format!("{} ({node}, {open})", title(claim)),
        None => format!("{} ({node})", title(claim)),
    }
}

pub(super) async fn until_classes_are_gone(
    client: &Client,
    clock: Clock,
    deadline: Timestamp,
    progress: Progress<'_>,
) -> Result<(), Error> {
    loop {
        let mut classes = observe::all(client, EC2_NODE_CLASS).await?;
        classes.extend(observe::all(client, KWOK_NODE_CLASS).await?);
        classes.retain(is_being_deleted);
        let Some(class) = classes.first() else { return Ok(()) };
        if clock.now() >= deadline {
            let why =
                condition(class, "InstanceProfileReady").map(|(_, _, message)| message).unwrap_or_default();
            return Err(Error::TimedOut(format!(
                "timed out: {} is terminating and still exists {why}; see kubectl describe and the controller's log, \
                 then run the command again",
                title(class)
            )));
        }
        progress(&format!("waiting for {}", title(class)));
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// Waits until no NodeClaim is being launched or terminated.
pub(super) async fn until_launches_are_done(
    client: &Client,
    clock: Clock,
    deadline: Timestamp,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let mut reported = String::new();
    loop {
        let mut open = observe::all(client, NODE_CLAIM).await?;
        open.extend(observe::nodes(client).await?);
        open.retain(is_unfinished);
        if open.is_empty() {
            return Ok(());
        }
        let line = format!("waiting for {} NodeClaims that are launching or terminating", open.len());
        if reported != line {
            progress(&line);
            reported = line;
        }
        if clock.now() >= deadline {
            let titles: Vec<String> = open.iter().map(title).collect();
            return Err(Error::TimedOut(format!(
                "timed out, nothing was removed: {} launching or terminating; run the command again, or with --force to release \
                 them in their current state",
                titles.join(", ")
            )));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}
