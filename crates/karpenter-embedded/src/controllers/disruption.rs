//! PodDisruptionBudget controller: computes how many more pods of a PodDisruptionBudget may currently be evicted.
//!
//! The API server handles evictions: it reads this status and records evicted pods in `disruptedPods` until this
//! controller sees that they are terminating.
//!
//! Upstream: pkg/controller/disruption/disruption.go

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karpenter_runtime::clock::{until, whole_seconds};
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of, namespace_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::context::Context;
use super::deployment::scaled_value;
use super::{owners, pods, selector};

/// If an evicted pod has no deletion timestamp after this time, it counts as healthy again.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);
const KIND: &str = "DisruptionAllowed";

pub struct Budgets {
    pub context: Context,
}

impl Budgets {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.budgets.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, budgets) = (queue.clone(), stores.budgets.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            let budgets = budgets.list_in(namespace_of(&**change.object()));
            for pod in change.both() {
                for budget in budgets.iter().filter(|budget| selects(budget, pod)) {
                    to.add_debounced(ObjectKey::of(&budget.metadata));
                }
            }
        });
        // A change of the workload's size affects the PodDisruptionBudget, because percentages refer to the size.
        let (to, budgets) = (queue.clone(), stores.budgets.clone());
        let all_in = move |namespace: &str| {
            for budget in budgets.list_in(namespace) {
                to.add(ObjectKey::of(&budget.metadata));
            }
        };
        let all_in = Arc::new(all_in);
        let tell = all_in.clone();
        stores.deployments.observe(move |change| {
            if resized(change, |deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas)) {
                tell(namespace_of(&**change.object()));
            }
        });
        let tell = all_in.clone();
        stores.replica_sets.observe(move |change| {
            if resized(change, |set| set.spec.as_ref().and_then(|spec| spec.replicas)) {
                tell(namespace_of(&**change.object()));
            }
        });
        stores.stateful_sets.observe(move |change| {
            if resized(change, |set| set.spec.as_ref().and_then(|spec| spec.replicas)) {
                all_in(namespace_of(&**change.object()));
            }
        });
    }

    /// The top-level workload of a pod's owners, and its size.
    fn scale(&self, namespace: &str, owner: &OwnerReference) -> Option<(String, i32)> {
        let stores = &self.context.stores;
        match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = stores.replica_sets.get(namespace, &owner.name)?;
                if set.metadata.uid.as_ref() != Some(&owner.uid) {
                    return None;
                }
                match owners::controller_of(&set.metadata) {
                    Some(above) if above.kind == "Deployment" => self.scale(namespace, above),
                    _ => Some((owner.uid.clone(), set.spec.as_ref()?.replicas.unwrap_or(1))),
                }
            }
            "Deployment" => {
                let deployment = stores.deployments.get(namespace, &owner.name)?;
                Some((owner.uid.clone(), deployment.spec.as_ref()?.replicas.unwrap_or(1)))
            }
            "StatefulSet" => {
                let set = stores.stateful_sets.get(namespace, &owner.name)?;
                Some((owner.uid.clone(), set.spec.as_ref()?.replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }
}

/// Whether a change affects the size of the workload; true for creations and deletions.
fn resized<K>(change: &Change<K>, size: fn(&K) -> Option<i32>) -> bool {
    match change {
        Change::Applied { old: Some(old), new } => size(old) != size(new),
        _ => true,
    }
}

/// A budget without a selector matches no pods, one with an empty selector all pods.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| selector::matches_meta(selector, &pod.metadata))
}

impl Reconcile for Budgets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(budget) = stores.budgets.get_key(key) else { return Ok(Requeue::No) };
        let covered: Vec<Arc<Pod>> =
            stores.pods.list_in(&key.namespace).into_iter().filter(|pod| selects(&budget, pod)).collect();
        let covered: Vec<&Pod> = covered.iter().map(|pod| &**pod).collect();
        let now = self.context.clock.now();
        let scale = |owner: &OwnerReference| self.scale(&key.namespace, owner);
        let (status, again) = status(&budget, &covered, scale, now);
        let old = budget.status.clone().unwrap_or_default();
        if karpenter_runtime::write::difference(&old, &status).is_some() {
            // The patch contains the resource version that was read, so it fails if the API server has decremented
            // `disruptionsAllowed` for an eviction in the meantime, and does not overwrite that.
            let patch = serde_json::json!({"status": karpenter_runtime::write::difference(&old, &status)});
            self.write(&budget, patch).await?;
        }
        Ok(again.into())
    }
}

impl Budgets {
    async fn write(&self, budget: &PodDisruptionBudget, mut patch: serde_json::Value) -> kube::Result<()> {
        use kube::api::{Patch, PatchParams};
        patch["metadata"]["resourceVersion"] = serde_json::json!(budget.metadata.resource_version);
        let api = self.context.api(budget);
        let written = api.patch_status(name_of(budget), &PatchParams::default(), &Patch::Merge(patch)).await;
        match written {
            Ok(written) => self.context.stores.budgets.apply(written),
            Err(error) if karpenter_runtime::object::is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The status of a budget from its pods, and the time at which recorded evictions expire.
fn status(
    budget: &PodDisruptionBudget,
    covered: &[&Pod],
    scale: impl Fn(&OwnerReference) -> Option<(String, i32)>,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let old = budget.status.clone().unwrap_or_default();
    let generation = budget.metadata.generation;
    let (expected, desired) = match expected(budget, covered, scale) {
        Ok(counts) => counts,
        Err(message) => {
            let mut status = old;
            status.disruptions_allowed = 0;
            let observed = status.observed_generation;
            set_condition(&mut status, "False", "SyncFailed", &message, observed, now);
            return (status, None);
        }
    };
    let mut disrupted = BTreeMap::new();
    let mut recheck: Option<Duration> = None;
    for pod in covered.iter().filter(|pod| !is_deleting(**pod)) {
        let Some(at) = old.disrupted_pods.as_ref().and_then(|pods| pods.get(name_of(*pod))) else { continue };
        let expires = at.0.checked_add(DELETION_TIMEOUT).unwrap_or(at.0);
        if expires >= now {
            disrupted.insert(name_of(*pod).to_string(), at.clone());
            let wait = until(now, expires) + Duration::from_millis(1);
            recheck = Some(recheck.map_or(wait, |earlier| earlier.min(wait)));
        }
    }
    let healthy = covered
        .iter()
        .filter(|pod| !is_deleting(**pod) && !disrupted.contains_key(name_of(**pod)) && pods::is_ready(pod))
        .count() as i32;
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: expected,
        disruptions_allowed: allowed,
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        observed_generation: generation,
        conditions: old.conditions,
    };
    let (is, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(&mut status, is, reason, "", generation, now);
    (status, recheck)
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    is: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let now = Time(whole_seconds(now));
    match conditions.iter_mut().find(|condition| condition.type_ == KIND) {
        Some(condition) => {
            if condition.status != is {
                condition.last_transition_time = now;
            }
            condition.status = is.into();
            condition.reason = reason.into();
            condition.message = message.into();
            condition.observed_generation = generation;
        }
        None => conditions.push(Condition {
            type_: KIND.into(),
            status: is.into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: generation,
            last_transition_time: now,
        }),
    }
}

/// The expected number of pods, and the number that must stay healthy.
fn expected(
    budget: &PodDisruptionBudget,
    covered: &[&Pod],
    scale: impl Fn(&OwnerReference) -> Option<(String, i32)>,
) -> Result<(i32, i32), String> {
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    let total = || -> Result<i32, String> {
        let mut sizes: BTreeMap<String, i32> = BTreeMap::new();
        for pod in covered {
            let Some(owner) = owners::controller_of(&pod.metadata) else { continue };
            let (uid, size) =
                scale(owner).ok_or_else(|| format!("found no controllers for pod {:?}", name_of(*pod)))?;
            sizes.insert(uid, size);
        }
        Ok(sizes.values().sum())
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let total = total()?;
            Ok((total, (total - scaled_value(Some(most), total, true)).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((covered.len() as i32, *least)),
        (None, Some(percent)) => {
            let total = total()?;
            Ok((total, scaled_value(Some(percent), total, true)))
        }
        (None, None) => Ok((0, 0)),
    }
}

#[cfg(test)]
mod tests;
