//! Tells the scheduler where a pod was planned: names the node in the pod's status right before the node opens.
//!
//! A plan that fits tightly is worth nothing if the scheduler fills the nodes in another order. A scheduler from 1.35
//! on tries the nominated node first and keeps its room for the pod; one named too early is forgotten at the next
//! failed attempt, so the name is written as the last thing before the last obstacle on the node goes. The scheduler's
//! own nominations are never touched.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::mirrors::BY_PROVIDER_ID;
use crate::pods;
use crate::state::Place;

/// Writes that are under way at the same time.
const AT_ONCE: usize = 16;
/// How often a write is tried again because the scheduler touched the pod meanwhile.
const TRIES_MAX: usize = 3;
/// Taints that Kubernetes takes off by itself once the node is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Names the claim's node in the status of the pods that were planned for it. To be called right before the last
/// obstacle on the node goes, and as often as it seems that it does: while anything else still keeps pods away,
/// nothing is done. Whatever fails is left to the scheduler.
pub async fn nominate_for(context: &Context, claim_name: &str) {
    if !context.nominates_pods {
        return;
    }
    let Some(claim) = context.mirrors.node_claims.get("", claim_name) else { return };
    let Some(node) = node_of(context, &claim) else { return };
    if !is_about_to_open(&node, &claim) {
        return;
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    let places = context.state.places_on(claim_name);
    stream::iter(places)
        .map(|place| nominate(context, place, &name))
        .buffered(AT_ONCE)
        .for_each(|()| std::future::ready(()))
        .await;
}

/// Takes back names that this process wrote and that no longer hold. What fails is left to the scheduler, which forgets
/// the name of a node that does not take the pod.
pub async fn clear(context: &Context, places: &[Place]) {
    for place in places {
        let Some(node) = &place.nominated else { continue };
        let is_ours = |pod: &Pod| pods::nominated_node(pod) == Some(node.as_str());
        if let Err(error) = write(context, place, is_ours, None).await {
            tracing::debug!(pod = %place.pod, node, %error, "planned node of the pod could not be taken back");
        }
    }
}

async fn nominate(context: &Context, place: Place, node: &str) {
    let is_free =
        |pod: &Pod| pods::nominated_node(pod).is_none_or(|name| place.nominated.as_deref() == Some(name));
    match write(context, &place, is_free, Some(node)).await {
        Ok(true) => context.state.set_nominated(&place.uid, Some(node)),
        Ok(false) => {}
        Err(kube::Error::Api(status)) if status.code == 403 => {
            if context.state.is_first_refusal() {
                let message = &status.message;
                tracing::warn!(message, "pods cannot be told their planned node; the scheduler places them");
            }
        }
        Err(error) => {
            tracing::debug!(pod = %place.pod, node, %error, "pod could not be told its planned node");
        }
    }
}

/// Writes the name if the pod still waits and `may` says so of it; only over the version that was judged.
async fn write(
    context: &Context,
    place: &Place,
    may: impl Fn(&Pod) -> bool,
    node: Option<&str>,
) -> kube::Result<bool> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &place.pod.namespace);
    let mut pod = context.mirrors.pods.get(&place.pod.namespace, &place.pod.name);
    for _ in 0..TRIES_MAX {
        let Some(current) = pod.filter(|pod| pods::uid_of(pod) == place.uid) else { return Ok(false) };
        if pods::is_bound(&current) || !pods::is_active(&current) || !may(&current) {
            return Ok(false);
        }
        if pods::nominated_node(&current) == node {
            return Ok(true);
        }
        let patch = json!({
            "metadata": {"uid": place.uid, "resourceVersion": current.metadata.resource_version},
            "status": {"nominatedNodeName": node},
        });
        let patch = Patch::Merge(patch);
        match api.patch_status(&place.pod.name, &PatchParams::default(), &patch).await {
            Ok(written) => {
                context.mirrors.pods.apply(written);
                return Ok(true);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                pod = api.get_opt(&place.pod.name).await?.map(Arc::new);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn node_of(context: &Context, claim: &NodeClaim) -> Option<Arc<Node>> {
    let status = claim.status.as_ref()?;
    let by_name = || context.mirrors.nodes.get("", status.node_name.as_deref()?);
    let id = status.provider_id.as_deref().filter(|id| !id.is_empty());
    let by_id = id.and_then(|id| context.mirrors.nodes.by(BY_PROVIDER_ID, id).into_iter().next());
    by_id.or_else(by_name)
}

/// Whether nothing keeps pods from the node but what goes right now: the unregistered taint, which the caller takes
/// off, and the taint of a node that was not ready, which follows its condition.
fn is_about_to_open(node: &Node, claim: &NodeClaim) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let startup = claim.spec.startup_taints.as_deref().unwrap_or_default();
    let is_obstacle = |taint: &Taint| {
        let goes_now = [labels::TAINT_UNREGISTERED, NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
        let is_startup = startup.iter().any(|one| one.key == taint.key && one.effect == taint.effect);
        let is_temporary = is_startup || labels::is_ephemeral_taint(&taint.key, &taint.effect);
        taint.effect != "PreferNoSchedule" && is_temporary && !goes_now
    };
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    is_ready && !taints.into_iter().any(is_obstacle)
}
