//! The resources of built-in kinds.

use std::sync::Arc;

use super::{Conversion, Resource, Subresource, qualified};
use crate::builtin::{self, BuiltinKind};
use crate::selector::SelectableFields;

pub(super) fn resources() -> Vec<Resource> {
    builtin::kinds().iter().map(resource).collect()
}

fn resource(kind: &BuiltinKind) -> Resource {
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
    // Events are served in two groups, but stored in one. Every other kind is stored in the group in which it is
    // served.
    let (storage_group, storage_version, conversion) = match (kind.group, kind.version, kind.kind) {
        ("events.k8s.io", _, "Event") => ("", "v1", Conversion::Event),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => ("autoscaling", "v2", Conversion::Autoscaler),
        (group, version, _) => (group, version, Conversion::None),
    };
    Resource {
        group: kind.group.into(),
        version: kind.version.into(),
        kind: kind.kind.into(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.into(),
        singular: kind.singular.into(),
        short_names: strings(&kind.short_names),
        categories: strings(&kind.categories),
        namespaced: kind.namespaced,
        verbs: strings(&kind.verbs),
        subresources: kind
            .subresources
            .iter()
            .map(|subresource| Subresource {
                name: subresource.name.into(),
                group: subresource.group.into(),
                version: subresource.version.into(),
                kind: subresource.kind.into(),
                verbs: strings(&subresource.verbs),
            })
            .collect(),
        storage: qualified(storage_group, kind.plural).into(),
        storage_version: storage_version.into(),
        storage_version_hash: kind.storage_version_hash.map(str::to_string),
        conversion,
        selectable: Arc::new(SelectableFields::builtin(kind.group, kind.version, kind.kind)),
        custom: None,
    }
}
