//! ReplicaSet controller: keeps the desired number of active pods. Surplus pods are deleted in upstream's order.
//!
//! Upstream: pkg/controller/replicaset/replica_set.go, pkg/controller/controller_utils.go

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{
    ObjectKey, annotation, is_deleting, is_namespace_terminating, message_of, namespace_of, uid_of,
};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::context::{Context, unless_zero};
use super::{owners, pods, selector};
use crate::stores::{BY_CONTROLLER, orphans_in};

/// Maximum number of pods that one reconcile creates or deletes.
const BURST_MAX: usize = 500;
/// Concurrent creations.
const CONCURRENT_CREATES_MAX: usize = 8;

pub struct ReplicaSets {
    pub context: Context,
}

/// The next step for a ReplicaSet's pods.
#[derive(Debug, PartialEq)]
enum Step {
    Create(usize),
    Delete(Vec<Arc<Pod>>),
    Nothing,
}

impl ReplicaSets {
    /// Enqueues ReplicaSets when they or their pods change.
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context
            .stores
            .replica_sets
            .observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, sets) = (queue.clone(), self.context.stores.replica_sets.clone());
        self.context.stores.pods.observe(move |change: &Change<Pod>| {
            for pod in change.both() {
                let namespace = namespace_of(&**pod);
                match owners::controller_of(&pod.metadata) {
                    Some(owner) if owner.kind == "ReplicaSet" => {
                        to.add_debounced(ObjectKey::new(namespace, &owner.name))
                    }
                    Some(_) => {}
                    None => {
                        for set in sets.list_in(namespace) {
                            let selects = set
                                .spec
                                .as_ref()
                                .is_some_and(|spec| selector::matches_meta(&spec.selector, &pod.metadata));
                            if selects {
                                to.add(ObjectKey::of(&set.metadata));
                            }
                        }
                    }
                }
            }
        });
    }
}

impl Reconcile for ReplicaSets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(set) = stores.replica_sets.get_key(key) else { return Ok(Requeue::No) };
        let Some(spec) = &set.spec else { return Ok(Requeue::No) };
        let mut candidates = stores.pods.by(BY_CONTROLLER, uid_of(&*set));
        let orphans = stores.pods.by(BY_CONTROLLER, &orphans_in(&key.namespace));
        candidates
            .extend(orphans.into_iter().filter(|pod| selector::matches_meta(&spec.selector, &pod.metadata)));
        let owned = owners::claimed(
            &self.context,
            &stores.replica_sets,
            &*set,
            &spec.selector,
            &stores.pods,
            candidates,
            pods::is_active,
        )
        .await?;
        let terminating = owned.iter().filter(|pod| pods::is_terminating(pod)).count();
        let active: Vec<Arc<Pod>> = owned.into_iter().filter(|pod| pods::is_active(pod)).collect();

        let now = self.context.clock.now();
        let step = if is_deleting(&*set) {
            Step::Nothing
        } else {
            decide(&set, &active, || self.related_pods(&set), now)
        };
        let failure = match &step {
            Step::Nothing => None,
            Step::Create(count) => self.create(&set, *count).await,
            Step::Delete(victims) => {
                let mut failure = None;
                for victim in victims {
                    if let Err(error) = self.context.delete(&stores.pods, &**victim).await {
                        failure = Some(error);
                    }
                }
                failure
            }
        };
        let refs = || active.iter().map(|pod| &**pod);
        let reason = failure.as_ref().map(|error| {
            let reason = if matches!(step, Step::Create(_)) { "FailedCreate" } else { "FailedDelete" };
            (reason, message_of(error))
        });
        let status = status(&set, &refs().collect::<Vec<_>>(), terminating, reason, now);
        let old = set.status.clone().unwrap_or_default();
        self.context.merge_status(&stores.replica_sets, &*set, &old, &status).await?;
        match failure {
            Some(error) if !is_namespace_terminating(&error) => Err(error),
            // Created and deleted pods appear in the store and enqueue the ReplicaSet again.
            _ => Ok(pods::next_available_in(refs(), spec.min_ready_seconds.unwrap_or(0), now).into()),
        }
    }
}

impl ReplicaSets {
    async fn create(&self, set: &ReplicaSet, count: usize) -> Option<kube::Error> {
        let template = set.spec.as_ref()?.template.clone()?;
        let pod = pods::from_template(&template, namespace_of(set), owners::controller_reference(set));
        let (mut done, mut batch) = (0, 1);
        // Pods are created in growing batches (slow start): if one creation fails, the others would probably fail too.
        while done < count {
            let size = batch.min(count - done);
            let outcomes: Vec<kube::Result<Pod>> = futures::stream::iter(0..size)
                .map(|_| self.context.create(&self.context.stores.pods, &pod))
                .buffered(CONCURRENT_CREATES_MAX)
                .collect()
                .await;
            done += size;
            batch *= 2;
            if let Some(error) = outcomes.into_iter().find_map(Result::err) {
                return Some(error);
            }
        }
        None
    }

    /// Pods of this ReplicaSet and of the other ReplicaSets of its Deployment.
    fn related_pods(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let stores = &self.context.stores;
        let siblings = match owners::controller_of(&set.metadata) {
            Some(owner) => stores.replica_sets.by(BY_CONTROLLER, &owner.uid),
            None => return stores.pods.by(BY_CONTROLLER, uid_of(set)),
        };
        siblings.iter().flat_map(|sibling| stores.pods.by(BY_CONTROLLER, uid_of(&**sibling))).collect()
    }
}

fn decide(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    related: impl Fn() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Step {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1).max(0) as usize;
    match active.len().cmp(&wanted) {
        Ordering::Equal => Step::Nothing,
        Ordering::Less => Step::Create((wanted - active.len()).min(BURST_MAX)),
        Ordering::Greater => {
            let count = (active.len() - wanted).min(BURST_MAX);
            let mut victims = active.to_vec();
            if count < active.len() {
                let neighbours = active_per_node(&related());
                victims.sort_by(|one, two| deletion_order(one, two, &neighbours, now));
                victims.truncate(count);
            }
            Step::Delete(victims)
        }
    }
}

fn active_per_node(pods: &[Arc<Pod>]) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for node in pods.iter().filter(|pod| pods::is_active(pod)).filter_map(|pod| pods::node_name(pod)) {
        *count.entry(node.to_string()).or_insert(0) += 1;
    }
    count
}

/// The order of deletion: the lesser of two pods is deleted first.
fn deletion_order(one: &Pod, two: &Pod, neighbours: &BTreeMap<String, usize>, now: Timestamp) -> Ordering {
    let rank = |pod: &Pod| pods::node_name(pod).and_then(|node| neighbours.get(node)).copied().unwrap_or(0);
    let phase = |pod: &Pod| match pods::phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    };
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pods::node_name(one)
        .is_some()
        .cmp(&pods::node_name(two).is_some())
        .then_with(|| phase(one).cmp(&phase(two)))
        .then_with(|| pods::is_ready(one).cmp(&pods::is_ready(two)))
        .then_with(|| deletion_cost(one).cmp(&deletion_cost(two)))
        .then_with(|| rank(two).cmp(&rank(one)))
        .then_with(|| younger_first(pods::ready_since(one), pods::ready_since(two), now))
        .then_with(|| restarts(two).cmp(&restarts(one)))
        .then_with(|| younger_first(created(one), created(two), now))
        .then_with(|| uid_of(one).cmp(uid_of(two)))
}

/// Compares ages by order of magnitude, as powers of two. Pods of about the same age count as equal and are ordered by
/// uid, so that it is not always the newest that is deleted. Upstream compares uids already at this step, which is not
/// a total order.
fn younger_first(one: Option<Timestamp>, two: Option<Timestamp>, now: Timestamp) -> Ordering {
    match (one, two) {
        (Some(one), Some(two)) => {
            let magnitude = |time| (since(now, time).as_nanos().max(1)).ilog2();
            magnitude(one).cmp(&magnitude(two))
        }
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// The pod deletion cost from its annotation; 0 if there is none or it is not a 32-bit integer.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = annotation(pod, "controller.kubernetes.io/pod-deletion-cost").unwrap_or("0");
    let plain = text == "0" || !text.trim_start_matches('-').starts_with(['0', '+']);
    Some(text).filter(|_| plain).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

fn status(
    set: &ReplicaSet,
    active: &[&Pod],
    terminating: usize,
    failure: Option<(&str, String)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let spec = set.spec.clone().unwrap_or_default();
    let template_labels = spec.template.and_then(|template| template.metadata).and_then(|meta| meta.labels);
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let count = |wanted: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| wanted(pod)).count() as i32;
    let old = set.status.clone().unwrap_or_default();
    let mut conditions = old.conditions.unwrap_or_default();
    let known = conditions.iter().any(|condition| condition.type_ == "ReplicaFailure");
    match failure {
        Some((reason, message)) if !known => conditions.push(ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                karpenter_runtime::clock::whole_seconds(now),
            )),
        }),
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
    }
    ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: unless_zero(count(&|pod| {
            let labels = pod.metadata.labels.as_ref();
            template_labels
                .iter()
                .flatten()
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })),
        ready_replicas: unless_zero(count(&pods::is_ready)),
        available_replicas: unless_zero(count(&|pod| pods::is_available(pod, min_ready, now))),
        terminating_replicas: Some(terminating as i32),
        observed_generation: set.metadata.generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    }
}

#[cfg(test)]
mod tests;
