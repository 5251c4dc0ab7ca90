//! Releases nodes from Karpenter: removes the finalizers and taints that only Karpenter would remove, and the owner
//! reference to the NodeClaim, because deleting the NodeClaim would delete the Node. NodeClaims are kept as records.

use std::time::Duration;

use karpenter_api::labels::{
    EXCLUDE_FROM_LOAD_BALANCERS, EXCLUDE_FROM_LOAD_BALANCERS_VALUE, TAINT_DISRUPTED, TAINT_UNREGISTERED,
};
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::plan::other_finalizers;
use crate::kinds::{self, entry, finalizers, name, place, text, title};
use crate::{Error, MANAGER, Progress, leases};

const ATTEMPTS_MAX: u32 = 5;
const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The patch that releases an object; `None` if the object needs none.
pub(super) fn patch(object: &Value) -> Option<Value> {
    let mut metadata = json!({});
    let mut patch = json!({});
    let kept = other_finalizers(object);
    if kept.len() != finalizers(object).len() {
        metadata["finalizers"] = json!(kept);
    }
    if object["kind"] == "Node" {
        let taints = object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_foreign = |taint: &&Value| {
            let key = text(taint, "/key");
            key != TAINT_DISRUPTED && key != TAINT_UNREGISTERED
        };
        let others: Vec<&Value> = taints.iter().filter(is_foreign).collect();
        if others.len() != taints.len() {
            patch["spec"]["taints"] = json!(others);
        }
        let owners = object
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let others: Vec<&Value> = owners.iter().filter(|owner| text(owner, "/kind") != "NodeClaim").collect();
        if others.len() != owners.len() {
            metadata["ownerReferences"] = json!(others);
        }
        if entry(object, "/metadata/labels", EXCLUDE_FROM_LOAD_BALANCERS)
            == Some(EXCLUDE_FROM_LOAD_BALANCERS_VALUE)
        {
            metadata["labels"][EXCLUDE_FROM_LOAD_BALANCERS] = Value::Null;
        }
    }
    if metadata != json!({}) {
        patch["metadata"] = metadata;
    }
    (patch != json!({})).then_some(patch)
}

pub(super) async fn release(client: &Client, objects: &[Value], progress: Progress<'_>) -> Result<(), Error> {
    for object in objects {
        let api = place(client, object);
        let what = || format!("cannot release {}", title(object));
        // A merge patch replaces whole lists, so it must fail if the object was changed in the meantime; then it is
        // computed again.
        for attempt in 1..=ATTEMPTS_MAX {
            let Some(current) = api.get_opt(name(object)).await.map_err(Error::api(what()))? else { break };
            let mut current = serde_json::to_value(current).unwrap_or_default();
            current["kind"] = object["kind"].clone();
            let Some(mut patch) = patch(&current) else { break };
            patch["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            let parameters =
                PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            match api.patch(name(object), &parameters, &Patch::Merge(&patch)).await {
                Ok(_) => {
                    progress(&format!("released {}", title(object)));
                    break;
                }
                Err(error) if kinds::is_not_found(&error) => break,
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS_MAX => {}
                Err(error) => return Err(Error::api(what())(error)),
            }
        }
    }
    Ok(())
}

/// Waits until the Lease in a namespace is released or has expired.
pub(super) async fn until_lease_is_released(
    client: &Client,
    clock: Clock,
    namespace: &str,
) -> Result<(), Error> {
    let deadline = clock.now() + LEASE_TIMEOUT;
    loop {
        let now = clock.now();
        let found = leases::find(client).await?;
        let Some(held) = found.iter().find(|lease| lease.namespace == namespace && lease.is_held(now)) else {
            return Ok(());
        };
        if now >= deadline {
            return Err(Error::TimedOut(format!(
                "the controller was stopped, but {} still renews the lease {namespace}/{}: it runs outside of this \
                 installation; stop it and run the command again",
                held.holder, held.name
            )));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}
