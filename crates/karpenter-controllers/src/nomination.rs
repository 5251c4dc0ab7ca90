//! Tells the scheduler where a pod was planned: names the node in the pod's status right before the node opens.
//!
//! A plan that fits tightly is worth nothing if the scheduler fills the nodes in another order. A scheduler from 1.35
//! on tries the nominated node first and keeps its room for the pod; one named too early is forgotten at the next
//! failed attempt, so the name is written as the last thing before the last obstacle on the node goes. The scheduler's
//! own nominations are never touched.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
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

/// Names the claim's node in the status of the pods that were planned for it. To be called right before the last
/// obstacle on the node goes; while a start-up taint is on the node, or without a node, nothing is done. Whatever
/// fails is left to the scheduler.
pub async fn nominate_for(context: &Context, claim_name: &str) {
    if !context.nominates_pods {
        return;
    }
    let Some(claim) = context.mirrors.node_claims.get("", claim_name) else { return };
    let Some(node) = node_of(context, &claim) else { return };
    if has_startup_taint(&node, &claim) {
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

/// Takes back names that this process wrote and that no longer hold.
pub async fn clear(context: &Context, places: &[Place]) -> kube::Result<()> {
    for place in places {
        let Some(node) = &place.nominated else { continue };
        let is_ours = |pod: &Pod| pods::nominated_node(pod) == Some(node.as_str());
        write(context, place, is_ours, None).await?;
    }
    Ok(())
}

/// Claims of a registered node whose pods have not been told, although nothing keeps them from the node any more:
/// somebody else took the last start-up taint away. At worst the name comes a little late.
pub(crate) fn claims_to_nominate(context: &Context, node: &Node) -> Vec<String> {
    let has_label = |key: &str| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    if !context.nominates_pods || !has_label(labels::REGISTERED) || has_label(labels::INITIALIZED) {
        return Vec::new();
    }
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let claims = context.mirrors.node_claims.by(BY_PROVIDER_ID, id);
    let names = claims.iter().filter(|claim| claim.spec.startup_taints.is_some()).filter(|claim| {
        let places = context.state.places_on(claim.metadata.name.as_deref().unwrap_or_default());
        !has_startup_taint(node, claim) && places.iter().any(|place| place.nominated.is_none())
    });
    names.filter_map(|claim| claim.metadata.name.clone()).collect()
}

async fn nominate(context: &Context, place: Place, node: &str) {
    let is_free =
        |pod: &Pod| pods::nominated_node(pod).is_none_or(|name| place.nominated.as_deref() == Some(name));
    if let Ok(true) = write(context, &place, is_free, Some(node)).await {
        context.state.set_nominated(&place.uid, Some(node));
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

/// Whether something else has yet to open the node.
fn has_startup_taint(node: &Node, claim: &NodeClaim) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let startup = claim.spec.startup_taints.as_deref().unwrap_or_default();
    taints.into_iter().any(|taint| {
        taint.effect != "PreferNoSchedule"
            && startup.iter().any(|one| one.key == taint.key && one.effect == taint.effect)
    })
}
