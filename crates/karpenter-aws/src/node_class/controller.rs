//! The controller `nodeclass`, which updates the status of EC2NodeClasses and finalizes deleted ones.
//!
//! Upstream: `pkg/controllers/nodeclass/controller.go`

mod validate;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_api::conditions::{ConditionSet, ec2_node_class_conditions};
use karpenter_api::types::{EC2NodeClass, NodeClaim};
use karpenter_controllers::Context;
use karpenter_controllers::events::ObjectEvent;
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::DynamicObject;
use serde_json::json;

use super::classes::{NodeClasses, read, refers_to, without_spec};
use super::conditions::{ConditionResult, Failure, record};
use super::decide::{Observed, back_off, decide, requeue_after};
use super::failure_log::{FailureLog, condition_events};
use super::finalize::{
    WAITING, WAITING_PERIOD, profile_failure, waiting_message, with_finalizer, without_finalizer,
};
use super::remedy::failure;
use super::sources::Sources;
use super::validation;
use super::validation::cache::ValidationCache;
use super::writes::ClassWrites;
use crate::api::Ec2;
use crate::profiles::{ProfileError, Profiles};
use crate::security_groups::SecurityGroups;
use crate::subnets::Subnets;

/// The reason of the event that reports that instance profiles or launch templates of a deleted node class could not be
/// deleted.
const CLEAN_UP_FAILED: &str = "CleanUpFailed";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassSettings {
    pub cluster_name: String,
    /// Whether the VPC has no access to IAM, so that instance profiles of a deleted node class are not deleted.
    pub is_isolated_vpc: bool,
    pub is_dry_run_disabled: bool,
}

/// The modules and settings that the controller uses.
#[derive(Clone)]
pub struct ClassParts {
    pub classes: NodeClasses,
    pub sources: Arc<dyn Sources>,
    pub ec2: Arc<dyn Ec2>,
    pub subnets: Arc<Subnets>,
    pub security_groups: Arc<SecurityGroups>,
    pub profiles: Arc<Profiles>,
}

/// The controller `nodeclass`.
pub struct NodeClassStatus {
    context: Context,
    parts: ClassParts,
    settings: ClassSettings,
    writes: ClassWrites,
    failure_log: FailureLog,
    validation_cache: ValidationCache,
    /// For each node class, by uid: how many consecutive reconciles ended with a retry.
    retries: Mutex<BTreeMap<String, u32>>,
}

impl NodeClassStatus {
    pub fn new(context: Context, parts: ClassParts, settings: ClassSettings) -> Self {
        let writes = ClassWrites::new(context.client.clone(), parts.classes.store().clone());
        let validation_cache = ValidationCache::new(context.clock);
        let (failure_log, retries) = (FailureLog::default(), Mutex::default());
        Self { context, parts, settings, writes, failure_log, validation_cache, retries }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.parts.classes.store().observe(move |change| {
            if needs_reconcile(change) {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let to = queue.clone();
        self.context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            // A terminating node class is finalized when its last NodeClaim is gone, so every deletion of a NodeClaim
            // of the node class triggers a reconcile.
            if change.is_deleted() {
                to.add(ObjectKey::new("", change.object().spec.node_class_ref.name.as_str()));
            }
        });
    }

    async fn observe_and_decide(&self, class: &EC2NodeClass) -> (EC2NodeClass, Vec<ConditionResult>) {
        let ClassParts { sources, subnets, security_groups, .. } = &self.parts;
        let has_reservations = self.context.gates.reserved_capacity;
        let reservations =
            async { if has_reservations { Some(sources.reservations(class).await) } else { None } };
        let (images, reservations, placement_group, subnets, security_groups, profile) = futures::join!(
            sources.images(class),
            reservations,
            sources.placement_group(class),
            subnets.list(class),
            security_groups.list(class),
            self.profile(class),
        );
        let observed = Observed {
            images,
            reservations,
            placement_group,
            subnets: subnets.as_ref().map(|list| list.as_slice()).map_err(Clone::clone),
            security_groups: security_groups.as_ref().map(|list| list.as_slice()).map_err(Clone::clone),
            profile,
        };
        let mut drafted = class.clone();
        // The resource version is removed from the draft, because caches with it in their key must not mistake the
        // draft for the stored object.
        drafted.metadata.resource_version = None;
        let mut status = drafted.status.take().unwrap_or_default();
        let mut results = decide(class, observed, &mut status, self.context.clock.now());
        let mut conditions = std::mem::take(&mut status.conditions);
        drafted.status = Some(status);
        let types = ec2_node_class_conditions(has_reservations);
        let now = self.context.clock.now();
        let mut set = ConditionSet::open(types, &class.metadata, &mut conditions, now);
        results.iter().for_each(|result| record(&mut set, result));
        let validated = self.validate(&drafted, &set).await;
        record(&mut set, &validated);
        results.push(validated);
        if let Some(status) = &mut drafted.status {
            status.conditions = conditions;
        }
        (drafted, results)
    }

    async fn profile(&self, class: &EC2NodeClass) -> Result<String, ProfileError> {
        if let Some(role) = class.spec.role.as_deref().filter(|role| !role.is_empty()) {
            return self.parts.profiles.ensure(class, role).await;
        }
        let named = class.spec.instance_profile.clone().unwrap_or_default();
        // If the node class named a role before, launches in flight may still use the instance profile that Karpenter
        // created for that role.
        let before = class.status.as_ref().and_then(|status| status.instance_profile.as_deref());
        if let Some(before) = before.filter(|before| !before.is_empty() && *before != named) {
            self.parts.profiles.protect(before);
        }
        Ok(named)
    }

    /// The node class with an empty spec, and the condition that reports that its spec cannot be parsed.
    fn unreadable(&self, object: &DynamicObject, problem: &str) -> (EC2NodeClass, Vec<ConditionResult>) {
        let mut class = without_spec(object);
        let result = validation::unreadable(problem);
        let types = ec2_node_class_conditions(self.context.gates.reserved_capacity);
        let mut status = class.status.take().unwrap_or_default();
        let now = self.context.clock.now();
        record(&mut ConditionSet::open(types, &class.metadata, &mut status.conditions, now), &result);
        class.status = Some(status);
        (class, vec![result])
    }

    async fn finalize(&self, object: &DynamicObject) -> kube::Result<Requeue> {
        let Some(finalizers) = without_finalizer(&object.metadata) else { return Ok(Requeue::No) };
        // A node class can be finalized even if it cannot be parsed.
        let class = read(object).unwrap_or_else(|_| without_spec(object));
        let name = name_of(object);
        let claims = self.context.stores.node_claims.list();
        let claims = claims.iter().filter(|claim| refers_to(&claim.spec.node_class_ref, name));
        let claims: Vec<String> = claims.map(|claim| name_of(&**claim).to_owned()).collect();
        if !claims.is_empty() {
            let notice =
                ObjectEvent::normal(&class, WAITING, waiting_message(&claims)).dedupe_by(uid_of(object));
            self.context.recorder.publish(notice).await;
            return Ok(Requeue::After(WAITING_PERIOD));
        }
        if let Err(failure) = self.clean_up(&class, name).await {
            let times = self.count_retry(uid_of(object));
            self.failure_log.log_cleanup(&class, &failure);
            let notice =
                ObjectEvent::warning(&class, CLEAN_UP_FAILED, failure.error).dedupe_by(uid_of(object));
            self.context.recorder.publish(notice).await;
            return Ok(Requeue::After(back_off(times)));
        }
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        self.writes.merge_unchanged(object, patch).await?;
        self.forget(name, uid_of(object));
        Ok(Requeue::No)
    }

    async fn clean_up(&self, class: &EC2NodeClass, name: &str) -> Result<(), Failure> {
        if !self.settings.is_isolated_vpc {
            self.parts.profiles.delete_all(class).await.map_err(|error| profile_failure(&error))?;
        }
        let deleted = self.parts.sources.delete_templates(name).await;
        deleted.map_err(|error| failure("ec2:DeleteLaunchTemplate", &error))
    }

    fn count_retry(&self, uid: &str) -> u32 {
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let times = retries.entry(uid.to_owned()).or_insert(0);
        *times = times.saturating_add(1);
        *times
    }

    fn forget(&self, name: &str, uid: &str) {
        self.validation_cache.forget(name);
        self.failure_log.forget(uid);
        self.retries.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn schedule(&self, uid: &str, results: &[ConditionResult]) -> Requeue {
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let before = retries.get(uid).copied().unwrap_or(0);
        let (after, times) = requeue_after(results, before);
        retries.insert(uid.to_owned(), times);
        after
    }
}

impl Reconcile for NodeClassStatus {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(object) = self.parts.classes.store().get_key(key) else { return Ok(Requeue::No) };
        if is_deleting(&*object) {
            return self.finalize(&object).await;
        }
        let object = match with_finalizer(&object.metadata) {
            None => object,
            Some(finalizers) => {
                let patch = json!({ "metadata": { "finalizers": finalizers } });
                match self.writes.merge_unchanged(&object, patch).await? {
                    Some(held) => Arc::new(held),
                    None => return Ok(Requeue::No),
                }
            }
        };
        let (old, (class, results)) = match read(&object) {
            Ok(class) => {
                let decided = self.observe_and_decide(&class).await;
                (class.status.unwrap_or_default(), decided)
            }
            Err(problem) => {
                let old = without_spec(&object).status.unwrap_or_default();
                (old, self.unreadable(&object, &problem))
            }
        };
        results.iter().for_each(|result| self.failure_log.log_result(&class, result));
        let new = class.status.clone().unwrap_or_default();
        if self.writes.status_unchanged(&object, &old, &new).await?.is_some() {
            for notice in condition_events(&class, &old.conditions, &new.conditions) {
                self.context.recorder.publish(notice).await;
            }
        }
        Ok(self.schedule(uid_of(&*object), &results))
    }
}

/// Whether something other than the status changed. Only this controller writes the status, so such a change needs no
/// reconcile.
fn needs_reconcile(change: &Change<DynamicObject>) -> bool {
    match change {
        Change::Deleted { .. } => false,
        Change::Applied { old: None, .. } => true,
        Change::Applied { old: Some(old), new } => {
            let (old, new) = (&old.metadata, &new.metadata);
            old.uid != new.uid
                || old.generation != new.generation
                || old.annotations != new.annotations
                || old.finalizers != new.finalizers
                || old.deletion_timestamp != new.deletion_timestamp
        }
    }
}
