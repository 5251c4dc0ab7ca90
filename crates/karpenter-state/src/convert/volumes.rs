//! Converts the volumes of a pod: whether its claims can be used, from which topology they are accessible and which
//! driver attaches them.
//!
//! An existing claim is checked as it would be in a cluster. For a claim that a workload or an ephemeral volume will
//! create later, the allowed topologies of its storage class are used. If the input lacks the storage class, such a
//! claim does not constrain the pod.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;
use karpenter_model::labels;
use karpenter_model::pod::PodVolumes;
use karpenter_model::requirements::{Operator, Requirements};
use rustc_hash::FxHashMap;

use super::requirement;
use crate::intern::Interner;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// The maximum number of combinations of topologies of several volumes; further ones are ignored.
const ALTERNATIVES_MAX: usize = 1_024;

/// In-tree provisioners and the CSI drivers that replaced them.
const IN_TREE_PROVISIONERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", EBS_DRIVER),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// Storage objects by name.
#[derive(Debug, Default)]
pub(crate) struct VolumeIndex<'a> {
    claims: FxHashMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: FxHashMap<&'a str, &'a PersistentVolume>,
    classes: FxHashMap<&'a str, &'a StorageClass>,
    default_class: Option<&'a str>,
    /// Drivers with an attach limit. Attachments of other drivers are unlimited, so they are ignored.
    limited_drivers: BTreeSet<Arc<str>>,
}

/// The volumes of one pod.
pub(crate) struct ClaimSource<'p> {
    pub(crate) namespace: &'p str,
    pub(crate) pod_name: &'p str,
    pub(crate) volumes: &'p [Volume],
    pub(crate) templates: &'p [PersistentVolumeClaim],
}

impl ClaimSource<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.templates.is_empty()
            && !self.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
    }
}

/// Why a claim cannot be used.
pub(crate) struct Unusable(pub(crate) String);

fn refused(what: String) -> Unusable {
    Unusable(what)
}

impl<'a> VolumeIndex<'a> {
    pub(crate) fn new(
        claims: &'a [impl Borrow<PersistentVolumeClaim>],
        volumes: &'a [impl Borrow<PersistentVolume>],
        classes: &'a [impl Borrow<StorageClass>],
        limited_drivers: BTreeSet<Arc<str>>,
    ) -> Self {
        let name = |metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            metadata.name.as_deref().unwrap_or_default()
        };
        let is_default = |class: &&StorageClass| {
            let annotations = class.metadata.annotations.as_ref();
            annotations
                .and_then(|annotations| annotations.get(DEFAULT_CLASS))
                .is_some_and(|value| value == "true")
        };
        let classes = || classes.iter().map(Borrow::<StorageClass>::borrow);
        Self {
            claims: claims
                .iter()
                .map(Borrow::<PersistentVolumeClaim>::borrow)
                .map(|claim| {
                    ((claim.metadata.namespace.as_deref().unwrap_or("default"), name(&claim.metadata)), claim)
                })
                .collect(),
            volumes: volumes
                .iter()
                .map(Borrow::<PersistentVolume>::borrow)
                .map(|volume| (name(&volume.metadata), volume))
                .collect(),
            classes: classes().map(|class| (name(&class.metadata), class)).collect(),
            default_class: classes().find(is_default).map(|class| name(&class.metadata)),
            limited_drivers,
        }
    }

    /// The topologies and attachments of a pod's volumes, or why the pod is unschedulable.
    pub(crate) fn resolve(
        &self,
        source: ClaimSource<'_>,
        interner: &mut Interner,
    ) -> Result<PodVolumes, Unusable> {
        let mut resolved = PodVolumes::default();
        for volume in source.volumes {
            if let Some(reference) = &volume.persistent_volume_claim {
                if source
                    .templates
                    .iter()
                    .any(|template| template.metadata.name.as_deref() == Some(&volume.name))
                {
                    continue;
                }
                let name = reference.claim_name.as_str();
                let claim = self.claims.get(&(source.namespace, name));
                let claim =
                    claim.ok_or_else(|| refused(format!("persistentvolumeclaim {name} not found")))?;
                self.add_claim(source.namespace, name, claim, &mut resolved, interner)?;
            } else if let Some(ephemeral) = &volume.ephemeral {
                let name = format!("{}-{}", source.pod_name, volume.name);
                let template = ephemeral.volume_claim_template.as_ref().map(|template| &template.spec);
                self.add_made(source.namespace, &name, template, &mut resolved, interner)?;
            }
        }
        for template in source.templates {
            let name =
                format!("{}-{}", template.metadata.name.as_deref().unwrap_or_default(), source.pod_name);
            self.add_made(source.namespace, &name, template.spec.as_ref(), &mut resolved, interner)?;
        }
        Ok(resolved)
    }

    /// Adds a claim that is created for each pod; if it exists already, the existing one is used.
    fn add_made(
        &self,
        namespace: &str,
        name: &str,
        template: Option<&PersistentVolumeClaimSpec>,
        resolved: &mut PodVolumes,
        interner: &mut Interner,
    ) -> Result<(), Unusable> {
        if let Some(claim) = self.claims.get(&(namespace, name)) {
            return self.add_claim(namespace, name, claim, resolved, interner);
        }
        if self.classes.is_empty() {
            return Ok(());
        }
        let class_name = template.and_then(|spec| spec.storage_class_name.as_deref()).or(self.default_class);
        let class = self.class(name, class_name)?;
        combine(&mut resolved.alternatives, class_alternatives(class, interner));
        self.attach(driver_of_class(class), namespace, name, resolved, interner);
        Ok(())
    }

    fn add_claim(
        &self,
        namespace: &str,
        name: &str,
        claim: &PersistentVolumeClaim,
        resolved: &mut PodVolumes,
        interner: &mut Interner,
    ) -> Result<(), Unusable> {
        let error = |what: &str| refused(format!("persistentvolumeclaim {name} {what}"));
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(error("is being deleted"));
        }
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
            return Err(error("has lost its volume"));
        }
        let spec = claim.spec.as_ref();
        let volume_name = spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
        let class_name = spec.and_then(|spec| spec.storage_class_name.as_deref());
        if let Some(volume_name) = volume_name {
            let volume = self.volumes.get(volume_name).ok_or_else(|| {
                refused(format!("persistentvolume {volume_name} of persistentvolumeclaim {name} not found"))
            })?;
            if volume.metadata.deletion_timestamp.is_some() {
                return Err(refused(format!("persistentvolume {volume_name} is being deleted")));
            }
            let annotations = claim.metadata.annotations.as_ref();
            if !annotations.is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED)) {
                return Err(error("is still being bound"));
            }
            combine(&mut resolved.alternatives, volume_alternatives(volume, interner));
            let class = class_name.and_then(|class| self.classes.get(class));
            let driver = driver_of_volume(volume).or_else(|| class.and_then(|class| driver_of_class(class)));
            self.attach(driver, namespace, name, resolved, interner);
            return Ok(());
        }
        let class = self.class(name, class_name.or(self.default_class))?;
        if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
            return Err(error(
                "is unbound; its storage class has volumeBindingMode Immediate, so the claim has to be bound before its pods can be scheduled",
            ));
        }
        combine(&mut resolved.alternatives, class_alternatives(class, interner));
        self.attach(driver_of_class(class), namespace, name, resolved, interner);
        Ok(())
    }

    fn class(&self, claim: &str, name: Option<&str>) -> Result<&'a StorageClass, Unusable> {
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| {
            refused(format!("persistentvolumeclaim {claim} is unbound and has no storage class"))
        })?;
        let class = self.classes.get(name).copied();
        class
            .ok_or_else(|| refused(format!("storageclass {name} of persistentvolumeclaim {claim} not found")))
    }

    fn attach(
        &self,
        driver: Option<&str>,
        namespace: &str,
        claim: &str,
        resolved: &mut PodVolumes,
        interner: &mut Interner,
    ) {
        if let Some(driver) = driver.and_then(|driver| self.limited_drivers.get(driver)) {
            resolved.attachments.insert((driver.clone(), interner.get(&format!("{namespace}/{claim}"))));
        }
    }
}

fn driver_of_class(class: &StorageClass) -> Option<&str> {
    let provisioner = class.provisioner.as_str();
    let translated = IN_TREE_PROVISIONERS.iter().find(|(in_tree, _)| *in_tree == provisioner);
    Some(translated.map_or(provisioner, |(_, driver)| driver)).filter(|driver| !driver.is_empty())
}

fn driver_of_volume(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref().map(|csi| csi.driver.as_str());
    csi.or_else(|| spec.aws_elastic_block_store.as_ref().map(|_| EBS_DRIVER))
}

/// The topologies that a storage class allows; `None` if volumes are accessible from everywhere.
fn class_alternatives(class: &StorageClass, interner: &mut Interner) -> Option<Vec<Requirements>> {
    let terms = class.allowed_topologies.as_ref().filter(|terms| !terms.is_empty())?;
    let convert = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
        let expressions = term.match_label_expressions.iter().flatten();
        expressions
            .map(|one| requirement::requirement(&one.key, Operator::In, &one.values, interner))
            .collect::<Requirements>()
    };
    Some(terms.iter().map(convert).collect())
}

fn volume_alternatives(volume: &PersistentVolume, interner: &mut Interner) -> Option<Vec<Requirements>> {
    let spec = volume.spec.as_ref()?;
    let required = spec.node_affinity.as_ref()?.required.as_ref()?;
    if required.node_selector_terms.is_empty() {
        return None;
    }
    // A local volume is deleted with its node; its pods may be planned elsewhere.
    let follows_node = spec.local.is_some() || spec.host_path.is_some();
    let convert = |term| {
        let mut requirements = requirement::term(term, interner);
        if follows_node {
            requirements.remove(labels::HOSTNAME);
        }
        requirements
    };
    Some(required.node_selector_terms.iter().map(convert).collect())
}

/// Combines topologies of two volumes to every compatible pair. If no pair is compatible, all pairs are kept, so that
/// the conflict is reported when the pod is placed.
fn combine(present: &mut Vec<Requirements>, further: Option<Vec<Requirements>>) {
    let Some(further) = further else { return };
    if present.is_empty() {
        *present = further;
    } else {
        let pairs = |only_compatible: bool| -> Vec<Requirements> {
            let pairs = present.iter().flat_map(|one| further.iter().map(move |other| (one, other)));
            pairs
                .filter(|(one, other)| !only_compatible || one.intersects(other))
                .map(|(one, other)| {
                    let mut both = one.clone();
                    both.extend(other);
                    both
                })
                .take(ALTERNATIVES_MAX)
                .collect()
        };
        let compatible = pairs(true);
        *present = if compatible.is_empty() { pairs(false) } else { compatible };
    }
    let mut seen = BTreeSet::new();
    present.retain(|requirements| seen.insert(requirements.clone()));
    present.truncate(ALTERNATIVES_MAX);
}
