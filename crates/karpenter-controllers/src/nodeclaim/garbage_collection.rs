//! Garbage collection: deletes NodeClaims without an instance, and terminates instances without a NodeClaim.
//!
//! A registered claim without an instance is deleted, unless its Node is ready. An instance is terminated if it has no
//! claim in two consecutive passes and no claim waits for its launch. If a deletion fails, the next pass retries it;
//! other deletions are not affected.
//!
//! Upstream: pkg/controllers/nodeclaim/garbagecollection.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::{CloudProvider, Instance};
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::{REGISTERED, is_true, provider_id};
use karpenter_state::node::is_node_ready;

use crate::claims::hooks::{DeletionCause, Hooks, LifecycleOutcome};
use crate::inputs::{Reads, Writes};
use crate::writes;

const PERIOD: Duration = Duration::from_secs(2 * 60);
/// How long to wait after the provider failed to list instances.
const RETRY: Duration = Duration::from_secs(10);
/// The launch timeout. While a younger claim has no instance, no instance without a claim is terminated, because it may
/// belong to that claim.
const LAUNCHES_WITHIN: Duration = Duration::from_secs(5 * 60);

/// The input of the decision for one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClaimFacts {
    provider_id: Option<String>,
    is_registered: bool,
    is_deleting: bool,
    is_new: bool,
    /// Whether the Node of the claim is ready. If it is, the instance exists even if the provider does not list it.
    node_is_ready: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Decision {
    /// Claims to delete, as indexes into the list of claims.
    claims: Vec<usize>,
    /// Provider ids of instances to terminate.
    instances: BTreeSet<String>,
    /// The instances without a claim in this pass. The next pass terminates them if they still have none.
    suspects: BTreeSet<String>,
}

fn decide(claims: &[ClaimFacts], instances: &[Instance], suspects: &BTreeSet<String>) -> Decision {
    let alive: BTreeSet<&str> = instances
        .iter()
        .filter(|instance| !instance.is_terminating)
        .map(|instance| instance.provider_id.as_str())
        .collect();
    let is_missing = |claim: &ClaimFacts| {
        let id = claim.provider_id.as_deref().unwrap_or_default();
        claim.is_registered && !claim.is_deleting && !claim.node_is_ready && !alive.contains(id)
    };
    let gone = claims.iter().enumerate().filter(|(_, claim)| is_missing(claim));
    let claimed: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.provider_id.as_deref()).collect();
    let unclaimed: BTreeSet<String> =
        alive.iter().filter(|id| !claimed.contains(*id)).map(ToString::to_string).collect();
    let is_launching = claims.iter().any(|claim| claim.provider_id.is_none() && claim.is_new);
    let ended =
        if is_launching { BTreeSet::new() } else { unclaimed.intersection(suspects).cloned().collect() };
    Decision { claims: gone.map(|(index, _)| index).collect(), instances: ended, suspects: unclaimed }
}

pub struct GarbageCollection {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
    pub hooks: Hooks,
    suspects: Mutex<BTreeSet<String>>,
}

impl GarbageCollection {
    pub fn new(reads: Reads, writes: Writes, cloud: Arc<dyn CloudProvider>, hooks: Hooks) -> Self {
        Self { reads, writes, cloud, hooks, suspects: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    fn facts(&self, claim: &NodeClaim, now: Timestamp) -> ClaimFacts {
        let nodes = self.reads.stores.nodes_of(claim);
        let created = claim.metadata.creation_timestamp.as_ref();
        ClaimFacts {
            is_new: created.is_none_or(|created| since(now, created.0) < LAUNCHES_WITHIN),
            provider_id: provider_id(claim).map(str::to_owned),
            is_registered: is_true(claim, REGISTERED),
            is_deleting: is_deleting(claim),
            node_is_ready: matches!(nodes.as_slice(), [node] if is_node_ready(node)),
        }
    }
}

impl Reconcile for GarbageCollection {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, log_throttle, .. } = &self.writes;
        let cloud = &self.cloud;
        // Instances are listed before claims: so the list of claims contains the claim of every listed instance, even
        // of one that was just launched.
        let instances = match cloud.list().await {
            Ok(instances) => instances,
            Err(error) => {
                if log_throttle.is_due("listing instances", "", clock.now()) {
                    tracing::error!(%error, "failed listing instances");
                }
                return Ok(Requeue::After(RETRY));
            }
        };
        let claims: Vec<Arc<NodeClaim>> = stores
            .node_claims
            .list()
            .into_iter()
            .filter(|claim| self.reads.is_managed(&claim.spec.node_class_ref))
            .collect();
        let now = clock.now();
        let facts: Vec<ClaimFacts> = claims.iter().map(|claim| self.facts(claim, now)).collect();
        let decision = {
            let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
            let decision = decide(&facts, &instances, &suspects);
            suspects.clone_from(&decision.suspects);
            decision
        };
        for claim in decision.claims.iter().filter_map(|index| claims.get(*index)) {
            match writes::delete(client, &stores.node_claims, &**claim).await {
                Ok(()) => {
                    self.hooks.report(claim, LifecycleOutcome::Deleted(DeletionCause::GarbageCollected))
                }
                Err(error) if log_throttle.is_due("collecting nodeclaim", name_of(&**claim), now) => {
                    let name = name_of(&**claim);
                    tracing::error!(nodeclaim = name, %error, "failed deleting nodeclaim with no cloudprovider representation");
                }
                Err(_) => {}
            }
        }
        for id in decision.instances {
            let mut claim = NodeClaim::default();
            claim.status.get_or_insert_default().provider_id = Some(id.clone());
            match cloud.delete(&claim).await {
                Ok(()) => self.hooks.report(&claim, LifecycleOutcome::LeakedInstanceTerminated),
                Err(error) if error.is_not_found() => {}
                // The failure is not returned, because the next pass retries the termination anyway.
                Err(error) if log_throttle.is_due("terminating leaked instance", &id, clock.now()) => {
                    tracing::error!(provider_id = id, %error, "failed terminating instance without nodeclaim");
                }
                Err(_) => {}
            }
        }
        Ok(Requeue::After(PERIOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str, flags: &str) -> ClaimFacts {
        ClaimFacts {
            provider_id: Some(id.to_owned()).filter(|id| !id.is_empty()),
            is_registered: flags.contains("registered"),
            is_deleting: flags.contains("deleting"),
            node_is_ready: flags.contains("ready"),
            is_new: !flags.contains("old"),
        }
    }

    fn instances(ids: &[&str]) -> Vec<Instance> {
        let instance = |id: &&str| Instance {
            provider_id: id.trim_start_matches('-').to_owned(),
            is_terminating: id.starts_with('-'),
            ..Instance::default()
        };
        ids.iter().map(instance).collect()
    }

    #[test]
    fn claim_without_instance_is_deleted_unless_its_node_is_ready() {
        let table = [
            ("registered", &["x"][..], true),
            ("registered", &["a"], false),
            ("registered", &["-a"], true),
            ("registered ready", &[], false),
            ("registered deleting", &[], false),
            // A claim that is not registered is not deleted here, but by the registration timeout.
            ("", &[], false),
        ];
        for (flags, present, expected) in table {
            let decision = decide(&[claim("a", flags)], &instances(present), &BTreeSet::new());
            assert_eq!(decision.claims == [0], expected, "{flags} {present:?}");
        }
    }

    #[test]
    fn instance_without_claim_is_terminated_in_the_second_pass_unless_a_launch_is_pending() {
        let suspects = |ids: &[&str]| -> BTreeSet<String> { ids.iter().map(ToString::to_string).collect() };
        let known = claim("a", "registered");
        let first = decide(std::slice::from_ref(&known), &instances(&["a", "b", "-c"]), &suspects(&[]));
        assert_eq!((first.instances, &first.suspects), (suspects(&[]), &suspects(&["b"])));
        let second = decide(std::slice::from_ref(&known), &instances(&["a", "b", "d"]), &first.suspects);
        assert_eq!((second.instances, second.suspects), (suspects(&["b"]), suspects(&["b", "d"])));
        let launching = [known, claim("", "")];
        let third = decide(&launching, &instances(&["a", "b"]), &suspects(&["b"]));
        assert_eq!(third.instances, suspects(&[]));
        // A claim without an instance that is older than the launch timeout does not protect instances.
        let stuck = [claim("a", "registered"), claim("", "old")];
        let fourth = decide(&stuck, &instances(&["a", "b"]), &suspects(&["b"]));
        assert_eq!(fourth.instances, suspects(&["b"]));
    }
}
