//! Installs Karpenter into a cluster: reads the cluster, decides what to do, validates every object by a server-side
//! dry run, and only then writes.
//!
//! A second run changes nothing. Objects that an earlier run of `karpenter install` created and that are no longer
//! needed are deleted. Objects of other installers are not changed unless the user passes `--take-over`.

mod apply;
mod wait;

use std::collections::BTreeSet;
use std::time::Duration;

use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::controllers::{self, Controller, REPLICAS_BEFORE, TAKEN_OVER_BY};
use crate::kinds::{self, DEPLOYMENT, INSTALLED, Kind, place, title};
use crate::owner::{Existing, Owner, objections};
use crate::settings::Settings;
use crate::{Error, MANAGER, Progress, leases, manifests};

/// The options of an installation.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Whether other controllers are scaled to zero, and objects without an owner are adopted (`--take-over`).
    pub takes_over: bool,
    /// Whether the steps are only reported, not executed.
    pub is_dry_run: bool,
    /// How long to wait for the controller to become ready; `None` means not at all.
    pub wait: Option<Duration>,
}

pub async fn install(
    client: &Client,
    clock: Clock,
    settings: &Settings,
    choices: &Choices,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let wanted = manifests::build(settings)?;
    let mut found = Vec::new();
    for object in &wanted {
        found.push(apply::read(client, object).await?);
    }
    let running = controllers::find(client).await?;
    let now = clock.now();
    let held: Vec<leases::Lease> =
        leases::find(client).await?.into_iter().filter(|lease| lease.is_held(now)).collect();
    let existing = Existing {
        objects: wanted.iter().zip(found.iter().cloned()).collect(),
        controllers: &running,
        held_leases: &held,
        brings_controller: settings.brings_controller(),
        name: &settings.name,
        namespace: &settings.namespace,
        takes_over: choices.takes_over,
    };
    let objections = objections(&existing);
    if !objections.is_empty() {
        return Err(Error::Refused(objections));
    }
    apply::dry_run(client, &wanted, &found).await?;
    let superfluous = superfluous(client, settings, &wanted).await?;
    let other_controllers: Vec<&Controller> = running
        .iter()
        .filter(|controller| {
            choices.takes_over && settings.brings_controller() && is_other_controller(controller, settings)
        })
        .collect();
    if choices.is_dry_run {
        for (object, found) in wanted.iter().zip(&found) {
            let verb = if found.is_some() { "apply" } else { "create" };
            progress(&format!("would {verb} {}", title(object)));
        }
        other_controllers.iter().for_each(|other| {
            progress(&format!("would scale Deployment {}/{} to zero", other.namespace, other.name));
        });
        superfluous.iter().for_each(|object| progress(&format!("would delete {}", title(object))));
        return Ok(());
    }
    for other in other_controllers {
        scale_to_zero_and_wait(client, clock, other, settings, progress).await?;
    }
    for (object, found) in wanted.iter().zip(&found) {
        apply::apply(client, clock, object, found.as_ref(), progress).await?;
    }
    for object in &superfluous {
        delete(client, object, progress).await?;
    }
    match choices.wait {
        Some(patience) if settings.brings_controller() => {
            wait::until_ready(client, clock, settings, patience, progress).await
        }
        _ => Ok(()),
    }
}

fn is_other_controller(controller: &Controller, settings: &Settings) -> bool {
    controller.replicas > 0
        && controller.owner != Owner::Us(settings.name.clone())
        && (&controller.namespace, &controller.name) != (&settings.namespace, &settings.name)
}

/// Objects that an earlier run installed under this name and that this run does not need.
async fn superfluous(client: &Client, settings: &Settings, wanted: &[Value]) -> Result<Vec<Value>, Error> {
    if settings.scope == crate::settings::Scope::OnlyDefinitions {
        return Ok(Vec::new());
    }
    let titles: BTreeSet<String> = wanted.iter().map(title).collect();
    let mut left = installed(client, &settings.name).await?;
    left.retain(|object| !titles.contains(&title(object)));
    Ok(left)
}

/// All objects that have our label and this installation name, in the order in which they must be deleted.
pub(crate) async fn installed(client: &Client, name: &str) -> Result<Vec<Value>, Error> {
    let selector = format!("app.kubernetes.io/managed-by={MANAGER},app.kubernetes.io/instance={name}");
    let mut found = Vec::new();
    for kind in INSTALLED {
        let what = format!("cannot list {}s", kind.kind);
        found.extend(kinds::list(client, kind, &selector).await.map_err(Error::api(what))?);
    }
    Ok(found)
}

/// Deletes an object. If it does not exist, this is not an error.
pub(crate) async fn delete(client: &Client, object: &Value, progress: Progress<'_>) -> Result<(), Error> {
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    match place(client, object).delete(kinds::name(object), &parameters).await {
        Ok(_) => progress(&format!("deleted {}", title(object))),
        Err(error) if kinds::is_not_found(&error) => {}
        Err(error) => return Err(Error::api(format!("cannot delete {}", title(object)))(error)),
    }
    Ok(())
}

/// Scales another controller to zero, records how many replicas it had, and waits until its pods are gone.
async fn scale_to_zero_and_wait(
    client: &Client,
    clock: Clock,
    other: &Controller,
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"annotations": {
            REPLICAS_BEFORE: other.replicas.to_string(),
            TAKEN_OVER_BY: settings.name,
        }},
        "spec": {"replicas": 0},
    });
    patch_deployment(client, other, &patch).await?;
    progress(&format!(
        "scaled Deployment {}/{} from {} to zero; karpenter uninstall --nodes hand-over restores it",
        other.namespace, other.name, other.replicas
    ));
    wait::until_stopped(client, clock, &other.namespace, &other.name).await
}

pub(crate) async fn patch_deployment(
    client: &Client,
    which: &Controller,
    patch: &Value,
) -> Result<(), Error> {
    let api = DEPLOYMENT.within(client, Some(&which.namespace));
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let what = format!("cannot scale Deployment {}/{}", which.namespace, which.name);
    api.patch(&which.name, &parameters, &Patch::Merge(patch)).await.map_err(Error::api(what))?;
    Ok(())
}

pub(crate) use wait::until_stopped;

/// The kind that a CRD defines; objects of this kind prevent the deletion of the CRD.
pub(crate) fn definition_kind(definition: &Value) -> Option<(Kind, &'static str)> {
    let name = kinds::name(definition);
    let all = karpenter_api::crds::all().iter().chain(karpenter_api::crds::legacy());
    let crd = all.into_iter().find(|crd| crd.name == name)?;
    Some((Kind { group: crd.group, version: crd.version, kind: crd.kind }, crd.name))
}
