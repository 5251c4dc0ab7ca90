//! Waits for machines to end, and says how far it is.

use jiff::Timestamp;
use karpenter_cluster::clock::Clock;
use kube::Client;
use serde_json::Value;

use super::plan::is_unfinished;
use super::{LOOK_EVERY, observe};
use crate::install::delete;
use crate::kinds::{
    EC2_NODE_CLASS, KWOK_NODE_CLASS, NODE_CLAIM, condition, is_being_deleted, is_held, name, text, title,
};
use crate::{Error, Tell};

/// Deletes claims and waits until they and their nodes are gone.
pub(super) async fn end_machines(
    client: &Client,
    clock: Clock,
    deadline: Timestamp,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let mut said = String::new();
    loop {
        let claims = observe::all(client, NODE_CLAIM).await?;
        let mut nodes = observe::nodes(client).await?;
        nodes.retain(is_held);
        for claim in claims.iter().filter(|claim| !is_being_deleted(claim)) {
            delete(client, claim, tell).await?;
        }
        // A node whose claim is gone ends by itself once it is deleted.
        if claims.is_empty() {
            for node in nodes.iter().filter(|node| !is_being_deleted(node)) {
                delete(client, node, tell).await?;
            }
        }
        if claims.is_empty() && nodes.is_empty() {
            tell("all machines are gone");
            return Ok(());
        }
        let line = format!("{} NodeClaims and {} nodes are left", claims.len(), nodes.len());
        if said != line {
            tell(&line);
            said = line;
        }
        if clock.now() >= deadline {
            return Err(Error::TimedOut(left_over(&claims, &nodes)));
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

/// What is still there, what each waits for, and what to do about it.
pub(super) fn left_over(claims: &[Value], nodes: &[Value]) -> String {
    let mut lines: Vec<String> = claims.iter().map(waits_for).collect();
    let is_known = |node: &&Value| claims.iter().any(|claim| text(claim, "/status/nodeName") == name(node));
    lines.extend(nodes.iter().filter(|node| !is_known(node)).map(title));
    format!(
        "time is up, the controller still runs and nothing else was removed. Left: {}. Pods that may not be evicted \
         show with kubectl get pods --field-selector spec.nodeName=NODE -A and kubectl get pdb -A; then run the command \
         again, with a longer --timeout, or with --nodes keep",
        lines.join("; ")
    )
}

fn waits_for(claim: &Value) -> String {
    let conditions = ["Drained", "VolumesDetached", "InstanceTerminating"];
    let open = conditions.iter().find_map(|kind| {
        let (status, reason, message) = condition(claim, kind)?;
        let said = if message.is_empty() { reason } else { message };
        (status != "True").then(|| format!("{kind}: {said}"))
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
    tell: Tell<'_>,
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
                "time is up: {} is being deleted and still there {why}; see kubectl describe and the controller's log, \
                 then run the command again",
                title(class)
            )));
        }
        tell(&format!("waiting for {}", title(class)));
        clock.sleep(LOOK_EVERY).await;
    }
}

/// Until no claim is on its way to or from being a node.
pub(super) async fn until_settled(
    client: &Client,
    clock: Clock,
    deadline: Timestamp,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let mut said = String::new();
    loop {
        let mut open = observe::all(client, NODE_CLAIM).await?;
        open.extend(observe::nodes(client).await?);
        open.retain(is_unfinished);
        if open.is_empty() {
            return Ok(());
        }
        let line = format!("waiting for {} that are being launched or ended", open.len());
        if said != line {
            tell(&line);
            said = line;
        }
        if clock.now() >= deadline {
            let titles: Vec<String> = open.iter().map(title).collect();
            return Err(Error::TimedOut(format!(
                "time is up, nothing was removed: {} still on the way; run the command again, or with --force to let go of \
                 them as they are",
                titles.join(", ")
            )));
        }
        clock.sleep(LOOK_EVERY).await;
    }
}
