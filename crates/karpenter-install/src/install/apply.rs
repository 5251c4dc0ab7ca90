//! Applies objects by server-side apply: first a dry run for all objects, then one real request after another.

use std::time::Duration;

use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::kinds::{self, DEFINITION, condition, place, text, title};
use crate::{Error, MANAGER, Progress};

const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reads the object of the same kind and name from the cluster; `None` if it does not exist.
pub(super) async fn read(client: &Client, object: &Value) -> Result<Option<Value>, Error> {
    let what = format!("cannot read {}", title(object));
    match place(client, object).get_opt(kinds::name(object)).await {
        Ok(found) => Ok(found.map(|found| serde_json::to_value(found).unwrap_or_default())),
        // If the server does not know the kind, the object does not exist.
        Err(error) if kinds::is_not_found(&error) => Ok(None),
        Err(error) => Err(Error::api(what)(error)),
    }
}

/// Lets the API server validate every object before the first one is written. If the namespace of an object does not
/// exist yet, the object cannot be validated.
pub(super) async fn dry_run(client: &Client, wanted: &[Value], found: &[Option<Value>]) -> Result<(), Error> {
    let new_namespace = wanted.iter().zip(found).find_map(|(object, found)| {
        (object["kind"] == kinds::NAMESPACE.kind && found.is_none()).then(|| kinds::name(object))
    });
    let mut refusals = Vec::new();
    for object in wanted {
        let namespace = text(object, "/metadata/namespace");
        if new_namespace.is_some_and(|new| new == namespace) {
            continue;
        }
        let parameters = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
        match place(client, object).patch(kinds::name(object), &parameters, &Patch::Apply(object)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) => {
                refusals.push(format!("{} would be rejected: {}", title(object), status.message));
            }
            Err(error) => return Err(Error::api(format!("cannot validate {}", title(object)))(error)),
        }
    }
    if refusals.is_empty() { Ok(()) } else { Err(Error::Refused(refusals)) }
}

/// Applies one object and reports the result. For a CRD, it waits until the kind is served.
pub(super) async fn apply(
    client: &Client,
    clock: Clock,
    object: &Value,
    found: Option<&Value>,
    progress: Progress<'_>,
) -> Result<(), Error> {
    // A namespace that exists is not changed.
    if found.is_some() && object["kind"] == kinds::NAMESPACE.kind {
        progress(&format!("unchanged {}", title(object)));
        return Ok(());
    }
    let api = place(client, object);
    let parameters = PatchParams::apply(MANAGER).force();
    let what = format!("cannot apply {}", title(object));
    let answer =
        api.patch(kinds::name(object), &parameters, &Patch::Apply(object)).await.map_err(Error::api(what))?;
    let before = found.map(|found| text(found, "/metadata/resourceVersion").to_owned());
    let verb = match before {
        None => "created",
        Some(before) if Some(&before) == answer.metadata.resource_version.as_ref() => "unchanged",
        Some(_) => "changed",
    };
    progress(&format!("{verb} {}", title(object)));
    if object["kind"] == DEFINITION.kind {
        until_established(client, clock, kinds::name(object)).await?;
    }
    Ok(())
}

async fn until_established(client: &Client, clock: Clock, name: &str) -> Result<(), Error> {
    let deadline = clock.now() + ESTABLISHED_TIMEOUT;
    loop {
        let found =
            DEFINITION.all(client).get(name).await.map_err(Error::api(format!("cannot read {name}")))?;
        let found = serde_json::to_value(found).unwrap_or_default();
        if condition(&found, "Established").is_some_and(|(status, ..)| status == "True") {
            return Ok(());
        }
        if let Some((_, reason, message)) =
            condition(&found, "NamesAccepted").filter(|(status, ..)| *status == "False")
        {
            return Err(Error::Refused(vec![format!(
                "definition {name} is not served: {reason}: {message}"
            )]));
        }
        if clock.now() >= deadline {
            return Err(Error::TimedOut(format!(
                "definition {name} is not served after {} s; run the command again",
                ESTABLISHED_TIMEOUT.as_secs()
            )));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}
