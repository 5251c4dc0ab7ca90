//! Uninstalls Karpenter. The caller chooses what happens to the nodes: none stays without a controller unless the
//! caller requests this, and no object is left in a state in which it cannot be deleted.
//!
//! The command reads the cluster, [`plan`] decides on the steps, and the steps are executed in order. If a run stops
//! early, the next run continues.

mod definitions;
mod drain;
mod observe;
pub mod plan;
mod release;
#[cfg(test)]
mod tests;

use std::time::Duration;

use karpenter_runtime::clock::Clock;
use kube::Client;
use serde_json::{Value, json};

use crate::controllers::{Controller, REPLICAS_BEFORE, TAKEN_OVER_BY};
use crate::install::{delete, patch_deployment, until_stopped};
use crate::kinds::{self, DEPLOYMENT, LEASE, title};
use crate::{Error, Progress};
pub use plan::{Choices, Nodes, Seen, Step};

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// All NodePools, node classes, Provisioners and AWSNodeTemplates as manifests without fields that the server sets, so
/// that users can restore them.
pub async fn kept_objects(client: &Client) -> Result<Vec<Value>, Error> {
    let seen = observe::observe(client, "").await?;
    let all = seen.pools.iter().chain(&seen.classes).chain(&seen.old);
    Ok(all.map(observe::as_manifest).collect())
}

pub async fn uninstall(
    client: &Client,
    clock: Clock,
    choices: &Choices,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let seen = observe::observe(client, &choices.name).await?;
    let steps = plan::plan(&seen, choices, clock.now()).map_err(Error::Refused)?;
    if choices.is_dry_run {
        steps.iter().for_each(|step| progress(&format!("would {step}")));
    }
    if choices.is_dry_run || steps.is_empty() {
        if steps.is_empty() {
            progress("nothing to do");
        }
        return Ok(());
    }
    let deadline = clock.now() + choices.timeout;
    for step in &steps {
        match step {
            Step::DeletePools(objects) | Step::DeleteClasses(objects) => {
                for object in objects {
                    delete(client, object, progress).await?;
                }
                if matches!(step, Step::DeleteClasses(_)) {
                    drain::until_classes_are_gone(client, clock, deadline, progress).await?;
                }
            }
            Step::TerminateInstances => drain::terminate_instances(client, clock, deadline, progress).await?,
            Step::WaitForLaunches => {
                drain::until_launches_are_done(client, clock, deadline, progress).await?
            }
            Step::StopController(deployment) => stop(client, clock, deployment, progress).await?,
            Step::Release => {
                // The cluster is read again here, because the controller may have launched instances before it stopped.
                let observed_now = observe::observe(client, &choices.name).await?;
                release::release(client, &plan::to_release(&observed_now), progress).await?;
                for claim in observed_now
                    .claims
                    .iter()
                    .filter(|claim| kinds::text(claim, "/status/nodeName").is_empty())
                {
                    progress(&format!(
                        "{} has no node yet; if its instance does not join, terminate it yourself",
                        title(claim)
                    ));
                }
            }
            Step::RemoveObjects(objects) => {
                for object in objects {
                    delete(client, object, progress).await?;
                }
            }
            Step::RemoveLease { namespace, name } => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": LEASE.kind,
                    "metadata": {"name": name, "namespace": namespace}});
                delete(client, &lease, progress).await?;
            }
            Step::Restore(controller) => restore(client, controller, progress).await?,
            Step::RemoveDefinitions(definitions) => {
                definitions::remove(client, clock, definitions, progress).await?
            }
            Step::Say(line) => progress(line),
        }
    }
    Ok(())
}

/// The pods are stopped before the permissions are deleted, because the leader needs them to release its Lease.
async fn stop(
    client: &Client,
    clock: Clock,
    deployment: &Value,
    progress: Progress<'_>,
) -> Result<(), Error> {
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
    progress(&format!("stopping {}", title(deployment)));
    until_stopped(client, clock, namespace, &which.name).await?;
    release::until_lease_is_released(client, clock, namespace).await?;
    delete(client, deployment, progress).await
}

/// Gives a controller that was scaled to zero its former number of replicas.
async fn restore(client: &Client, controller: &Controller, progress: Progress<'_>) -> Result<(), Error> {
    let replicas = controller.replicas_before.unwrap_or(1);
    let patch = json!({
        "metadata": {"annotations": {REPLICAS_BEFORE: null, TAKEN_OVER_BY: null}},
        "spec": {"replicas": replicas},
    });
    patch_deployment(client, controller, &patch).await?;
    progress(&format!(
        "scaled {} {}/{} back to {replicas} replicas; it manages the nodes again",
        DEPLOYMENT.kind, controller.namespace, controller.name
    ));
    Ok(())
}
