//! Pods that lost the name of their planned node, or never got it, are told when the node is open.
//!
//! Names come too early where somebody else takes the last obstacle off: the scheduler tries the pod in between and
//! forgets the name. A pod is told again only while its node is open and has room for it, a few times and no more, and
//! never over a name that the scheduler wrote. A pod whose room others took loses its place, and its name if it has one,
//! and is planned anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use karpenter_state::pod::Pod;

use super::door::{Door, door};
use super::room::Room;
use super::{clear, node_of, nominate_all};
use crate::context::Context;
use crate::mirrors::{BY_NODE, BY_PROVIDER_ID};
use crate::pods;
use crate::state::Place;

/// How often a pod is told again.
const TRIES_MAX: u32 = 4;
/// How long the scheduler has to take note of a name before it is looked whether it did.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Works claim by claim.
pub struct Renomination {
    context: Context,
    /// How often pods were told again, by claim and pod.
    tries: Mutex<BTreeMap<String, BTreeMap<String, u32>>>,
}

impl Renomination {
    pub fn new(context: Context) -> Self {
        Self { context, tries: Mutex::default() }
    }

    /// A name that is gone, a node that has opened, and a pod that was bound where others were expected.
    pub fn watch(&self, queue: &Queue) {
        if !self.context.nominates_pods {
            return;
        }
        let (to, state) = (queue.clone(), self.context.state.clone());
        let (nodes, claims) = (self.context.mirrors.nodes.clone(), self.context.mirrors.node_claims.clone());
        self.context.mirrors.pods.observe(move |change: &Change<Pod>| {
            let pod = change.object();
            if let Change::Applied { old: Some(old), new } = change
                && !pods::is_bound(old)
                && let Some(node) = pods::node_name(new).and_then(|name| nodes.get("", name))
            {
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                let claims = id.map(|id| claims.by(BY_PROVIDER_ID, id)).unwrap_or_default();
                let keys = claims.iter().map(|claim| ObjectKey::of(&claim.metadata));
                keys.filter(|key| !state.places_on(&key.name).is_empty()).for_each(|key| to.add(key));
            }
            if change.is_deleted() || pods::is_bound(pod) || pods::nominated_node(pod).is_some() {
                return;
            }
            if let Some(place) = state.place_of(pods::uid_of(pod)).filter(|place| place.nominated.is_some()) {
                to.add(ObjectKey::new("", place.claim));
            }
        });
        let to = queue.clone();
        self.context.mirrors.node_claims.observe(move |change: &Change<NodeClaim>| {
            if change.is_deleted() {
                // What was counted for it is forgotten.
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let (to, context) = (queue.clone(), self.context.clone());
        self.context.mirrors.nodes.observe(move |change: &Change<Node>| {
            let Change::Applied { old: Some(old), new } = change else { return };
            let id = new.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            for claim in id.map(|id| context.mirrors.node_claims.by(BY_PROVIDER_ID, id)).unwrap_or_default() {
                if door(old, Some(&claim)) != Door::Open && door(new, Some(&claim)) == Door::Open {
                    to.add(ObjectKey::of(&claim.metadata));
                }
            }
        });
    }

    fn tries(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, u32>>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Renomination {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let (context, claim_name) = (&self.context, key.name.as_str());
        let claim = context.mirrors.node_claims.get("", claim_name);
        let node = node_of(context, claim_name, claim.as_deref());
        let places = context.state.places_on(claim_name);
        let Some(node) = node.filter(|_| !places.is_empty()) else {
            self.tries().remove(claim_name);
            return Ok(After::Done);
        };
        if door(&node, claim.as_deref()) != Door::Open {
            return Ok(After::Done);
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let on_it = context.mirrors.pods.by(BY_NODE, name);
        let waiting = places.into_iter().filter_map(|place| {
            let pod = context.mirrors.pods.get_key(&place.pod)?;
            (pods::uid_of(&pod) == place.uid && pods::is_waiting(&pod)).then_some((place, pod))
        });
        let Judged { lost, crowded_out } = judge(&node, &on_it, waiting.collect());
        // A name that leads nowhere would be tried first, again and again.
        clear(context, &crowded_out).await;
        for place in crowded_out {
            tracing::debug!(pod = %place.pod, node = name, "the room of the pod was taken by others");
            context.state.lose_place(&place.uid);
        }
        let lost = count_tries(&mut self.tries(), claim_name, lost);
        if lost.is_empty() {
            return Ok(After::Done);
        }
        nominate_all(context, lost, name).await;
        Ok(After::Again(LOOK_AGAIN))
    }
}

/// Those that may be told once more, which is counted. Nothing is kept of a claim whose pods have all known their node.
fn count_tries(
    tries: &mut BTreeMap<String, BTreeMap<String, u32>>,
    claim: &str,
    lost: Vec<Place>,
) -> Vec<Place> {
    if lost.is_empty() {
        return lost;
    }
    let tries = tries.entry(claim.to_owned()).or_default();
    let may_be_told = |place: &Place| {
        let tried = tries.entry(place.uid.clone()).or_insert(0);
        *tried += 1;
        *tried <= TRIES_MAX
    };
    lost.into_iter().filter(may_be_told).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    /// Without the name, though there is room.
    lost: Vec<Place>,
    /// Without room: without the name, or with it and beside pods that stay.
    crowded_out: Vec<Place>,
}

/// Sorts the pods that still wait for an open node. Those that have its name are counted first: the scheduler keeps
/// their room.
fn judge(node: &Node, on_it: &[Arc<Pod>], waiting: Vec<(Place, Arc<Pod>)>) -> Judged {
    let mut judged = Judged::default();
    let name = node.metadata.name.as_deref();
    let (named, others): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|(_, pod)| name.is_some() && pods::nominated_node(pod) == name);
    let mut room = Room::of(node, on_it);
    let mut room_in_the_end = Room::in_the_end(node, on_it);
    for (place, pod) in named {
        room.take(&pod);
        if !room_in_the_end.take(&pod) {
            judged.crowded_out.push(place);
        }
    }
    for (place, pod) in others {
        if pods::nominated_node(&pod).is_some() {
            // Somebody else's, which is the scheduler's to decide about.
            continue;
        }
        if room.take(&pod) {
            judged.lost.push(place);
        } else {
            judged.crowded_out.push(place);
        }
    }
    judged
}

#[cfg(test)]
mod tests;
