//! Deployment controller: rolls from one ReplicaSet to the next within the strategy's limits, keeps revisions, and
//! reports progress in conditions.
//!
//! [`plan::plan`] decides from the Deployment and its ReplicaSets; this file watches and writes.
//!
//! Upstream: pkg/controller/deployment/deployment_controller.go

mod plan;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

pub(crate) use self::plan::scaled_value;
use karpenter_runtime::object::{
    ObjectKey, is_already_exists, is_namespace_terminating, message_of, namespace_of, uid_of,
};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use self::plan::{Plan, plan};
use super::context::Context;
use super::events::ObjectEvent;
use super::{events, owners, pods, selector};
use crate::stores::{BY_CONTROLLER, orphans_in};

/// The label that distinguishes the pods of a Deployment's revisions.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

pub struct Deployments {
    pub context: Context,
}

impl Deployments {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.deployments.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, deployments) = (queue.clone(), stores.deployments.clone());
        stores.replica_sets.observe(move |change: &Change<ReplicaSet>| {
            for set in change.both() {
                match owners::controller_of(&set.metadata) {
                    Some(owner) if owner.kind == "Deployment" => {
                        to.add(ObjectKey::new(namespace_of(&**set), &owner.name));
                    }
                    Some(_) => {}
                    None => {
                        for deployment in deployments.list_in(namespace_of(&**set)) {
                            let selects = deployment
                                .spec
                                .as_ref()
                                .is_some_and(|spec| selector::matches_meta(&spec.selector, &set.metadata));
                            if selects {
                                to.add(ObjectKey::of(&deployment.metadata));
                            }
                        }
                    }
                }
            }
        });
        // With the strategy Recreate, the Deployment waits until the last old pod is gone.
        let (to, sets) = (queue.clone(), stores.replica_sets.clone());
        let deployments = stores.deployments.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            let Change::Deleted { old: pod } = change else { return };
            let namespace = namespace_of(&**pod);
            let Some(set) =
                owners::controller_of(&pod.metadata).and_then(|owner| sets.get(namespace, &owner.name))
            else {
                return;
            };
            let Some(owner) = owners::controller_of(&set.metadata) else { return };
            if deployments
                .get(namespace, &owner.name)
                .is_some_and(|deployment| plan::is_recreate(&deployment))
            {
                to.add(ObjectKey::new(namespace, &owner.name));
            }
        });
    }

    /// Whether a pod of a ReplicaSet other than `newest` may still run.
    fn old_pods_running(&self, sets: &[Arc<ReplicaSet>], newest: Option<&str>) -> bool {
        sets.iter().filter(|set| Some(uid_of(&***set)) != newest).any(|set| {
            let pods = self.context.stores.pods.by(BY_CONTROLLER, uid_of(&**set));
            pods.iter().any(|pod| !matches!(pods::phase(pod), "Failed" | "Succeeded" | "Unknown"))
        })
    }
}

impl Reconcile for Deployments {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(deployment) = stores.deployments.get_key(key) else { return Ok(Requeue::No) };
        let Some(spec) = &deployment.spec else { return Ok(Requeue::No) };
        let status = deployment.status.clone().unwrap_or_default();
        if selector::is_empty(&spec.selector) {
            // Upstream treats a selector that matches everything as invalid and then sets only `observedGeneration`.
            let mut seen = status.clone();
            seen.observed_generation = deployment.metadata.generation;
            self.context.merge_status(&stores.deployments, &*deployment, &status, &seen).await?;
            return Ok(Requeue::No);
        }
        let mut candidates = stores.replica_sets.by(BY_CONTROLLER, uid_of(&*deployment));
        let orphans = stores.replica_sets.by(BY_CONTROLLER, &orphans_in(&key.namespace));
        candidates
            .extend(orphans.into_iter().filter(|set| selector::matches_meta(&spec.selector, &set.metadata)));
        let sets = owners::claimed(
            &self.context,
            &stores.deployments,
            &*deployment,
            &spec.selector,
            &stores.replica_sets,
            candidates,
            |_| true,
        )
        .await?;
        let now = self.context.clock.now();
        let plan = plan(&deployment, &sets, |newest| self.old_pods_running(&sets, newest), now);
        self.act(&deployment, &sets, plan).await
    }
}

impl Deployments {
    async fn act(
        &self,
        deployment: &Arc<Deployment>,
        sets: &[Arc<ReplicaSet>],
        plan: Plan,
    ) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let old = deployment.status.clone().unwrap_or_default();
        if let Some(set) = &plan.create
            && let Err(error) = self.context.create(&stores.replica_sets, set).await
        {
            self.note_creation_failure(deployment, set, &error).await?;
            return Err(error);
        }
        for change in &plan.changes {
            let Some(set) = sets.iter().find(|set| set.metadata.name == change.metadata.name) else {
                continue;
            };
            let patch = json!({
                "metadata": {"annotations": change.metadata.annotations},
                "spec": {
                    "replicas": change.spec.as_ref().and_then(|spec| spec.replicas),
                    "minReadySeconds": change.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
                },
            });
            self.context.merge_unchanged(&stores.replica_sets, &**set, patch).await?;
        }
        for scaled in &plan.scaled {
            let event = ObjectEvent::normal("ScalingReplicaSet", scaled.to_string(), "deployment-controller");
            events::record(&self.context, &**deployment, event).await;
        }
        for name in &plan.delete {
            if let Some(set) = sets.iter().find(|set| set.metadata.name.as_ref() == Some(name)) {
                self.context.delete(&stores.replica_sets, &**set).await?;
            }
        }
        if let Some(revision) = &plan.revision {
            let patch = json!({"metadata": {"annotations": {REVISION: revision}}});
            self.context.merge(&stores.deployments, &**deployment, patch).await?;
        }
        self.context.merge_status(&stores.deployments, &**deployment, &old, &plan.status).await?;
        Ok(plan.again.into())
    }

    /// Reports in the status why no ReplicaSet was created, and prepares the retry.
    async fn note_creation_failure(
        &self,
        deployment: &Deployment,
        set: &ReplicaSet,
        error: &kube::Error,
    ) -> kube::Result<()> {
        let old = deployment.status.clone().unwrap_or_default();
        let mut status = old.clone();
        if is_already_exists(error) {
            // A ReplicaSet with another template has the same hash. The collision count is part of the hash, so
            // increasing the count changes the next name.
            status.collision_count = Some(old.collision_count.unwrap_or(0) + 1);
        } else if !is_namespace_terminating(error) {
            let name = set.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Failed to create new replica set {name:?}: {}", message_of(error));
            let now = self.context.clock.now();
            let failure = status::condition("Progressing", "False", "ReplicaSetCreateError", &message, now);
            status::set_condition(&mut status, failure);
        }
        self.context.merge_status(&self.context.stores.deployments, deployment, &old, &status).await
    }
}

#[cfg(test)]
mod tests;
