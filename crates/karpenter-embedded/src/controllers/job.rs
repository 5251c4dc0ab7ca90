//! Job controller: runs pods until enough succeed or too many fail.
//!
//! Each pod has a finalizer until its outcome is counted: the controller records the uid in the status, removes the
//! finalizer, then adds the uid to a count. After an interruption it continues from the recorded state.
//!
//! Upstream: pkg/controller/job/job_controller.go

mod indexes;
mod plan;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use karpenter_runtime::clock::{since, until};
use karpenter_runtime::object::{ObjectKey, is_namespace_terminating, namespace_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use serde_json::json;

use self::plan::{Backoff, FINALIZER, plan};
use super::context::Context;
use super::{owners, pods};
use crate::stores::BY_CONTROLLER;

pub struct Jobs {
    pub context: Context,
    /// The consecutive failures of each Job, by its uid.
    backoff: Mutex<BTreeMap<String, Backoff>>,
}

impl Jobs {
    pub fn new(context: Context) -> Self {
        Self { context, backoff: Mutex::new(BTreeMap::new()) }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.jobs.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let to = queue.clone();
        self.context.stores.pods.observe(move |change: &Change<Pod>| {
            for pod in change.both() {
                if let Some(owner) = owners::controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")
                {
                    to.add(ObjectKey::new(namespace_of(&**pod), &owner.name));
                }
            }
        });
    }

    /// Removes the finalizer of a pod whose outcome is counted or does not matter.
    async fn release(&self, pod: &Pod) -> kube::Result<()> {
        let finalizers = pod.metadata.finalizers.iter().flatten();
        let left: Vec<&String> = finalizers.filter(|finalizer| *finalizer != FINALIZER).collect();
        if left.len() == pod.metadata.finalizers.as_ref().map_or(0, Vec::len) {
            return Ok(());
        }
        let patch = json!({"metadata": {"finalizers": left}});
        self.context.merge(&self.context.stores.pods, pod, patch).await.map(drop)
    }

    /// Handles a finished Job: releases its pods, and deletes it after `ttlSecondsAfterFinished`.
    async fn finish(
        &self,
        job: &Job,
        owned: &[std::sync::Arc<Pod>],
        finished: Timestamp,
    ) -> kube::Result<Requeue> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner).remove(uid_of(job));
        for pod in owned.iter().filter(|pod| pods::is_finished(pod)) {
            self.release(pod).await?;
        }
        let Some(seconds) = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished) else {
            return Ok(Requeue::No);
        };
        let live = Duration::from_secs(seconds.max(0) as u64);
        let lived = since(self.context.clock.now(), finished);
        if lived < live {
            return Ok(Requeue::After(live - lived));
        }
        let foreground = kube::api::DeleteParams::foreground();
        self.context.delete_with(&self.context.stores.jobs, job, foreground).await?;
        Ok(Requeue::No)
    }
}

impl Reconcile for Jobs {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(job) = stores.jobs.get_key(key) else { return Ok(Requeue::No) };
        let owned = stores.pods.by(BY_CONTROLLER, uid_of(&*job));
        if let Some(finished) = plan::finished_at(&job) {
            return self.finish(&job, &owned, finished).await;
        }
        if job.metadata.deletion_timestamp.is_some() {
            for pod in &owned {
                self.release(pod).await?;
            }
            return Ok(Requeue::No);
        }
        let now = self.context.clock.now();
        let known = self.backoff.lock().unwrap_or_else(PoisonError::into_inner).get(uid_of(&*job)).copied();
        let plan = plan(&job, &owned, known.unwrap_or_default(), now);

        let old = job.status.clone().unwrap_or_default();
        self.context.merge_status(&stores.jobs, &*job, &old, &plan.status).await?;
        self.backoff
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(uid_of(&*job).to_string(), plan.backoff);
        let find = |name: &String| owned.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        for pod in plan.release.iter().filter_map(find) {
            self.release(pod).await?;
        }
        for pod in plan.delete.iter().filter_map(find) {
            self.context.delete(&stores.pods, &**pod).await?;
        }
        for index in &plan.create {
            let pod = plan::new_pod(&job, *index);
            match self.context.create(&stores.pods, &pod).await {
                Err(error) if is_namespace_terminating(&error) => return Ok(Requeue::No),
                outcome => drop(outcome?),
            }
        }
        Ok(plan.again.map(|at| until(now, at)).into())
    }
}

#[cfg(test)]
mod tests;
