//! The history of a DaemonSet's or StatefulSet's template as ControllerRevisions, which `kubectl rollout history` and
//! `undo` read.
//!
//! Upstream: pkg/controller/history/controller_history.go

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use karpenter_runtime::object::{is_already_exists, name_of, namespace_of, uid_of};
use serde_json::{Value, json};

use super::context::{Context, Kind};
use super::{hash, owners};
use crate::stores::BY_CONTROLLER;

/// The label with a pod's revision.
pub const REVISION_HASH: &str = "controller-revision-hash";

/// The revisions of one workload, oldest first, with the revision of the current template.
#[derive(Debug)]
pub struct History {
    pub revisions: Vec<Arc<ControllerRevision>>,
    pub wanted: Arc<ControllerRevision>,
}

/// The patch that restores a template, in the form in which `kubectl rollout undo` sends it.
fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template in a revision.
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The hash in a revision's name.
pub fn hash_of(revision: &ControllerRevision) -> String {
    let labels = revision.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(REVISION_HASH).or_else(|| labels.get("controller.kubernetes.io/hash")))
        .cloned()
        .unwrap_or_default()
}

/// The write that makes a revision of `template` the newest one.
#[derive(Debug, PartialEq)]
enum Step {
    Create { hash: String, revision: i64 },
    Raise { position: usize, revision: i64 },
    Use { position: usize },
}

fn decide(known: &[Arc<ControllerRevision>], template: &PodTemplateSpec, collisions: Option<i32>) -> Step {
    let newest = known.iter().map(|revision| revision.revision).max().unwrap_or(0);
    let position = known.iter().rposition(|revision| template_of(revision).as_ref() == Some(template));
    match position {
        Some(position) if known[position].revision == newest => Step::Use { position },
        Some(position) => Step::Raise { position, revision: newest + 1 },
        None => Step::Create { hash: hash::short_hash(template, collisions), revision: newest + 1 },
    }
}

/// Finds, renumbers or creates the revision of the template. `None` if another revision has the same name, so that the
/// collision count must be increased.
pub async fn sync<O: Kind>(
    context: &Context,
    owner: &O,
    template: &PodTemplateSpec,
    hash_label: &str,
    collisions: Option<i32>,
) -> kube::Result<Option<History>> {
    let store = &context.stores.controller_revisions;
    let list = || {
        let mut revisions = store.by(BY_CONTROLLER, uid_of(owner));
        revisions.sort_by_key(|revision| revision.revision);
        revisions
    };
    let known = list();
    let wanted = match decide(&known, template, collisions) {
        Step::Use { position } => known[position].clone(),
        Step::Raise { position, revision } => {
            let patch = json!({"revision": revision});
            match context.merge(store, &*known[position], patch).await? {
                Some(raised) => Arc::new(raised),
                None => return Ok(None),
            }
        }
        Step::Create { hash, revision } => {
            let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
            let mut labels = labels.unwrap_or_default();
            labels.insert(hash_label.to_string(), hash.clone());
            let owner_reference: OwnerReference = owners::controller_reference(owner);
            let metadata = ObjectMeta {
                name: Some(format!("{}-{hash}", name_of(owner))),
                namespace: Some(namespace_of(owner).to_string()),
                labels: Some(labels),
                annotations: owner.meta().annotations.clone().map(|mut annotations| {
                    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
                    annotations
                }),
                owner_references: Some(vec![owner_reference]),
                ..ObjectMeta::default()
            };
            let data = k8s_openapi::apimachinery::pkg::runtime::RawExtension(data_of(template));
            let new = ControllerRevision { metadata, data: Some(data), revision };
            match context.create(store, &new).await {
                Ok(created) => Arc::new(created),
                Err(error) if is_already_exists(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    };
    Ok(Some(History { revisions: list(), wanted }))
}

/// Deletes the oldest revisions beyond `limit` that no pod uses.
pub async fn clean_up(
    context: &Context,
    history: &History,
    in_use: impl Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> kube::Result<()> {
    let old: Vec<_> = history
        .revisions
        .iter()
        .filter(|revision| revision.metadata.uid != history.wanted.metadata.uid && !in_use(revision))
        .collect();
    let excess = old.len().saturating_sub(limit.max(0) as usize);
    for revision in old.into_iter().take(excess) {
        context.delete(&context.stores.controller_revisions, &**revision).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::fixtures::from;

    fn template(image: &str) -> PodTemplateSpec {
        from(json!({"spec": {"containers": [{"name": "c", "image": image}]}}))
    }

    fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
        Arc::new(from(
            json!({"metadata": {"name": image}, "revision": number, "data": data_of(&template(image))}),
        ))
    }

    #[test]
    fn template_round_trips_through_revision() {
        assert_eq!(template_of(&revision("a", 1)), Some(template("a")));
    }

    #[test]
    fn revision_of_old_template_becomes_the_newest() {
        let known = [revision("a", 1), revision("b", 2)];
        assert_eq!(decide(&known, &template("b"), None), Step::Use { position: 1 });
        assert_eq!(decide(&known, &template("a"), None), Step::Raise { position: 0, revision: 3 });
        assert!(matches!(decide(&known, &template("c"), None), Step::Create { revision: 3, .. }));
    }
}
