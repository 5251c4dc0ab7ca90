//! The `eviction` subresource: checks the PodDisruptionBudget of a pod, decrements the disruptions that it allows, then
//! deletes the pod.
//!
//! The budget is written before the pod. If the pod changed after the budget was written, only the write of the pod is
//! retried, so that the budget is decremented only once.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go

use serde_json::Value;

use super::Call;
use super::decode::bad;
use super::pipeline::{Ownership, StoreLookup, UpdateError};
use super::subresource::success;
use crate::admission;
use crate::encode::Reply;
use crate::options::{DeleteOptions, WriteOptions};
use crate::status::ApiResult;
use crate::store::WriteRefused;

/// The field manager of budget updates, which kube-apiserver makes as a client of itself.
const MANAGER: &str = "kube-apiserver";

impl Call<'_> {
    pub(super) fn evict(&self) -> ApiResult<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        let eviction = self.body_value()?;
        let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
        if !named.is_empty() && named != self.name() {
            return Err(bad("name in URL does not match name in Eviction object"));
        }
        let dry_run = options.dry_run
            || eviction["deleteOptions"]["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        loop {
            let entry = self.stored()?;
            let pod = self.load(&entry);
            let decision =
                admission::decide_eviction(&pod, &eviction, dry_run, &StoreLookup(self.core), self.now)?;
            let mut delete_options = DeleteOptions::from_object(&decision.delete_options)?;
            delete_options.dry_run |= dry_run;
            if !dry_run {
                let marked = match &decision.budget {
                    Some(budget) if self.charge_budget(budget)? => self.mark_pod_evicted(&pod, &eviction)?,
                    Some(_) => continue,
                    None => match &decision.pod {
                        Some(pod) if self.store_pod(pod)? => true,
                        Some(_) => continue,
                        None => false,
                    },
                };
                if marked {
                    // The pod has just got the condition, so its resource version is no longer the one in the decision.
                    delete_options.resource_version = None;
                }
            }
            self.delete_object(&self.key(), self.name(), &delete_options)?;
            return Ok(Reply::json(201, &success(201)));
        }
    }

    /// Stores the new status of the budget. Returns false if the budget was changed after it was read.
    fn charge_budget(&self, budget: &Value) -> ApiResult<bool> {
        let Some(budgets) = self.registry.any_version("policy", "poddisruptionbudgets").cloned() else {
            return Ok(false);
        };
        let mut path = self.path.clone();
        path.group.clone_from(&budgets.group);
        path.version.clone_from(&budgets.version);
        path.plural.clone_from(&budgets.plural);
        path.name = budget["metadata"]["name"].as_str().map(str::to_string);
        path.subresource = Some("status".into());
        let call = self.with(budgets, path);
        let Some(entry) = call.core.store.get(&call.resource.storage, &call.key()) else { return Ok(false) };
        let old = call.load(&entry);
        if old["metadata"]["resourceVersion"] != budget["metadata"]["resourceVersion"] {
            return Ok(false);
        }
        match call.store_changed(&entry, &old, budget.clone(), Ownership::Manager(MANAGER), false) {
            Ok(_) => Ok(true),
            Err(UpdateError::Conflict) => Ok(false),
            Err(UpdateError::Rejected(failure)) => Err(failure),
        }
    }

    /// Gives the pod the condition `DisruptionTarget`, after its budget was decremented. Returns false if the pod has
    /// the condition.
    fn mark_pod_evicted(&self, charged: &Value, eviction: &Value) -> ApiResult<bool> {
        loop {
            let entry = self.stored()?;
            let pod = self.load(&entry);
            if pod["metadata"]["uid"] != charged["metadata"]["uid"] {
                // The pod was deleted in the meantime, and a new pod has its name.
                return Err(self.not_found());
            }
            let Some(marked) = admission::mark_evicted(&pod, eviction, self.now)? else { return Ok(false) };
            if self.store_pod(&marked)? {
                return Ok(true);
            }
        }
    }

    /// Stores the pod if its resource version is still current; returns false if it is not.
    fn store_pod(&self, pod: &Value) -> ApiResult<bool> {
        let revision = pod["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let Some(revision) = revision else { return Ok(false) };
        match self.core.store.update(&self.resource.storage, revision, self.draft(pod)) {
            Ok(_) => Ok(true),
            Err(WriteRefused::Changed(_)) => Ok(false),
            Err(WriteRefused::Missing | WriteRefused::Exists) => Err(self.not_found()),
        }
    }
}
