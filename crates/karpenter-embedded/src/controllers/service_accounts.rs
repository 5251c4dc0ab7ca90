//! Creates the service account `default` in every namespace.
//!
//! Upstream: pkg/controller/serviceaccount/serviceaccounts_controller.go

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_runtime::object::{ObjectKey, is_already_exists, is_namespace_terminating};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::context::Context;

/// The controller; the keys of its queue are names of namespaces.
pub struct ServiceAccounts {
    pub context: Context,
}

impl ServiceAccounts {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context
            .stores
            .namespaces
            .observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let to = queue.clone();
        self.context.stores.service_accounts.observe(move |change| {
            if change.is_deleted() {
                let namespace = change.object().metadata.namespace.clone().unwrap_or_default();
                to.add(ObjectKey::new("", namespace));
            }
        });
    }
}

impl Reconcile for ServiceAccounts {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let alive = stores.namespaces.get_key(key).is_some_and(|namespace| {
            namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating")
        });
        if !alive || stores.service_accounts.get(&key.name, "default").is_some() {
            return Ok(Requeue::No);
        }
        let metadata = ObjectMeta {
            name: Some("default".into()),
            namespace: Some(key.name.clone()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match self.context.create(&stores.service_accounts, &account).await {
            Err(error) if is_already_exists(&error) || is_namespace_terminating(&error) => Ok(Requeue::No),
            outcome => outcome.map(|_| Requeue::No),
        }
    }
}
