//! DaemonSet controller: one pod per eligible node, pinned by node affinity and bound by the scheduler.
//!
//! Upstream: pkg/controller/daemon/daemon_controller.go

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::object::{ObjectKey, is_deleting, namespace_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use self::plan::Pods;
use super::context::Context;
use super::revisions::{self, REVISION_HASH};
use super::{owners, pods, selector};
use crate::stores::{BY_CONTROLLER, orphans_in};

pub struct DaemonSets {
    pub context: Context,
}

impl DaemonSets {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.daemon_sets.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let to = queue.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            for pod in change.both() {
                if let Some(owner) =
                    owners::controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")
                {
                    to.add_debounced(ObjectKey::new(namespace_of(&**pod), &owner.name));
                }
            }
        });
        let (to, sets) = (queue.clone(), stores.daemon_sets.clone());
        stores.nodes.observe(move |change: &Change<Node>| {
            if let Change::Applied { old: Some(old), new } = change {
                // Heartbeats are ignored, because they do not affect which nodes are eligible.
                let same = old.metadata.labels == new.metadata.labels && old.spec == new.spec;
                if same {
                    return;
                }
            }
            for set in sets.list() {
                to.add_debounced(ObjectKey::of(&set.metadata));
            }
        });
    }
}

impl Reconcile for DaemonSets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(set) = stores.daemon_sets.get_key(key) else { return Ok(Requeue::No) };
        let Some(spec) = &set.spec else { return Ok(Requeue::No) };
        if selector::is_empty(&spec.selector) || is_deleting(&*set) {
            return Ok(Requeue::No);
        }
        let old_status = set.status.clone().unwrap_or_default();
        let history =
            revisions::sync(&self.context, &*set, &spec.template, REVISION_HASH, old_status.collision_count)
                .await?;
        let Some(history) = history else {
            let mut status = old_status.clone();
            status.collision_count = Some(old_status.collision_count.unwrap_or(0) + 1);
            self.context.merge_status(&stores.daemon_sets, &*set, &old_status, &status).await?;
            return Ok(Requeue::After(Duration::ZERO));
        };
        let hash = revisions::hash_of(&history.wanted);

        let mut candidates = stores.pods.by(BY_CONTROLLER, uid_of(&*set));
        let orphans = stores.pods.by(BY_CONTROLLER, &orphans_in(&key.namespace));
        candidates
            .extend(orphans.into_iter().filter(|pod| selector::matches_meta(&spec.selector, &pod.metadata)));
        let owned = owners::claimed(
            &self.context,
            &stores.daemon_sets,
            &*set,
            &spec.selector,
            &stores.pods,
            candidates,
            pods::is_active,
        )
        .await?;
        let by_node = by_node(&owned);
        let nodes = stores.nodes.list();
        let now = self.context.clock.now();
        let plan = plan::plan(&set, &nodes, &by_node, &hash, now);
        for name in &plan.delete {
            if let Some(pod) = owned.iter().find(|pod| pod.metadata.name.as_ref() == Some(name)) {
                self.context.delete(&stores.pods, &**pod).await?;
            }
        }
        for node in &plan.create {
            let pod = plan::new_pod(&set, node, &hash);
            self.context.create(&stores.pods, &pod).await?;
        }
        let status = plan::status(&set, &nodes, &by_node, &hash, now);
        self.context.merge_status(&stores.daemon_sets, &*set, &old_status, &status).await?;
        let used = |revision: &k8s_openapi::api::apps::v1::ControllerRevision| {
            let hash = revisions::hash_of(revision);
            owned.iter().any(|pod| karpenter_runtime::object::label(&**pod, REVISION_HASH) == Some(&hash))
        };
        revisions::clean_up(&self.context, &history, used, spec.revision_history_limit.unwrap_or(10)).await?;
        let min_ready = spec.min_ready_seconds.unwrap_or(0);
        Ok(pods::next_available_in(owned.iter().map(|pod| &**pod), min_ready, now).into())
    }
}

/// The DaemonSet's pods by the node that they run on or are pinned to, oldest first.
fn by_node(owned: &[Arc<Pod>]) -> Pods {
    let mut by_node: Pods = BTreeMap::new();
    for pod in owned {
        if let Some(node) = plan::target_node(pod) {
            by_node.entry(node).or_default().push(pod.clone());
        }
    }
    for pods in by_node.values_mut() {
        pods.sort_by(|one, two| plan::keep_order(one).cmp(&plan::keep_order(two)));
    }
    by_node
}

/// Whether the node should run a pod of the DaemonSet.
pub fn should_run_on(set: &DaemonSet, node: &Node) -> bool {
    plan::eligibility(set, node).should_run
}

#[cfg(test)]
mod tests;
