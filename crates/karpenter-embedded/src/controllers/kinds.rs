//! The kinds that the API server serves, including custom resources, from discovery.

use std::sync::Arc;

use kube::api::ApiResource;
use kube::api::DynamicObject;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};

/// A kind whose objects can be listed, watched and deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedKind {
    pub resource: ApiResource,
    pub namespaced: bool,
    pub delete_collection: bool,
}

impl ServedKind {
    /// The API of a namespace; of all namespaces if it is empty or the kind is cluster-scoped.
    pub fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }

    /// The full name of a kind, such as `deployments.apps` or `pods`.
    pub fn full_name(&self) -> String {
        let ApiResource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }
}

/// Discovers the served kinds: each once, in its preferred version, sorted by name.
pub async fn discover(client: &Client) -> kube::Result<Vec<Arc<ServedKind>>> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(_) => Discovery::new(client.clone()).run().await?,
    };
    let mut kinds: Vec<Arc<ServedKind>> = Vec::new();
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.resources_by_stability() {
            let supports = |verb| capabilities.supports_operation(verb);
            if !(supports(verbs::LIST) && supports(verbs::WATCH) && supports(verbs::DELETE)) {
                continue;
            }
            kinds.push(Arc::new(ServedKind {
                resource,
                namespaced: capabilities.scope == Scope::Namespaced,
                delete_collection: supports(verbs::DELETE_COLLECTION),
            }));
        }
    }
    kinds.sort_by_key(|kind| kind.full_name());
    kinds.dedup_by_key(|kind| kind.full_name());
    Ok(kinds)
}
