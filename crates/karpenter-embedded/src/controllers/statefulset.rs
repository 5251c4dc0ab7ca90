//! StatefulSet controller: creates pods with stable names and claims, and replaces them in order.
//!
//! Upstream: pkg/controller/statefulset/stateful_set.go

mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use karpenter_runtime::object::{
    ObjectKey, is_already_exists, is_deleting, label, name_of, namespace_of, uid_of,
};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use self::plan::Step;
use super::context::Context;
use super::revisions::{self, History, REVISION_HASH};
use super::{owners, pods, selector};
use crate::stores::{BY_CONTROLLER, orphans_in};

pub struct StatefulSets {
    pub context: Context,
}

impl StatefulSets {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.stateful_sets.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, sets) = (queue.clone(), stores.stateful_sets.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            for pod in change.both() {
                match owners::controller_of(&pod.metadata) {
                    Some(owner) if owner.kind == "StatefulSet" => {
                        to.add(ObjectKey::new(namespace_of(&**pod), &owner.name));
                    }
                    Some(_) => {}
                    None => {
                        let name = plan::parent_and_ordinal(name_of(&**pod)).map(|(parent, _)| parent);
                        if let Some(set) = name.and_then(|name| sets.get(namespace_of(&**pod), name)) {
                            to.add(ObjectKey::of(&set.metadata));
                        }
                    }
                }
            }
        });
    }
}

impl Reconcile for StatefulSets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(set) = stores.stateful_sets.get_key(key) else { return Ok(Requeue::No) };
        let Some(spec) = &set.spec else { return Ok(Requeue::No) };
        if selector::is_empty(&spec.selector) {
            return Ok(Requeue::No);
        }
        let old_status = set.status.clone().unwrap_or_default();
        let hash_label = "controller.kubernetes.io/hash";
        let collisions = old_status.collision_count;
        let history = revisions::sync(&self.context, &*set, &spec.template, hash_label, collisions).await?;
        let Some(history) = history else {
            let mut status = old_status.clone();
            status.collision_count = Some(collisions.unwrap_or(0) + 1);
            self.context.merge_status(&stores.stateful_sets, &*set, &old_status, &status).await?;
            return Ok(Requeue::After(Duration::ZERO));
        };
        let current = current_revision(&history, old_status.current_revision.as_deref());

        let mut candidates = stores.pods.by(BY_CONTROLLER, uid_of(&*set));
        let orphans = stores.pods.by(BY_CONTROLLER, &orphans_in(&key.namespace));
        candidates.extend(orphans.into_iter().filter(|pod| {
            plan::parent_and_ordinal(name_of(&**pod)).is_some_and(|(parent, _)| parent == key.name)
        }));
        let owned = owners::claimed(
            &self.context,
            &stores.stateful_sets,
            &*set,
            &spec.selector,
            &stores.pods,
            candidates,
            |_| true,
        )
        .await?;
        let now = self.context.clock.now();
        let steps = if is_deleting(&*set) {
            Vec::new()
        } else {
            plan::plan(&set, &current, &history.wanted, &owned, now)
        };
        for step in &steps {
            self.take(&set, &current, &history.wanted, &owned, step).await?;
        }
        let status = plan::status(&set, &current, &history.wanted, &owned, now);
        self.context.merge_status(&stores.stateful_sets, &*set, &old_status, &status).await?;
        let used = |revision: &ControllerRevision| {
            let name = name_of(revision);
            name == name_of(&*current) || owned.iter().any(|pod| label(&**pod, REVISION_HASH) == Some(name))
        };
        revisions::clean_up(&self.context, &history, used, spec.revision_history_limit.unwrap_or(10)).await?;
        let min_ready = spec.min_ready_seconds.unwrap_or(0);
        Ok(pods::next_available_in(owned.iter().map(|pod| &**pod), min_ready, now).into())
    }
}

/// The revision that a rolling update replaces. If it is unknown, the revision of the current template.
fn current_revision(history: &History, name: Option<&str>) -> Arc<ControllerRevision> {
    let known = name.and_then(|name| history.revisions.iter().find(|revision| name_of(&***revision) == name));
    known.unwrap_or(&history.wanted).clone()
}

impl StatefulSets {
    async fn take(
        &self,
        set: &StatefulSet,
        current: &ControllerRevision,
        wanted: &ControllerRevision,
        owned: &[Arc<Pod>],
        step: &Step,
    ) -> kube::Result<()> {
        let stores = &self.context.stores;
        match step {
            Step::Create { ordinal, from_current } => {
                let revision = if *from_current { current } else { wanted };
                for claim in plan::claims(set, *ordinal) {
                    if stores.claims.get(namespace_of(set), name_of(&claim)).is_none() {
                        match self.context.create(&stores.claims, &claim).await {
                            Err(error) if is_already_exists(&error) => {}
                            outcome => drop(outcome?),
                        }
                    }
                }
                let pod = plan::new_pod(set, revision, *ordinal);
                match self.context.create(&stores.pods, &pod).await {
                    // The name belongs to a pod of another owner, or to one that the store does not have yet.
                    Err(error) if is_already_exists(&error) => Err(error),
                    outcome => outcome.map(drop),
                }
            }
            Step::Delete { name } => match owned.iter().find(|pod| name_of(&***pod) == name) {
                Some(pod) => self.context.delete(&stores.pods, &**pod).await,
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
