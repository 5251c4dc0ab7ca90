//! Decides the volume of a claim, the spec of a provisioned volume, and what happens to a volume without a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
    PersistentVolumeSpec, Pod, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_model::quantity::Quantity;
use karpenter_runtime::object::{annotation, is_deleting, label, name_of, namespace_of, uid_of};
use serde_json::{Value, json};

use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY, VOLUME_PROTECTION};
use crate::controllers::{owners, selector};

const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    Nothing,
    Bind(Arc<PersistentVolume>),
    Provision(Box<PersistentVolume>),
    Lost,
}

#[derive(Debug, PartialEq)]
pub(super) enum VolumeStep {
    Nothing,
    Phase(&'static str),
    Delete,
    Unprotect,
}

pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn phase_of(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn refers_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.namespace.as_deref() == Some(namespace_of(claim))
            && reference.name.as_deref() == Some(name_of(claim))
            && reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || uid == uid_of(claim))
    })
}

pub(super) fn claim_step(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    node: Option<&Node>,
    volumes: &[Arc<PersistentVolume>],
) -> ClaimStep {
    if let Some(name) = volume_of(claim) {
        let volume = volumes.iter().find(|volume| name_of(&***volume) == name);
        return match volume {
            Some(volume) if refers_to(volume, claim) => match phase_of(claim) {
                "Bound" => ClaimStep::Nothing,
                _ => ClaimStep::Bind(volume.clone()),
            },
            // A volume may be reserved for this claim.
            Some(volume) if volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none()) => {
                ClaimStep::Bind(volume.clone())
            }
            Some(_) => ClaimStep::Nothing,
            None if phase_of(claim) == "Bound" => ClaimStep::Lost,
            None => ClaimStep::Nothing,
        };
    }
    if let Some(volume) = volumes.iter().find(|volume| refers_to(volume, claim)) {
        return ClaimStep::Bind(volume.clone());
    }
    let waits =
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    if !waits && let Some(volume) = best_match(claim, volumes) {
        return ClaimStep::Bind(volume);
    }
    match class {
        Some(class) if class.provisioner != "kubernetes.io/no-provisioner" && (!waits || node.is_some()) => {
            ClaimStep::Provision(Box::new(new_volume(claim, class, node)))
        }
        _ => ClaimStep::Nothing,
    }
}

fn storage(
    list: Option<
        &std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    >,
) -> Option<Quantity> {
    list?.get("storage")?.0.parse().ok()
}

/// The smallest available volume that is large enough and matches the claim.
fn best_match(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
) -> Option<Arc<PersistentVolume>> {
    let spec = claim.spec.as_ref()?;
    let wanted = storage(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let class = spec.storage_class_name.as_deref().unwrap_or_default();
    let volume_mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
    volumes
        .iter()
        .filter(|volume| !is_deleting(&***volume))
        .filter_map(|volume| {
            let offered = volume.spec.as_ref()?;
            let size = storage(offered.capacity.as_ref())?;
            let fits = offered.claim_ref.is_none()
                && offered.storage_class_name.as_deref().unwrap_or_default() == class
                && offered.volume_mode.as_deref().unwrap_or("Filesystem") == volume_mode
                && modes
                    .iter()
                    .all(|mode| offered.access_modes.iter().flatten().any(|offered| offered == mode))
                && spec
                    .selector
                    .as_ref()
                    .is_none_or(|wanted| selector::matches_meta(wanted, &volume.metadata))
                && wanted.is_none_or(|wanted| size >= wanted);
            fits.then_some((size, volume))
        })
        .min_by(|(one, first), (two, second)| {
            one.cmp(two).then_with(|| name_of(&***first).cmp(name_of(&***second)))
        })
        .map(|(_, volume)| volume.clone())
}

/// The volume that a provisioner would create.
fn new_volume(claim: &PersistentVolumeClaim, class: &StorageClass, node: Option<&Node>) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let name = format!("pvc-{}", uid_of(claim));
    let zone =
        node.and_then(|node| label(node, ZONE)).map(str::to_string).or_else(|| first_allowed_zone(class));
    let rule = |key: &str, value: String| NodeSelectorRequirement {
        key: key.to_string(),
        operator: "In".into(),
        values: Some(vec![value]),
    };
    let node_affinity = zone.map(|zone| VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Some(vec![rule(ZONE, zone)]),
                match_fields: None,
            }],
        }),
    });
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        annotations: Some([(PROVISIONED_BY.to_string(), class.provisioner.clone())].into()),
        finalizers: Some(vec![VOLUME_PROTECTION.into()]),
        ..ObjectMeta::default()
    };
    let reference = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: Some(namespace_of(claim).to_string()),
        name: Some(name_of(claim).to_string()),
        uid: Some(uid_of(claim).to_string()),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    };
    let spec = PersistentVolumeSpec {
        access_modes: spec.access_modes,
        capacity: Some(requests),
        claim_ref: Some(reference),
        csi: Some(CSIPersistentVolumeSource {
            driver: class.provisioner.clone(),
            volume_handle: name,
            ..CSIPersistentVolumeSource::default()
        }),
        mount_options: class.mount_options.clone(),
        node_affinity,
        persistent_volume_reclaim_policy: Some(
            class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into()),
        ),
        storage_class_name: class.metadata.name.clone(),
        volume_mode: spec.volume_mode,
        ..PersistentVolumeSpec::default()
    };
    PersistentVolume { metadata, spec: Some(spec), status: None }
}

fn first_allowed_zone(class: &StorageClass) -> Option<String> {
    let terms = class.allowed_topologies.iter().flatten();
    let rules = terms.flat_map(|term| term.match_label_expressions.iter().flatten());
    rules.into_iter().find(|rule| rule.key == ZONE).and_then(|rule| rule.values.first().cloned())
}

/// The patch that binds a volume to a claim; `None` if it is bound.
pub(super) fn volume_binding(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if reference.is_some_and(|reference| reference.uid.as_deref() == Some(uid_of(claim))) {
        return None;
    }
    // The annotation records that this controller, not the user, wrote the reference to the claim. When the claim is
    // gone, the controller removes only such a reference.
    let ours = reference.is_none().then(|| json!({BOUND_BY_CONTROLLER: "yes"}));
    Some(json!({
        "metadata": {"annotations": ours},
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace_of(claim),
            "name": name_of(claim), "uid": uid_of(claim), "resourceVersion": claim.metadata.resource_version,
        }},
    }))
}

pub(super) fn bound_status(
    old: &PersistentVolumeClaimStatus,
    volume: &PersistentVolume,
) -> PersistentVolumeClaimStatus {
    let spec = volume.spec.clone().unwrap_or_default();
    PersistentVolumeClaimStatus {
        phase: Some("Bound".into()),
        access_modes: spec.access_modes,
        capacity: spec.capacity,
        ..old.clone()
    }
}

pub(super) fn volume_step(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let spec = volume.spec.clone().unwrap_or_default();
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let to =
        |wanted: &'static str| if phase == wanted { VolumeStep::Nothing } else { VolumeStep::Phase(wanted) };
    if is_deleting(volume) {
        return if phase == "Bound" && claim.is_some() { VolumeStep::Nothing } else { VolumeStep::Unprotect };
    }
    let Some(reference) = &spec.claim_ref else { return to("Available") };
    // The volume is reserved for a claim that does not exist yet.
    if reference.uid.as_deref().unwrap_or_default().is_empty() {
        return if claim.is_some() { VolumeStep::Nothing } else { to("Available") };
    }
    if claim.is_some() {
        return to("Bound");
    }
    if !matches!(phase, "Released" | "Failed") {
        return VolumeStep::Phase("Released");
    }
    let deletes = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    // Only provisioned volumes are deleted.
    if deletes && annotation(volume, PROVISIONED_BY).is_some() {
        VolumeStep::Delete
    } else {
        VolumeStep::Nothing
    }
}

/// The claim of a pod's generic ephemeral volume, if the pod has one with this name.
pub(super) fn ephemeral_claim(pod: &Pod, name: &str) -> Option<PersistentVolumeClaim> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let volume = volumes
        .iter()
        .find(|volume| volume.ephemeral.is_some() && format!("{}-{}", name_of(pod), volume.name) == name)?;
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(name.to_string()),
        namespace: Some(namespace_of(pod).to_string()),
        labels: meta.labels,
        annotations: meta.annotations,
        owner_references: Some(vec![owners::controller_reference(pod)]),
        ..ObjectMeta::default()
    };
    Some(PersistentVolumeClaim { metadata, spec: Some(template.spec.clone()), status: None })
}
