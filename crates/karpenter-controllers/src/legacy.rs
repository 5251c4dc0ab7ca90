//! Serves the v1alpha5 API: derives a NodePool from each Provisioner and an EC2NodeClass from each AWSNodeTemplate, and
//! writes their status.
//!
//! The derived objects are computed in `karpenter-legacy` and applied here with server-side apply, so that manual edits of
//! derived objects are reverted. They have an owner reference, so the cluster deletes them with their owner. Objects
//! that were not derived are never written.

pub mod adoption;
pub mod emptiness;
mod revert;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karpenter_api::labels::{DERIVED_FROM, provisioner_of};
use karpenter_legacy::{
    Derived, Foreign, Options, Refusal, derive, derived_name, provisioner_status, template_status,
};
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store, keep_all};
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::inputs::{Reads, Writes};
use crate::stores::Stores;

const MANAGER: &str = "karpenter-legacy";
/// Changes are batched for this time before all objects are derived again.
const SETTLE: Duration = Duration::from_secs(1);

/// The only key of this controller: all objects are reconciled in one pass, because names and conflicts concern all
/// v1alpha5 objects.
fn everything() -> ObjectKey {
    ObjectKey::new("", "")
}

/// The watches of Provisioners, AWSNodeTemplates and EC2NodeClasses.
pub struct LegacyKinds {
    provisioners: Kind,
    templates: Kind,
    classes: Kind,
    watches: Vec<JoinHandle<()>>,
}

impl LegacyKinds {
    /// Starts the watches. If one of them fails, that is logged, and the readiness check names its kind.
    pub fn watch(client: &Client, stores: &Stores) -> Self {
        let mut watches = Vec::new();
        let kinds = [
            ("karpenter.sh", "v1alpha5", "Provisioner"),
            ("karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate"),
            ("karpenter.k8s.aws", "v1", "EC2NodeClass"),
        ];
        let [provisioners, templates, classes] = kinds.map(|(group, version, name)| {
            let kind = Kind::watch(client, group, version, name, &mut watches);
            stores.require_synced(name, &kind.store);
            kind
        });
        Self { provisioners, templates, classes, watches }
    }
}

impl Drop for LegacyKinds {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

/// The controller of derived objects. Each pass reconciles all of them.
pub struct LegacyApi {
    reads: Reads,
    writes: Writes,
    options: Options,
    kinds: LegacyKinds,
    /// For each derived object, by kind and name: what was applied last, and the resulting generation. Used to skip
    /// writes that would change nothing.
    applied: Mutex<BTreeMap<(String, String), (Value, i64)>>,
    /// The message that was last logged about each AWSNodeTemplate. It is logged, because an AWSNodeTemplate has no
    /// conditions that could contain it.
    logged: Mutex<BTreeMap<String, String>>,
}

/// A kind without a Rust type: its API resource and its store.
struct Kind {
    resource: ApiResource,
    store: Store<DynamicObject>,
}

impl Kind {
    fn watch(
        client: &Client,
        group: &str,
        version: &str,
        kind: &str,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let empty = Store::empty(keep_all, &[]);
        let (store, task) = empty.watch_resource_into(client, &resource, |object: DynamicObject| object);
        tasks.push(task);
        Self { resource, store }
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource)
    }
}

impl LegacyApi {
    /// Creates the controller after the stores of the v1alpha5 kinds and of EC2NodeClasses are synced.
    pub async fn start(reads: Reads, writes: Writes, kinds: LegacyKinds, options: Options) -> Self {
        for kind in [&kinds.provisioners, &kinds.templates, &kinds.classes] {
            kind.store.synced().await;
        }
        Self { reads, writes, options, kinds, applied: Mutex::default(), logged: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let clock = self.reads.clock;
        for kind in [&self.kinds.provisioners, &self.kinds.templates, &self.kinds.classes] {
            let to = queue.clone();
            kind.store
                .observe(move |_: &Change<DynamicObject>| to.add_at(everything(), clock.deadline(SETTLE)));
        }
        let to = queue.clone();
        self.reads.stores.node_pools.observe(move |_| to.add_at(everything(), clock.deadline(SETTLE)));
        queue.add(everything());
    }

    /// The names of NodePools and EC2NodeClasses that were not derived from v1alpha5 objects. They are never written.
    fn foreign(&self) -> Foreign {
        let pools = self.reads.stores.node_pools.list();
        let classes = self.kinds.classes.store.list();
        Foreign {
            pools: pools
                .iter()
                .filter(|pool| !is_derived(pool.labels()))
                .map(|pool| pool.name_any())
                .collect(),
            classes: classes
                .iter()
                .filter(|class| !is_derived(class.labels()))
                .map(|class| class.name_any())
                .collect(),
        }
    }

    /// The stored NodePool or EC2NodeClass with this name.
    fn present(&self, kind: &str, name: &str) -> Option<Value> {
        match kind {
            "NodePool" => {
                self.reads.stores.node_pools.get("", name).and_then(|pool| serde_json::to_value(&*pool).ok())
            }
            _ => self.kinds.classes.store.get("", name).and_then(|class| serde_json::to_value(&*class).ok()),
        }
    }

    async fn apply(&self, object: &Value) -> kube::Result<()> {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/kind"), text("/metadata/name"));
        let generation =
            |value: &Value| value.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        let present = self.present(&key.0, &key.1);
        let last = self.applied.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let (Some(present), Some((value, seen))) = (&present, &last)
            && value == object
            && generation(present) == *seen
            && has_metadata_of(present, object)
        {
            return Ok(());
        }
        let resource = match key.0.as_str() {
            "NodePool" => pool_resource(),
            _ => self.kinds.classes.resource.clone(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.writes.client.clone(), &resource);
        let mut written =
            api.patch(&key.1, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await?;
        if let Some(revert_patch) = revert::revert_patch(&written.metadata, MANAGER) {
            let by_us = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            written = api.patch(&key.1, &by_us, &Patch::Merge(revert_patch)).await?;
        }
        let generation = written.metadata.generation.unwrap_or(0);
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (object.clone(), generation));
        Ok(())
    }

    /// Logs why an AWSNodeTemplate is not served, once per message.
    fn log(&self, template: &str, refusal: Option<&Refusal>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        match refusal {
            Some(refusal) if logged.get(template) == Some(&refusal.message) => {}
            Some(Refusal { reason, message }) => {
                tracing::error!(template, reason, message, "failed serving AWSNodeTemplate");
                logged.insert(template.to_owned(), message.clone());
            }
            None => drop(logged.remove(template)),
        }
    }

    /// Writes the status of a v1alpha5 object if the status has changed.
    async fn write_status(&self, kind: &Kind, object: &DynamicObject, status: Value) -> kube::Result<()> {
        let old = object.data.get("status").cloned().unwrap_or(Value::Null);
        if status
            .as_object()
            .is_some_and(|fields| fields.iter().all(|(name, value)| old.get(name) == Some(value)))
        {
            return Ok(());
        }
        let mut patch = json!({"metadata": {"uid": object.uid()}, "status": status});
        // A merge patch keeps fields that it does not name, so resources that are no longer in the status are set to
        // null.
        let gone = old.pointer("/resources").and_then(Value::as_object).into_iter().flatten();
        for (name, _) in
            gone.filter(|(name, _)| status.pointer("/resources").is_some_and(|now| now.get(*name).is_none()))
        {
            patch["status"]["resources"][name] = Value::Null;
        }
        let api = kind.api(&self.writes.client);
        match api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => kind.store.apply(written),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl LegacyApi {
    /// Deletes derived EC2NodeClasses that are no longer needed, for example because the kubelet settings for which one
    /// was derived were removed.
    async fn prune(&self, owners: &BTreeMap<String, usize>, derived: &Derived) -> kube::Result<()> {
        for class in self.kinds.classes.store.list() {
            let owner = class.owner_references().iter().find_map(|owner| owners.get(&owner.uid));
            let is_wanted = derived.objects.iter().any(|(_, object)| {
                object["kind"] == "EC2NodeClass" && object["metadata"]["name"] == class.name_any()
            });
            // Objects of an owner with an error are kept, because the error may be fixed soon.
            let is_settled = owner.is_some_and(|owner| !derived.refusals.contains_key(owner));
            if is_derived(class.labels()) && is_settled && !is_wanted {
                self.delete(
                    &self.kinds.classes.resource,
                    &class.name_any(),
                    class.uid(),
                    DeleteParams::background(),
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Deletes derived NodePools whose Provisioner was deleted with `--cascade=orphan`. Their nodes stay.
    async fn delete_orphaned_pools(&self, provisioners: &[Arc<DynamicObject>]) -> kube::Result<()> {
        for pool in self.reads.stores.node_pools.list() {
            let is_orphan = provisioner_of(&pool.metadata).is_some() && pool.owner_references().is_empty();
            let is_claimed = provisioners.iter().any(|one| derived_name(&one.name_any()) == pool.name_any());
            if is_orphan && !is_claimed && pool.metadata.deletion_timestamp.is_none() {
                self.delete(&pool_resource(), &pool.name_any(), pool.uid(), DeleteParams::orphan()).await?;
            }
        }
        Ok(())
    }

    async fn delete(
        &self,
        resource: &ApiResource,
        name: &str,
        uid: Option<String>,
        params: DeleteParams,
    ) -> kube::Result<()> {
        let api: Api<DynamicObject> = Api::all_with(self.writes.client.clone(), resource);
        let params =
            DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..params };
        match api.delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl Reconcile for LegacyApi {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let provisioners = self.kinds.provisioners.store.list();
        let templates = self.kinds.templates.store.list();
        let value = |object: &DynamicObject| serde_json::to_value(object).unwrap_or(Value::Null);
        let objects: Vec<Value> = provisioners.iter().chain(&templates).map(|object| value(object)).collect();
        let mut derived = derive(&objects, &self.foreign(), &self.options);
        let (mut first_error, mut refused) = (None, Vec::new());
        for (input, object) in &derived.objects {
            match self.apply(object).await {
                Ok(()) => {}
                // The API server rejects a derived object, because v1alpha5 allowed values that v1 does not. The error
                // is reported on its owner; other objects are served.
                Err(kube::Error::Api(status)) if status.is_invalid() => {
                    let refusal = Refusal { reason: "Invalid", message: status.message.clone() };
                    refused.push((*input, refusal));
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        for (input, refusal) in refused {
            derived.refuse(&objects, input, refusal);
        }
        let now = self.reads.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for (input, object) in provisioners.iter().enumerate() {
            let refusal = derived.refusals.get(&input);
            let pool = self.reads.stores.node_pools.get("", &derived_name(&object.name_any()));
            let pool = pool
                .filter(|pool| is_derived(pool.labels()))
                .and_then(|pool| serde_json::to_value(&*pool).ok());
            let old = object.data.get("status").cloned().unwrap_or(Value::Null);
            self.write_status(
                &self.kinds.provisioners,
                object,
                provisioner_status(refusal, pool.as_ref(), &old, &now),
            )
            .await?;
        }
        for (input, object) in (provisioners.len()..).zip(&templates) {
            self.log(&object.name_any(), derived.refusals.get(&input));
            let class = self.kinds.classes.store.get("", &derived_name(&object.name_any()));
            let class = class.filter(|class| is_derived(class.labels())).map(|class| value(&class));
            self.write_status(&self.kinds.templates, object, template_status(class.as_ref())).await?;
        }
        let uids = provisioners.iter().chain(&templates).enumerate();
        let owners = uids.filter_map(|(input, object)| Some((object.uid()?, input))).collect();
        self.prune(&owners, &derived).await?;
        self.delete_orphaned_pools(&provisioners).await?;
        first_error.map_or(Ok(Requeue::No), Err)
    }
}

fn pool_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool"))
}

fn is_derived(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(DERIVED_FROM)
}

/// Whether the labels, annotations and owners of the derived object are those that were applied. They are compared,
/// because changing them does not increment the generation.
fn has_metadata_of(present: &Value, wanted: &Value) -> bool {
    let pairs = ["labels", "annotations"].iter().all(|field| {
        let wanted = wanted["metadata"].get(*field).and_then(Value::as_object).into_iter().flatten();
        wanted.into_iter().all(|(key, value)| present["metadata"][*field].get(key) == Some(value))
    });
    pairs && present["metadata"].get("ownerReferences") == wanted["metadata"].get("ownerReferences")
}
