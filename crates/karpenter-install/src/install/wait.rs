//! Waits for Deployments, until one is ready or until its pods are gone.

use std::time::Duration;

use karpenter_runtime::clock::Clock;
use kube::Client;
use serde_json::Value;

use crate::kinds::{self, DEPLOYMENT, POD, condition, text};
use crate::settings::Settings;
use crate::{Error, Progress};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn until_ready(
    client: &Client,
    clock: Clock,
    settings: &Settings,
    patience: Duration,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let api = DEPLOYMENT.within(client, Some(&settings.namespace));
    let deadline = clock.now() + patience;
    let mut reported = None;
    loop {
        let found = api.get(&settings.name).await.map_err(Error::api("cannot read the Deployment"))?;
        let found = serde_json::to_value(found).unwrap_or_default();
        let available = available(&found);
        if available >= i64::from(settings.replicas) {
            progress(&format!("ready: {available} of {} replicas", settings.replicas));
            return Ok(());
        }
        if reported != Some(available) {
            progress(&format!("waiting: {available} of {} replicas are available", settings.replicas));
            reported = Some(available);
        }
        if clock.now() >= deadline {
            let why = reasons(client, settings).await;
            return Err(Error::TimedOut(format!(
                "{available} of {} replicas are available after {} s{why}; see kubectl --namespace {} describe \
                 pods --selector app.kubernetes.io/instance={}",
                settings.replicas,
                patience.as_secs(),
                settings.namespace,
                settings.name
            )));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// The number of available replicas in the newest revision of the Deployment.
fn available(deployment: &Value) -> i64 {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let is_observed = number("/status/observedGeneration") >= number("/metadata/generation");
    match is_observed {
        true => number("/status/availableReplicas").min(number("/status/updatedReplicas")),
        false => 0,
    }
}

/// Why the pods do not run, according to their status.
async fn reasons(client: &Client, settings: &Settings) -> String {
    let selector = format!("app.kubernetes.io/name=karpenter,app.kubernetes.io/instance={}", settings.name);
    let Ok(pods) = kinds::list(client, POD, &selector).await else { return String::new() };
    let mut lines: Vec<String> = pods.iter().filter_map(reason).collect();
    lines.sort();
    lines.dedup();
    if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) }
}

fn reason(pod: &Value) -> Option<String> {
    let waiting = pod.pointer("/status/containerStatuses/0/state/waiting");
    if let Some(waiting) = waiting {
        return Some(format!("{} {}", text(waiting, "/reason"), text(waiting, "/message")).trim().to_owned());
    }
    let (_, _, message) = condition(pod, "PodScheduled").filter(|(status, ..)| *status == "False")?;
    Some(format!("not scheduled: {message}"))
}

/// Waits until a Deployment, which was scaled to zero or deleted, has no pods.
pub(crate) async fn until_stopped(
    client: &Client,
    clock: Clock,
    namespace: &str,
    name: &str,
) -> Result<(), Error> {
    let api = DEPLOYMENT.within(client, Some(namespace));
    let deadline = clock.now() + STOP_TIMEOUT;
    loop {
        let what = format!("cannot read Deployment {namespace}/{name}");
        let Some(found) = api.get_opt(name).await.map_err(Error::api(what))? else { return Ok(()) };
        let found = serde_json::to_value(found).unwrap_or_default();
        let number = |pointer: &str| found.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let is_observed = number("/status/observedGeneration") >= number("/metadata/generation");
        if is_observed && number("/status/replicas") == 0 {
            return Ok(());
        }
        if clock.now() >= deadline {
            return Err(Error::TimedOut(format!(
                "Deployment {namespace}/{name} still has pods {} s after it was scaled to zero; once they are gone, run \
                 the command again",
                STOP_TIMEOUT.as_secs()
            )));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}
