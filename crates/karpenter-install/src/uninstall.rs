//! Takes Karpenter off a cluster. What becomes of its nodes is the caller's choice; none is left that nobody looks after
//! without having been asked for, and no object is left that cannot be deleted.
//!
//! Looks first, lets [`plan`] decide on the steps, and takes them one after the other. Running it again goes on where it
//! stopped.

mod definitions;
mod drain;
mod observe;
pub mod plan;
mod release;
#[cfg(test)]
mod tests;

use std::time::Duration;

use karpenter_cluster::clock::Clock;
use kube::Client;
use serde_json::{Value, json};

use crate::controllers::{Controller, REPLICAS_BEFORE, TAKEN_OVER_BY};
use crate::install::{delete, patch_deployment, until_stopped};
use crate::kinds::{self, DEPLOYMENT, LEASE, title};
use crate::{Error, Tell};
pub use plan::{Choices, Nodes, Seen, Step};

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What somebody may want back: pools, classes and old kinds, as manifests without what the server added.
pub async fn kept_objects(client: &Client) -> Result<Vec<Value>, Error> {
    let seen = observe::observe(client, "").await?;
    let all = seen.pools.iter().chain(&seen.classes).chain(&seen.old);
    Ok(all.map(observe::as_manifest).collect())
}

pub async fn uninstall(
    client: &Client,
    clock: Clock,
    choices: &Choices,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let seen = observe::observe(client, &choices.name).await?;
    let steps = plan::plan(&seen, choices, clock.now()).map_err(Error::Refused)?;
    if choices.is_dry_run {
        steps.iter().for_each(|step| tell(&format!("would {step}")));
    }
    if choices.is_dry_run || steps.is_empty() {
        if steps.is_empty() {
            tell("there is nothing to do");
        }
        return Ok(());
    }
    let deadline = clock.now() + choices.timeout;
    for step in &steps {
        match step {
            Step::DeletePools(objects) | Step::DeleteClasses(objects) => {
                for object in objects {
                    delete(client, object, tell).await?;
                }
                if matches!(step, Step::DeleteClasses(_)) {
                    drain::until_classes_are_gone(client, clock, deadline, tell).await?;
                }
            }
            Step::EndMachines => drain::end_machines(client, clock, deadline, tell).await?,
            Step::Settle => drain::until_settled(client, clock, deadline, tell).await?,
            Step::StopController(deployment) => stop(client, clock, deployment, tell).await?,
            Step::Release => {
                // The controller may have launched something until it stopped.
                let now_there = observe::observe(client, &choices.name).await?;
                release::release(client, &plan::to_release(&now_there), tell).await?;
                for claim in
                    now_there.claims.iter().filter(|claim| kinds::text(claim, "/status/nodeName").is_empty())
                {
                    tell(&format!(
                        "{} has no node yet; if its machine does not join, end it by hand",
                        title(claim)
                    ));
                }
            }
            Step::RemoveObjects(objects) => {
                for object in objects {
                    delete(client, object, tell).await?;
                }
            }
            Step::RemoveLease { namespace, name } => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": LEASE.kind,
                    "metadata": {"name": name, "namespace": namespace}});
                delete(client, &lease, tell).await?;
            }
            Step::Restore(controller) => restore(client, controller, tell).await?,
            Step::RemoveDefinitions(definitions) => {
                definitions::remove(client, clock, definitions, tell).await?
            }
            Step::Say(line) => tell(line),
        }
    }
    Ok(())
}

/// Its pods end before its permissions do, so that it can give back the lease.
async fn stop(client: &Client, clock: Clock, deployment: &Value, tell: Tell<'_>) -> Result<(), Error> {
    let namespace = kinds::text(deployment, "/metadata/namespace");
    let which = Controller {
        namespace: namespace.to_owned(),
        name: kinds::name(deployment).to_owned(),
        ..Controller::default()
    };
    match patch_deployment(client, &which, &json!({"spec": {"replicas": 0}})).await {
        Err(Error::Api { error, .. }) if kinds::is_not_found(&error) => return Ok(()),
        answer => answer?,
    }
    tell(&format!("stopping {}", title(deployment)));
    until_stopped(client, clock, namespace, &which.name).await?;
    release::until_nobody_works(client, clock, namespace).await?;
    delete(client, deployment, tell).await
}

/// Scales a controller that we took over from back to what it was.
async fn restore(client: &Client, controller: &Controller, tell: Tell<'_>) -> Result<(), Error> {
    let replicas = controller.replicas_before.unwrap_or(1);
    let patch = json!({
        "metadata": {"annotations": {REPLICAS_BEFORE: null, TAKEN_OVER_BY: null}},
        "spec": {"replicas": replicas},
    });
    patch_deployment(client, controller, &patch).await?;
    tell(&format!(
        "scaled {} {}/{} back to {replicas} replicas; it takes over the nodes",
        DEPLOYMENT.kind, controller.namespace, controller.name
    ));
    Ok(())
}
