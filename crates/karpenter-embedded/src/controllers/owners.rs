//! Decides which objects a controller owns. The controller keeps objects that have its owner reference and match its
//! selector, adopts matching objects without a controller (orphans), and releases objects that no longer match its
//! selector.
//!
//! Upstream: pkg/controller/controller_ref_manager.go

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use karpenter_runtime::object::{is_conflict, is_not_found, uid_of};
use karpenter_runtime::store::Store;
use kube::Resource;
use serde_json::json;

use super::context::{Context, Kind};
use super::selector;

/// The action for an object in the controller's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Keep,
    Adopt,
    Release,
    Ignore,
}

/// The controller owner reference of an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// An owner reference with `controller: true`.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Decides whether the controller keeps, adopts, releases or ignores one object.
pub fn claim(controller: &ObjectMeta, selects: bool, object: &ObjectMeta) -> Claim {
    let deleting = controller.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(owner) if Some(&owner.uid) != controller.uid.as_ref() => Claim::Ignore,
        Some(_) if selects => Claim::Keep,
        Some(_) if deleting => Claim::Ignore,
        Some(_) => Claim::Release,
        None if deleting || !selects || object.deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// The objects of a namespace that `controller` owns, after adoption and release.
pub async fn claimed<O, K>(
    context: &Context,
    owners: &Store<O>,
    controller: &O,
    selector: &LabelSelector,
    objects: &Store<K>,
    candidates: Vec<std::sync::Arc<K>>,
    may_adopt: impl Fn(&K) -> bool,
) -> kube::Result<Vec<std::sync::Arc<K>>>
where
    O: Kind,
    K: Kind,
{
    let mut kept = Vec::new();
    let mut alive = None;
    for object in candidates {
        let meta = object.meta();
        match claim(controller.meta(), selector::matches_meta(selector, meta), meta) {
            Claim::Keep => kept.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let patch = json!({"metadata": {"ownerReferences": [
                    {"$patch": "delete", "uid": uid_of(controller)},
                ]}});
                match context.strategic(objects, &*object, patch).await {
                    Err(error) if !is_conflict(&error) => return Err(error),
                    _ => {}
                }
            }
            Claim::Adopt if !may_adopt(&object) => {}
            Claim::Adopt => {
                // While the owner is deleted with orphaning of its dependents, the store may still show it as alive, so
                // the owner is read from the API server before an adoption.
                let alive = match alive {
                    Some(alive) => alive,
                    None => *alive.insert(is_alive(context, owners, controller).await?),
                };
                if !alive {
                    continue;
                }
                let reference = controller_reference(controller);
                let patch = json!({"metadata": {"ownerReferences": [reference]}});
                match context.strategic(objects, &*object, patch).await {
                    Ok(Some(adopted)) => kept.push(std::sync::Arc::new(adopted)),
                    Ok(None) => {}
                    Err(error) if is_conflict(&error) || is_not_found(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(kept)
}

async fn is_alive<O: Kind>(context: &Context, owners: &Store<O>, controller: &O) -> kube::Result<bool> {
    let Some(fresh) = context.api(controller).get_opt(karpenter_runtime::object::name_of(controller)).await?
    else {
        return Ok(false);
    };
    let same = fresh.meta().uid == controller.meta().uid && fresh.meta().deletion_timestamp.is_none();
    owners.apply(fresh);
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, owner: Option<&str>) -> ObjectMeta {
        let owners = owner.map(|uid| {
            vec![OwnerReference { uid: uid.into(), controller: Some(true), ..OwnerReference::default() }]
        });
        ObjectMeta { uid: Some(uid.into()), owner_references: owners, ..ObjectMeta::default() }
    }

    fn deleted(mut meta: ObjectMeta) -> ObjectMeta {
        meta.deletion_timestamp = Some(karpenter_runtime::clock::Clock::system().time());
        meta
    }

    #[tokio::test]
    async fn selected_orphans_are_adopted_and_unselected_objects_released() {
        let us = meta("us", None);
        let gone = deleted(us.clone());
        assert_eq!(claim(&us, true, &meta("p", Some("us"))), Claim::Keep);
        assert_eq!(claim(&us, false, &meta("p", Some("us"))), Claim::Release);
        assert_eq!(claim(&us, true, &meta("p", Some("them"))), Claim::Ignore);
        assert_eq!(claim(&us, true, &meta("p", None)), Claim::Adopt);
        assert_eq!(claim(&us, false, &meta("p", None)), Claim::Ignore);
        assert_eq!(claim(&us, true, &deleted(meta("p", None))), Claim::Ignore);
        assert_eq!(claim(&gone, true, &meta("p", None)), Claim::Ignore);
        assert_eq!(claim(&gone, false, &meta("p", Some("us"))), Claim::Ignore);
        assert_eq!(claim(&gone, true, &meta("p", Some("us"))), Claim::Keep);
    }
}
