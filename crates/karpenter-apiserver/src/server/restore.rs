//! Loads the persisted objects into the store, with the revisions that they had before the restart.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Core;
use crate::selector::SelectableFields;
use crate::store::{Draft, StorageId};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

pub(super) fn restore(core: &Core, revision: u64, objects: BTreeMap<(String, String), (u64, Vec<u8>)>) {
    // CustomResourceDefinitions are loaded first, because they state the selectable fields of other objects.
    let (definitions, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|((storage, _), _)| storage == DEFINITIONS);
    for (object_key, stored) in definitions {
        let definition = restore_object(core, &object_key, &stored);
        core.change_registry(|registry| {
            // This cannot fail, because the server accepted the CRD before the restart.
            let _ = registry.define(&definition);
        });
    }
    for (object_key, stored) in others {
        restore_object(core, &object_key, &stored);
    }
    core.store.finish_restore(revision);
    core.ids.skip_past(revision);
}

fn restore_object(
    core: &Core,
    (storage, key): &(String, String),
    (revision, text): &(u64, Vec<u8>),
) -> Value {
    // The checksum of the record is right, so the text is JSON that the server wrote.
    let object: Value = serde_json::from_slice(text).unwrap_or_default();
    let registry = core.registry();
    let resource = registry.all().find(|resource| *resource.storage == **storage);
    let storage: StorageId =
        resource.map_or_else(|| storage.as_str().into(), |resource| resource.storage.clone());
    let draft = match resource {
        Some(resource) => Draft::new(&object, &resource.selectable),
        None => Draft::new(&object, &SelectableFields::metadata_only()),
    };
    core.store.restore(&storage, *revision, Some(draft), key);
    object
}
