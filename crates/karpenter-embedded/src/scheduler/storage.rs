//! Claims, volumes, storage classes and attach limits of a node's drivers, parsed once from the API objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use karpenter_model::quantity::Quantity;
use karpenter_model::selector::{LabelSelector, Labels};

use super::selectors::{NodeTerm, label_selector, labels, node_terms};

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

fn storage_of(
    quantities: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Quantity {
    let text = quantities.and_then(|quantities| quantities.get("storage"));
    text.and_then(|text| text.0.parse().ok()).unwrap_or(Quantity::ZERO)
}

fn class_of(annotations: Option<&BTreeMap<String, String>>, named: Option<&String>) -> Arc<str> {
    let annotated = annotations.and_then(|annotations| annotations.get(CLASS_ANNOTATION));
    annotated.or(named).map(String::as_str).unwrap_or_default().into()
}

fn mode_of(mode: Option<&String>) -> String {
    mode.cloned().unwrap_or_else(|| "Filesystem".to_owned())
}

#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
    pub(super) class: Arc<str>,
    pub(super) volume: Option<Arc<str>>,
    pub(super) selected_node: Option<Arc<str>>,
    pub(super) bind_completed: bool,
    pub(super) lost: bool,
    pub(super) deleting: bool,
    pub(super) controller_uid: Option<Arc<str>>,
    pub(super) request: Quantity,
    access_modes: BTreeSet<String>,
    mode: String,
    selector: Option<Option<LabelSelector>>,
    attributes_class: String,
}

impl Claim {
    pub(super) fn parse(claim: &core::PersistentVolumeClaim) -> Self {
        let meta = &claim.metadata;
        let none = core::PersistentVolumeClaimSpec::default();
        let spec = claim.spec.as_ref().unwrap_or(&none);
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let owners = meta.owner_references.iter().flatten();
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            class: class_of(meta.annotations.as_ref(), spec.storage_class_name.as_ref()),
            volume: spec.volume_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            selected_node: annotation(SELECTED_NODE).map(|node| node.as_str().into()),
            bind_completed: annotation(BIND_COMPLETED).is_some(),
            lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            deleting: meta.deletion_timestamp.is_some(),
            controller_uid: owners
                .filter(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.as_str().into())
                .next(),
            request: storage_of(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())),
            access_modes: spec.access_modes.iter().flatten().cloned().collect(),
            mode: mode_of(spec.volume_mode.as_ref()),
            selector: spec.selector.as_ref().map(|selector| label_selector(Some(selector))),
            attributes_class: spec.volume_attributes_class_name.clone().unwrap_or_default(),
        }
    }

    pub(super) fn is_fully_bound(&self) -> bool {
        self.volume.is_some() && self.bind_completed
    }

    pub(super) fn is_for_one_pod(&self) -> bool {
        self.access_modes.contains("ReadWriteOncePod")
    }
}

#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) name: Arc<str>,
    pub(super) labels: Labels,
    pub(super) class: Arc<str>,
    pub(super) csi: Option<(Arc<str>, Arc<str>)>,
    pub(super) capacity: Quantity,
    available: bool,
    deleting: bool,
    /// Namespace, name and uid of the claim that the volume is reserved for.
    claim: Option<(String, String, String)>,
    node_terms: Option<Vec<NodeTerm>>,
    access_modes: BTreeSet<String>,
    mode: String,
    attributes_class: String,
}

impl Volume {
    pub(super) fn parse(volume: &core::PersistentVolume) -> Self {
        let meta = &volume.metadata;
        let none = core::PersistentVolumeSpec::default();
        let spec = volume.spec.as_ref().unwrap_or(&none);
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            labels: labels(meta.labels.as_ref()),
            class: class_of(meta.annotations.as_ref(), spec.storage_class_name.as_ref()),
            csi: spec.csi.as_ref().map(|csi| (csi.driver.as_str().into(), csi.volume_handle.as_str().into())),
            capacity: storage_of(spec.capacity.as_ref()),
            available: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
            deleting: meta.deletion_timestamp.is_some(),
            claim: spec.claim_ref.as_ref().map(|claim| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                (text(&claim.namespace), text(&claim.name), text(&claim.uid))
            }),
            node_terms: spec
                .node_affinity
                .as_ref()
                .and_then(|affinity| affinity.required.as_ref())
                .map(node_terms),
            access_modes: spec.access_modes.iter().flatten().cloned().collect(),
            mode: mode_of(spec.volume_mode.as_ref()),
            attributes_class: spec.volume_attributes_class_name.clone().unwrap_or_default(),
        }
    }

    pub(super) fn is_reachable_from(&self, node_labels: &Labels) -> bool {
        let Some(terms) = &self.node_terms else { return true };
        terms.iter().any(|term| term.matches(node_labels, None))
    }

    fn is_bound_to(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|(namespace, name, uid)| {
            *namespace == *claim.namespace && *name == *claim.name && (uid.is_empty() || **uid == *claim.uid)
        })
    }

    /// Zones and regions from the labels of the volume.
    pub(super) fn zones(&self) -> impl Iterator<Item = VolumeZone> {
        ZONE_LABELS.iter().filter_map(|key| {
            let values = self.labels.get(*key)?;
            Some(VolumeZone { key, values: values.split("__").map(Into::into).collect() })
        })
    }
}

pub(super) const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

#[derive(Debug, Clone)]
pub(super) struct VolumeZone {
    key: &'static str,
    values: BTreeSet<Arc<str>>,
}

impl VolumeZone {
    pub(super) fn admits(&self, node_labels: &Labels) -> bool {
        let stable = match self.key {
            "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
            key => key,
        };
        let value = node_labels.get(self.key).or_else(|| node_labels.get(stable));
        value.is_some_and(|value| self.values.contains(value))
    }
}

/// The smallest volume that satisfies the claim on a node with these labels; a volume that is reserved for the claim is
/// preferred. Volumes in `taken` are already chosen and are skipped.
pub(super) fn matching_volume<'a>(
    claim: &Claim,
    volumes: impl Iterator<Item = &'a Arc<Volume>>,
    node_labels: &Labels,
    taken: impl Fn(&str) -> bool,
) -> Option<&'a Arc<Volume>> {
    let mut smallest: Option<&Arc<Volume>> = None;
    for volume in volumes {
        let reserved = volume.is_bound_to(claim);
        if taken(&volume.name)
            || (volume.claim.is_some() && !reserved)
            || volume.capacity < claim.request
            || volume.mode != claim.mode
            || volume.attributes_class != claim.attributes_class
            || volume.deleting
        {
            continue;
        }
        let reachable = volume.is_reachable_from(node_labels);
        if reserved {
            return reachable.then_some(volume);
        }
        let selected = match &claim.selector {
            None => true,
            Some(selector) => selector.as_ref().is_some_and(|selector| selector.matches(&volume.labels)),
        };
        let suits = volume.available
            && selected
            && volume.class == claim.class
            && reachable
            && claim.access_modes.is_subset(&volume.access_modes);
        if suits && smallest.is_none_or(|smallest| volume.capacity < smallest.capacity) {
            smallest = Some(volume);
        }
    }
    smallest
}

#[derive(Debug, Clone)]
pub(super) struct StorageClass {
    pub(super) provisioner: Arc<str>,
    /// Whether volumes are bound when a pod uses them (`WaitForFirstConsumer`); `None` if the class has no
    /// `volumeBindingMode`.
    pub(super) waits_for_consumer: Option<bool>,
    /// The allowed topologies, which are alternatives; within one, every key must have one of the values.
    allowed: Vec<Vec<(Arc<str>, BTreeSet<String>)>>,
}

impl StorageClass {
    pub(super) fn parse(class: &storage::StorageClass) -> Self {
        let read = |term: &core::TopologySelectorTerm| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions
                .map(|expression| {
                    (expression.key.as_str().into(), expression.values.iter().cloned().collect())
                })
                .collect()
        };
        Self {
            provisioner: class.provisioner.as_str().into(),
            waits_for_consumer: class.volume_binding_mode.as_ref().map(|mode| mode == "WaitForFirstConsumer"),
            allowed: class.allowed_topologies.iter().flatten().map(read).collect(),
        }
    }

    pub(super) fn can_provision(&self) -> bool {
        !self.provisioner.is_empty() && &*self.provisioner != NO_PROVISIONER
    }

    pub(super) fn allows(&self, node_labels: &Labels) -> bool {
        let holds = |term: &Vec<(Arc<str>, BTreeSet<String>)>| {
            !term.is_empty()
                && term.iter().all(|(key, values)| {
                    node_labels.get(key).is_some_and(|value| values.contains(value.as_ref()))
                })
        };
        self.allowed.is_empty() || self.allowed.iter().any(holds)
    }
}

/// The attach limits of a node's drivers, where they are set.
pub(super) fn attach_limits(node: &storage::CSINode) -> BTreeMap<Arc<str>, i64> {
    let drivers = node.spec.drivers.iter();
    drivers
        .filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.as_str().into(), i64::from(count)))
        })
        .collect()
}
