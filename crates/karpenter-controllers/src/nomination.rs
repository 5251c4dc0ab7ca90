//! Tells the scheduler where a pod was planned: names the node in the pod's status right before the node opens.
//!
//! A plan that fits tightly is worth nothing if the scheduler fills the nodes in another order. A scheduler from 1.35
//! on tries the nominated node first and keeps its room for the pod; one named too early is forgotten at the next
//! failed attempt, so the name is written as the last thing before the last obstacle on the node goes. The scheduler's
//! own nominations are never touched. So that the last obstacle is ours, our own taint stays a moment longer on a
//! node that is about to become ready ([`Doors`]); where it cannot be, pods are told once more when the node is open
//! ([`Renomination`]).

mod again;
mod door;
mod gathering;
mod room;
mod standby;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::since;
use karpenter_cluster::controllers::context::{is_deleting, label, name_of, uid_of};
use karpenter_cluster::harness::Queue;
use karpenter_cluster::mirror::ObjectKey;
use karpenter_cluster::mirror::lean::Lean;
use karpenter_disruption::fleet::Reason;
use karpenter_model::problem::Mode;
use karpenter_state::pod::{Pod, Slim};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

pub use self::again::Renomination;
use self::door::Door;
use self::gathering::{Answer, Gathering};
pub(crate) use self::room::Room;
use self::standby::Standby;
pub(crate) use self::standby::is_anyone_expected;
use crate::context::Context;
use crate::disruption::created_for;
use crate::mirrors::BY_PROVIDER_ID;
use crate::nodeclaim::lifecycle::has_all_resources;
use crate::pods;
use crate::state::Place;

/// Writes that are under way at the same time.
const AT_ONCE: usize = 64;
/// How often a write is tried again because the scheduler touched the pod meanwhile.
const TRIES_MAX: usize = 3;
/// Nodes that were held at the door and never opened are forgotten after this long.
const DOOR_FORGOTTEN: Duration = Duration::from_secs(120);
/// How often it is looked whether pods that commands move to a node are on their way.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Names the claim's node in the status of the pods that were planned for it. To be called right before the last
/// obstacle on the node goes, and as often as it seems that it does: while anything else still keeps pods away,
/// nothing is done. Whatever fails is left to the scheduler.
pub async fn nominate_for(context: &Context, claim_name: &str) {
    if !context.nominates_pods {
        return;
    }
    let told = places_at_the_door(context, claim_name);
    let Some(name) = told.first().map(|(_, name)| name.clone()) else { return };
    nominate_all(context, told.into_iter().map(|(place, _)| place).collect(), &name).await;
}

async fn nominate_all(context: &Context, places: Vec<Place>, node: &str) {
    stream::iter(places)
        .map(|place| nominate(context, place, node))
        .buffered(AT_ONCE)
        .for_each(|()| std::future::ready(()))
        .await;
}

/// Nodes on their way to being opened: those whose unregistered taint waits for other obstacles to go first, and those
/// that wait for each other. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Doors {
    seen_since: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Nodes that wait for pods that commands move there, by uid of the claim.
    standbys: Arc<Mutex<BTreeMap<String, Standby>>>,
    gathering: Arc<Mutex<Gathering>>,
    /// Where claims wait to be looked at.
    claims: Arc<OnceLock<Queue>>,
}

impl Doors {
    /// Claims that are put there are looked at again at once.
    pub fn connect(&self, claims: &Queue) {
        // The first one stays: there is one controller of claims.
        let _ = self.claims.set(claims.clone());
    }

    /// Tells the pods planned for the claim, and those of all nodes that open together with its node if it is the one
    /// to do so. The others then open at once, those with the most pods first.
    pub async fn open(&self, context: &Context, claim_name: &str) {
        if !context.nominates_pods {
            return;
        }
        let together = self.gathering().take(claim_name);
        if together.is_empty() {
            // Those that were told together are told once more, one by one: since the first node opened, the scheduler has
            // tried pods whose own was still closed, and forgot the name. A pod that still has it costs no request. Where
            // the node is open already others may have taken the room, which is [`Renomination`]'s to look at.
            let (is_waiting, was_told) = {
                let gathering = self.gathering();
                (gathering.is_waiting(claim_name), gathering.was_told(claim_name))
            };
            let is_seen_to = is_waiting || (was_told && is_open(context, claim_name));
            if !is_seen_to {
                nominate_for(context, claim_name).await;
            }
            return;
        }
        let told: Vec<(Place, String)> =
            together.iter().flat_map(|claim| places_at_the_door(context, claim)).collect();
        stream::iter(told)
            .map(|(place, node)| async move { nominate(context, place, &node).await })
            .buffered(AT_ONCE)
            .for_each(|()| std::future::ready(()))
            .await;
        self.gathering().told(claim_name, &together, context.clock.now());
        if let Some(claims) = self.claims.get() {
            together.into_iter().for_each(|claim| claims.add(ObjectKey::new("", claim)));
        }
    }

    /// How much longer the unregistered taint should stay on the node, looked at again whenever the node changes; `None`
    /// if it should go now. Only nodes that pods were planned for are held, and only for moments.
    pub fn hold(&self, context: &Context, claim: &NodeClaim, node: &Node) -> Option<Duration> {
        context.state.set_standing_by(name_of(claim), false);
        let is_planned_for = || {
            !context.state.places_on(name_of(claim)).is_empty()
                || !context.state.vacancies_of_moves(name_of(claim)).is_empty()
        };
        if !context.nominates_pods || !is_planned_for() {
            return None;
        }
        let now = context.clock.now();
        let mut seen_since = self.seen_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since_when = *seen_since.entry(uid_of(claim).to_owned()).or_insert(now);
        let wait = door::hold(node, claim, since(now, since_when));
        if wait.is_some() {
            return wait;
        }
        seen_since.remove(uid_of(claim));
        seen_since.retain(|_, at| since(now, *at) < DOOR_FORGOTTEN);
        drop(seen_since);
        if door::door(node, Some(claim)) != Door::Ours {
            return None;
        }
        if self.stands_by(context, claim, node, now) {
            context.state.set_standing_by(name_of(claim), true);
            return Some(LOOK_AGAIN);
        }
        let pods = context.state.places_on(name_of(claim)).len();
        let is_anyone_coming = |there: &BTreeMap<String, usize>| is_anyone_coming(context, there);
        match self.gathering().ask(name_of(claim), pods, now, is_anyone_coming) {
            Answer::Wait(wait) => Some(wait),
            Answer::Lead | Answer::Go => None,
        }
    }

    /// Whether the node, finished but for our taint, shall stay closed for pods that a command moves there.
    fn stands_by(&self, context: &Context, claim: &NodeClaim, node: &Node, now: Timestamp) -> bool {
        let is_finished =
            claim.spec.startup_taints.iter().flatten().next().is_none() && has_all_resources(claim, node);
        // What is sick or expired goes when its replacement is open.
        let stands_by = matches!(created_for(claim), Some(Reason::Underutilized | Reason::Drifted));
        if !is_finished || !stands_by || context.settings.planner.mode != Mode::Cost {
            return false;
        }
        let coming = standby::coming(context, name_of(claim), now);
        let mut standbys = self.standbys.lock().unwrap_or_else(PoisonError::into_inner);
        standbys.retain(|_, standby| since(now, standby.since()) < DOOR_FORGOTTEN);
        let standby = standbys.entry(uid_of(claim).to_owned()).or_insert_with(|| Standby::from(now));
        standby.goes_on(coming, now)
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a node that pods were planned for is there and not open yet, besides those at the door.
fn is_anyone_coming(context: &Context, there: &BTreeMap<String, usize>) -> bool {
    let others = context.state.claims_with_places().into_iter().filter(|claim| !there.contains_key(claim));
    others.filter(|name| !context.state.is_standing_by(name)).any(|name| {
        let claim = context.mirrors.node_claims.get("", &name);
        let node = node_of(context, &name, claim.as_deref());
        node.is_some_and(|node| matches!(door::door(&node, claim.as_deref()), Door::Unready | Door::Ours))
    })
}

fn is_open(context: &Context, claim_name: &str) -> bool {
    let claim = context.mirrors.node_claims.get("", claim_name);
    node_of(context, claim_name, claim.as_deref())
        .is_some_and(|node| door::door(&node, claim.as_deref()) == Door::Open)
}

/// The places on a claim whose node is about to open, with the node's name.
fn places_at_the_door(context: &Context, claim_name: &str) -> Vec<(Place, String)> {
    let claim = context.mirrors.node_claims.get("", claim_name);
    let Some(node) = node_of(context, claim_name, claim.as_deref()) else { return Vec::new() };
    if !door::is_about_to_open(&node, claim.as_deref()) {
        return Vec::new();
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    context.state.places_on(claim_name).into_iter().map(|place| (place, name.clone())).collect()
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
    if !context.state.may_ask_for_nomination(context.clock.now()) {
        return;
    }
    let former = context.state.name_of_ours(&place.uid);
    let is_free = |pod: &Pod| pods::nominated_node(pod).is_none_or(|name| former.as_deref() == Some(name));
    // Noted before it is written: the scheduler may take the name away before the answer is here, and a name that is
    // gone is looked for among those that are noted.
    context.state.set_nominated(&place.uid, Some(node));
    context.state.set_name_of_ours(&place.uid, Some(node));
    let outcome = write(context, &place, is_free, Some(node)).await;
    if !matches!(outcome, Ok(true)) {
        context.state.set_nominated(&place.uid, place.nominated.as_deref());
        context.state.set_name_of_ours(&place.uid, former.as_deref());
    }
    match outcome {
        Ok(true) => context.state.nomination_allowed(),
        Ok(false) => {}
        Err(kube::Error::Api(status)) if status.code == 403 => {
            if context.state.nomination_refused(context.clock.now()) {
                let error = &status.message;
                tracing::warn!(error, "cannot patch pods/status, pod nomination is disabled");
            }
        }
        Err(error) => {
            tracing::debug!(pod = %place.pod, node, %error, "failed to nominate node for pod");
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
    let api = Api::<Lean<Slim>>::namespaced(context.client.clone(), &place.pod.namespace);
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
            "metadata": {"uid": place.uid, "resourceVersion": current.resource_version()},
            "status": {"nominatedNodeName": node},
        });
        let patch = Patch::Merge(patch);
        match api.patch_status(&place.pod.name, &PatchParams::default(), &patch).await {
            Ok(Lean(written)) => {
                context.mirrors.pods.apply(written.into());
                return Ok(true);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                pod = api.get_opt(&place.pod.name).await?.map(|Lean(pod)| Arc::new(pod.into()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The node of a claim that stays, or the node of that name where there is no claim.
fn node_of(context: &Context, name: &str, claim: Option<&NodeClaim>) -> Option<Arc<Node>> {
    let nodes = &context.mirrors.nodes;
    let Some(claim) = claim else {
        // A node of ours whose claim is gone goes too.
        let is_ours = |node: &Arc<Node>| label(&**node, labels::NODEPOOL).is_some();
        return nodes.get("", name).filter(|node| !is_ours(node));
    };
    if is_deleting(claim) {
        return None;
    }
    let status = claim.status.as_ref()?;
    let by_name = || nodes.get("", status.node_name.as_deref()?);
    let id = status.provider_id.as_deref().filter(|id| !id.is_empty());
    let by_id = id.and_then(|id| nodes.by(BY_PROVIDER_ID, id).into_iter().next());
    by_id.or_else(by_name)
}
