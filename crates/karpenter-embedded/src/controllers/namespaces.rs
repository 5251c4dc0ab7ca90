//! Namespace controller: deletes all objects in a terminating namespace, pods first, and then removes the namespace's
//! finalizer.
//!
//! Upstream: pkg/controller/namespace/deletion/namespaced_resources_deleter.go

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, Pod};
use karpenter_runtime::object::{ObjectKey, is_conflict, is_not_found, message_of, name_of, namespace_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::context::Context;
use super::kinds::{self, ServedKind};

const FINALIZER: &str = "kubernetes";
/// The interval between attempts while content remains.
const RETRY: Duration = Duration::from_secs(1);

pub struct Namespaces {
    pub context: Context,
}

/// The remaining content of a namespace.
#[derive(Debug, Default, PartialEq)]
struct RemainingContent {
    /// Numbers of objects by kind.
    objects: BTreeMap<String, usize>,
    /// Numbers of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Namespaces {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context
            .stores
            .namespaces
            .observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, namespaces) = (queue.clone(), self.context.stores.namespaces.clone());
        self.context.stores.pods.observe(move |change: &Change<Pod>| {
            let namespace = namespace_of(&**change.object());
            let ends = |namespace: Arc<Namespace>| namespace.metadata.deletion_timestamp.is_some();
            if change.is_deleted() && namespaces.get("", namespace).is_some_and(ends) {
                to.add(ObjectKey::new("", namespace));
            }
        });
    }

    /// Deletes the objects of a kind, and counts those that remain.
    async fn clear(
        &self,
        kind: &ServedKind,
        namespace: &str,
        remaining: &mut RemainingContent,
    ) -> kube::Result<()> {
        let api = kind.api(&self.context.client, namespace);
        let everything = ListParams::default();
        let listed = match api.list_metadata(&everything).await {
            // The kind is no longer served.
            Err(error)
                if is_not_found(&error)
                    || matches!(&error, kube::Error::Api(status) if status.code == 405) =>
            {
                return Ok(());
            }
            listed => listed?,
        };
        if listed.items.is_empty() {
            return Ok(());
        }
        let background = DeleteParams::background();
        let deleted = if kind.delete_collection {
            api.delete_collection(&background, &everything).await.map(drop)
        } else {
            let mut outcome = Ok(());
            for object in &listed.items {
                let deleted = api.delete(name_of(object), &background).await.map(drop);
                outcome = outcome
                    .and(deleted.or_else(|error| if is_not_found(&error) { Ok(()) } else { Err(error) }));
            }
            outcome
        };
        if let Err(error) = deleted {
            remaining.failures.push(message_of(&error));
        }
        let left = api.list_metadata(&everything).await?;
        if !left.items.is_empty() {
            let ApiName { plural, group } = ApiName::of(kind);
            remaining.objects.insert(format!("{plural}.{group}"), left.items.len());
        }
        for object in &left.items {
            for finalizer in object.metadata.finalizers.iter().flatten() {
                *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        Ok(())
    }

    async fn finalize(&self, namespace: &Namespace) -> kube::Result<()> {
        let api = self.context.api(namespace);
        let Some(mut fresh) = api.get_opt(name_of(namespace)).await? else { return Ok(()) };
        let finalizers = fresh.spec.get_or_insert_default().finalizers.get_or_insert_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        match api.replace_subresource("finalize", name_of(namespace), &PostParams::default(), &fresh).await {
            Err(error) if is_not_found(&error) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

struct ApiName<'a> {
    plural: &'a str,
    group: &'a str,
}

impl<'a> ApiName<'a> {
    fn of(kind: &'a ServedKind) -> Self {
        Self { plural: &kind.resource.plural, group: &kind.resource.group }
    }
}

impl Reconcile for Namespaces {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(namespace) = stores.namespaces.get_key(key) else { return Ok(Requeue::No) };
        let finalizers =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
        let holds = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        if namespace.metadata.deletion_timestamp.is_none() || !holds {
            return Ok(Requeue::No);
        }
        let kinds = kinds::discover(&self.context.client).await?;
        let mut remaining = RemainingContent::default();
        let (pods, others): (Vec<_>, Vec<_>) =
            kinds.into_iter().filter(|kind| kind.namespaced).partition(|kind| kind.is("", "Pod"));
        for kind in &pods {
            self.clear(kind, &key.name, &mut remaining).await?;
        }
        // Objects that pods may use, such as Secrets, are kept until the pods are gone.
        if remaining == RemainingContent::default() {
            for kind in &others {
                self.clear(kind, &key.name, &mut remaining).await?;
            }
        }
        let conditions = conditions(&namespace, &remaining, self.context.clock.time());
        let done = remaining == RemainingContent::default();
        if conditions != namespace.status.clone().unwrap_or_default().conditions.unwrap_or_default() {
            let patch = json!({"status": {"conditions": conditions, "phase": "Terminating"}});
            match self.context.strategic_status(&stores.namespaces, &*namespace, patch).await {
                Err(error) if is_conflict(&error) => {}
                outcome => drop(outcome?),
            }
        }
        if !done {
            return Ok(Requeue::After(RETRY));
        }
        self.finalize(&namespace).await?;
        Ok(Requeue::No)
    }
}

/// The five conditions that report why a namespace still exists.
fn conditions(
    namespace: &Namespace,
    remaining: &RemainingContent,
    now: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) -> Vec<NamespaceCondition> {
    let list = |counts: &BTreeMap<String, usize>, what: &str| {
        let parts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {what} {count} resource instances")).collect();
        parts.join(", ")
    };
    let failures = remaining.failures.join(", ");
    let found = [
        (
            "NamespaceDeletionDiscoveryFailure",
            None,
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            (!failures.is_empty()).then(|| {
                (
                    "ContentDeletionFailed",
                    format!(
                        "Failed to delete all resource types, {} remaining: {failures}",
                        remaining.failures.len()
                    ),
                )
            }),
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            (!remaining.objects.is_empty()).then(|| {
                (
                    "SomeResourcesRemain",
                    format!("Some resources are remaining: {}", list(&remaining.objects, "has")),
                )
            }),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            (!remaining.finalizers.is_empty()).then(|| {
                let held = list(&remaining.finalizers, "in");
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {held}"),
                )
            }),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    let known = namespace.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    found
        .into_iter()
        .map(|(kind, trouble, (good_reason, good_message))| {
            let (status, reason, message) = match trouble {
                Some((reason, message)) => ("True", reason.to_string(), message),
                None => ("False", good_reason.to_string(), good_message.to_string()),
            };
            let before = known.iter().find(|known| known.type_ == kind);
            let same =
                before.filter(|before| before.status == status && before.reason.as_ref() == Some(&reason));
            NamespaceCondition {
                type_: kind.to_string(),
                status: status.to_string(),
                message: Some(message),
                reason: Some(reason),
                last_transition_time: same
                    .and_then(|same| same.last_transition_time.clone())
                    .or(Some(now.clone())),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_report_remaining_content() {
        let remaining = RemainingContent {
            objects: [("pods.".to_string(), 2)].into(),
            finalizers: [("example.com/hold".to_string(), 1)].into(),
            failures: Vec::new(),
        };
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(crate::controllers::fixtures::now());
        let all = conditions(&Namespace::default(), &remaining, now);
        let messages: Vec<(&str, &str)> =
            all.iter().map(|one| (one.status.as_str(), one.message.as_deref().unwrap_or_default())).collect();
        assert_eq!(messages[3], ("True", "Some resources are remaining: pods. has 2 resource instances"));
        let held = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
        assert_eq!(messages[4], ("True", held));
        assert_eq!(messages[0].0, "False");
    }
}
