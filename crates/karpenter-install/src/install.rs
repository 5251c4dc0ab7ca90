//! Puts an installation onto a cluster: looks, decides, checks every object with the API server, and only then writes.
//!
//! Writing twice changes nothing. Whatever an earlier run of ours left that is no longer wanted goes; nothing of anybody
//! else's does, unless taking over was asked for.

mod apply;
mod wait;

use std::collections::BTreeSet;
use std::time::Duration;

use karpenter_cluster::clock::Clock;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::controllers::{self, Controller, REPLICAS_BEFORE, TAKEN_OVER_BY};
use crate::kinds::{self, DEPLOYMENT, INSTALLED, Kind, place, title};
use crate::owner::{Met, Owner, objections};
use crate::settings::Settings;
use crate::{Error, MANAGER, Tell, leases, manifests};

/// How it is done.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Other controllers are scaled to zero, and objects that nobody signed become ours.
    pub takes_over: bool,
    /// Only looks and says.
    pub is_dry_run: bool,
    /// How long to wait until the controller is ready, if at all.
    pub wait: Option<Duration>,
}

pub async fn install(
    client: &Client,
    clock: Clock,
    settings: &Settings,
    choices: &Choices,
    tell: Tell<'_>,
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
    let met = Met {
        objects: wanted.iter().zip(found.iter().cloned()).collect(),
        controllers: &running,
        held_leases: &held,
        brings_controller: settings.brings_controller(),
        name: &settings.name,
        namespace: &settings.namespace,
        takes_over: choices.takes_over,
    };
    let objections = objections(&met);
    if !objections.is_empty() {
        return Err(Error::Refused(objections));
    }
    apply::rehearse(client, &wanted, &found).await?;
    let superfluous = superfluous(client, settings, &wanted).await?;
    let rivals: Vec<&Controller> = running
        .iter()
        .filter(|controller| {
            choices.takes_over && settings.brings_controller() && is_rival(controller, settings)
        })
        .collect();
    if choices.is_dry_run {
        for (object, found) in wanted.iter().zip(&found) {
            let verb = if found.is_some() { "apply" } else { "create" };
            tell(&format!("would {verb} {}", title(object)));
        }
        rivals.iter().for_each(|rival| {
            tell(&format!("would scale Deployment {}/{} to zero", rival.namespace, rival.name));
        });
        superfluous.iter().for_each(|object| tell(&format!("would delete {}", title(object))));
        return Ok(());
    }
    for rival in rivals {
        quiet(client, clock, rival, settings, tell).await?;
    }
    for (object, found) in wanted.iter().zip(&found) {
        apply::apply(client, clock, object, found.as_ref(), tell).await?;
    }
    for object in &superfluous {
        delete(client, object, tell).await?;
    }
    match choices.wait {
        Some(patience) if settings.brings_controller() => {
            wait::until_ready(client, clock, settings, patience, tell).await
        }
        _ => Ok(()),
    }
}

fn is_rival(controller: &Controller, settings: &Settings) -> bool {
    controller.replicas > 0
        && controller.owner != Owner::Us(settings.name.clone())
        && (&controller.namespace, &controller.name) != (&settings.namespace, &settings.name)
}

/// What an earlier run installed under this name and this one does not want.
async fn superfluous(client: &Client, settings: &Settings, wanted: &[Value]) -> Result<Vec<Value>, Error> {
    if settings.scope == crate::settings::Scope::OnlyDefinitions {
        return Ok(Vec::new());
    }
    let titles: BTreeSet<String> = wanted.iter().map(title).collect();
    let mut left = installed(client, &settings.name).await?;
    left.retain(|object| !titles.contains(&title(object)));
    Ok(left)
}

/// Everything that carries our mark and this name, in the order in which it is taken away.
pub(crate) async fn installed(client: &Client, name: &str) -> Result<Vec<Value>, Error> {
    let selector = format!("app.kubernetes.io/managed-by={MANAGER},app.kubernetes.io/instance={name}");
    let mut found = Vec::new();
    for kind in INSTALLED {
        let what = format!("cannot list {}s", kind.kind);
        found.extend(kinds::list(client, kind, &selector).await.map_err(Error::api(what))?);
    }
    Ok(found)
}

/// Deletes an object; one that is gone already is fine.
pub(crate) async fn delete(client: &Client, object: &Value, tell: Tell<'_>) -> Result<(), Error> {
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    match place(client, object).delete(kinds::name(object), &parameters).await {
        Ok(_) => tell(&format!("deleted {}", title(object))),
        Err(error) if kinds::is_not_found(&error) => {}
        Err(error) => return Err(Error::api(format!("cannot delete {}", title(object)))(error)),
    }
    Ok(())
}

/// Scales another controller to zero, remembers how many replicas it had, and waits until its pods have gone.
async fn quiet(
    client: &Client,
    clock: Clock,
    rival: &Controller,
    settings: &Settings,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"annotations": {
            REPLICAS_BEFORE: rival.replicas.to_string(),
            TAKEN_OVER_BY: settings.name,
        }},
        "spec": {"replicas": 0},
    });
    patch_deployment(client, rival, &patch).await?;
    tell(&format!(
        "scaled Deployment {}/{} from {} to zero; karpenter uninstall --nodes hand-over scales it up again",
        rival.namespace, rival.name, rival.replicas
    ));
    wait::until_stopped(client, clock, &rival.namespace, &rival.name).await
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

/// The kinds whose objects may keep a definition from being deleted.
pub(crate) fn definition_kind(definition: &Value) -> Option<(Kind, &'static str)> {
    let name = kinds::name(definition);
    let all = karpenter_api::crds::all().iter().chain(karpenter_api::crds::legacy());
    let crd = all.into_iter().find(|crd| crd.name == name)?;
    Some((Kind { group: crd.group, version: crd.version, kind: crd.kind }, crd.name))
}
