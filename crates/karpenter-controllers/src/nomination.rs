//! Pod nomination: writes the planned node to `status.nominatedNodeName` of pending pods right before the node can
//! receive pods.
//!
//! A plan that fills nodes completely fails if the kube-scheduler binds pods to other nodes than planned. From
//! Kubernetes 1.35 on, the kube-scheduler tries the nominated node first and reserves its capacity for the pod. If the
//! nomination is written too early, the kube-scheduler drops it at the next failed scheduling attempt. Therefore it is
//! written just before the last obstacle on the node is removed. Nominations that the kube-scheduler wrote are never
//! changed.
//!
//! [`RegistrationGate`] keeps the taint `karpenter.sh/unregistered` a little longer on a node that is about to become
//! ready, so that this taint is the last obstacle. Where that is not possible, [`NominationController`] nominates again
//! once the node is open.
//!
//! A node is *open* if neither a taint nor its condition `Ready` keeps planned pods from being bound to it.

mod open_batch;
mod renomination;
mod replacement_hold;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::Reason;
use karpenter_model::problem::Mode;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{ObjectKey, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_state::claim::has_all_resources;

use self::open_batch::{BatchAnswer, OpenBatch};
pub use self::renomination::NominationController;
use self::replacement_hold::ReplacementHold;
use crate::annotations::created_for;
use crate::inputs::Reads;
use crate::nominations::node_access::{self, NodeAccess};
use crate::nominations::{
    CONCURRENT_WRITES_MAX, Nominator, node_of, nominate, reservations_to_nominate, write_nominations,
};
use crate::state::PodReservation;

/// How long the gate remembers a node that never opens.
const GATE_RECORD_TTL: Duration = Duration::from_secs(120);
/// How often the gate checks whether the pods that a command moves to a node are pending.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Decides when the taint `karpenter.sh/unregistered` is removed from a new node.
///
/// The gate waits until all other obstacles on the node are gone, until the pods that a command moves to it are
/// pending, and until nodes that become ready at about the same time can be opened together. Clones share the state.
#[derive(Clone)]
pub struct RegistrationGate {
    nominator: Nominator,
    /// The mode of the planner. Nodes are kept closed for moved pods only in mode `Cost`.
    mode: Mode,
    /// When the gate first saw a node, by uid of the claim.
    seen_since: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Nodes that are kept closed for moved pods, by uid of the claim.
    holds: Arc<Mutex<BTreeMap<String, ReplacementHold>>>,
    batch: Arc<Mutex<OpenBatch>>,
    /// The queue of the NodeClaim lifecycle controller.
    claims: Arc<OnceLock<Queue>>,
}

impl RegistrationGate {
    pub fn new(nominator: Nominator, mode: Mode) -> Self {
        Self {
            nominator,
            mode,
            seen_since: Arc::default(),
            holds: Arc::default(),
            batch: Arc::default(),
            claims: Arc::default(),
        }
    }

    /// Sets the queue through which the gate triggers a reconcile of a claim.
    pub fn connect(&self, claims: &Queue) {
        // Setting the queue a second time has no effect. That is correct, because there is only one lifecycle
        // controller.
        let _ = self.claims.set(claims.clone());
    }

    /// Nominates the claim's node for its pods before the node opens. If the claim leads a batch, nominates the nodes
    /// of all claims of the batch, and then triggers reconciles of these claims, those with the most pods first.
    pub async fn open(&self, claim_name: &str) {
        if !self.nominator.is_enabled {
            return;
        }
        let together = self.batch().take(claim_name);
        if together.is_empty() {
            // A node whose pods were nominated with its batch is nominated again: since the first node of the batch
            // opened, the kube-scheduler may have tried pods whose node was still closed and dropped their nomination.
            // Pods that still have the nomination need no request. If the node is open already, other pods may have
            // taken its capacity, which [`NominationController`] checks.
            let (is_waiting, was_nominated) = {
                let batch = self.batch();
                (batch.is_waiting(claim_name), batch.was_nominated(claim_name))
            };
            let is_handled_elsewhere =
                is_waiting || (was_nominated && is_open(&self.nominator.reads, claim_name));
            if !is_handled_elsewhere {
                write_nominations(&self.nominator, claim_name).await;
            }
            return;
        }
        let found: Vec<(PodReservation, String)> = together
            .iter()
            .flat_map(|claim| reservations_to_nominate(&self.nominator.reads, claim))
            .collect();
        stream::iter(found)
            .map(|(reservation, node)| async move { nominate(&self.nominator, reservation, &node).await })
            .buffered(CONCURRENT_WRITES_MAX)
            .for_each(|()| std::future::ready(()))
            .await;
        self.batch().record_nominated(claim_name, &together, self.nominator.reads.clock.now());
        if let Some(claims) = self.claims.get() {
            together.into_iter().for_each(|claim| claims.add(ObjectKey::new("", claim)));
        }
    }

    /// How long to keep the unregistered taint until this function is called again; `None` if the taint should be
    /// removed now. The caller also calls this function whenever the node changes. Only nodes for which pods are
    /// planned keep the taint.
    pub fn hold(&self, claim: &NodeClaim, node: &Node) -> Option<Duration> {
        self.nominator.reads.state.set_held_for_moved_pods(name_of(claim), false);
        let is_planned_for = || {
            !self.nominator.reads.state.reservations_on(name_of(claim)).is_empty()
                || !self.nominator.reads.state.owners_of_moved_slots(name_of(claim)).is_empty()
        };
        if !self.nominator.is_enabled || !is_planned_for() {
            return None;
        }
        let now = self.nominator.reads.clock.now();
        let mut seen_since = self.seen_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since_when = *seen_since.entry(uid_of(claim).to_owned()).or_insert(now);
        let wait = node_access::hold(node, claim, since(now, since_when));
        if wait.is_some() {
            return wait;
        }
        seen_since.remove(uid_of(claim));
        seen_since.retain(|_, at| since(now, *at) < GATE_RECORD_TTL);
        drop(seen_since);
        if node_access::node_access(node, Some(claim)) != NodeAccess::OnlyOurTaint {
            return None;
        }
        if self.waits_for_moved_pods(claim, node, now) {
            self.nominator.reads.state.set_held_for_moved_pods(name_of(claim), true);
            return Some(POLL_INTERVAL);
        }
        let pods = self.nominator.reads.state.reservations_on(name_of(claim)).len();
        let is_another_node_expected =
            |there: &BTreeMap<String, usize>| is_another_node_expected(&self.nominator.reads, there);
        match self.batch().ask(name_of(claim), pods, now, is_another_node_expected) {
            BatchAnswer::Wait(wait) => Some(wait),
            BatchAnswer::Lead | BatchAnswer::Open => None,
        }
    }

    /// Whether the node is ready except for the unregistered taint, and must keep this taint until the pods that a
    /// command moves to the node are pending.
    fn waits_for_moved_pods(&self, claim: &NodeClaim, node: &Node, now: Timestamp) -> bool {
        let is_initializable =
            claim.spec.startup_taints.iter().flatten().next().is_none() && has_all_resources(claim, node);
        // Only replacements of underutilized and drifted nodes can wait: an unhealthy or expired node is deleted only
        // after its replacement is open.
        let can_wait = matches!(created_for(claim), Some(Reason::Underutilized | Reason::Drifted));
        if !is_initializable || !can_wait || self.mode != Mode::Cost {
            return false;
        }
        let moved_pods = replacement_hold::moved_pods(&self.nominator.reads, name_of(claim), now);
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|_, hold| since(now, hold.since()) < GATE_RECORD_TTL);
        let hold = holds.entry(uid_of(claim).to_owned()).or_insert_with(|| ReplacementHold::from(now));
        hold.is_still_needed(moved_pods, now)
    }

    fn batch(&self) -> MutexGuard<'_, OpenBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a node is expected to open soon that has reservations and is not in the batch.
fn is_another_node_expected(reads: &Reads, batch: &BTreeMap<String, usize>) -> bool {
    let others = reads.state.hosts_with_pod_reservations().into_iter();
    let others = others.filter(|claim| !batch.contains_key(claim));
    others.filter(|name| !reads.state.is_held_for_moved_pods(name)).any(|name| {
        let claim = reads.stores.node_claims.get("", &name);
        let node = node_of(reads, &name, claim.as_deref());
        node.is_some_and(|node| {
            matches!(
                node_access::node_access(&node, claim.as_deref()),
                NodeAccess::NotReady | NodeAccess::OnlyOurTaint
            )
        })
    })
}

fn is_open(reads: &Reads, claim_name: &str) -> bool {
    let claim = reads.stores.node_claims.get("", claim_name);
    node_of(reads, claim_name, claim.as_deref())
        .is_some_and(|node| node_access::node_access(&node, claim.as_deref()) == NodeAccess::Open)
}
