//! The volume filters: access to claims, node affinity and zones of volumes, and attach limits.
//!
//! In-tree volumes are not translated to CSI, and CSIStorageCapacity is ignored.
//!
//! Upstream: pkg/scheduler/framework/plugins/volumebinding, volumezone, nodevolumelimits

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::selector::Labels;
use karpenter_runtime::object::ObjectKey;

use super::node::{Load, NodeFacts};
use super::pod::{ClaimUse, PodInfo};
use super::snapshot::Snapshot;
use super::storage::{Claim, VolumeZone, ZONE_LABELS, matching_volume};
use super::verdict::{Plugin, Rejection};

/// Changes of a pod's claims that are needed before the pod is bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumePlan {
    /// Claims, each with the volume to which it must be bound.
    pub bindings: Vec<(ObjectKey, Arc<str>)>,
    /// Claims for which volumes must be provisioned that the node can use.
    pub provisions: Vec<ObjectKey>,
}

impl VolumePlan {
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// The state of the volume filters before nodes are filtered (PreFilter).
#[derive(Debug, Default)]
pub(super) struct VolumeState {
    /// ReadWriteOncePod claims of the pod that another pod uses.
    pub(super) exclusive: BTreeSet<Arc<str>>,
    pub(super) conflicts: i64,
    checks_restrictions: bool,
    bound: Vec<Arc<Claim>>,
    /// The pod's unbound claims, by increasing requested size.
    unbound: Vec<Arc<Claim>>,
    zones: Vec<VolumeZone>,
}

/// Why a pod fits on no node.
pub(super) enum PreFilterError {
    Rejected(Rejection),
    Error(String),
}

fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

impl VolumeState {
    pub(super) fn prepare(snapshot: &Snapshot, pod: &PodInfo) -> Result<Self, PreFilterError> {
        let mut state = Self::default();
        if pod.claims.is_empty() && pod.disks.is_empty() {
            return Ok(state);
        }
        let reject =
            |plugin, reason: String| PreFilterError::Rejected(Rejection::unresolvable(plugin, reason));
        let key = |claim: &ClaimUse| ObjectKey::new(&*pod.key.namespace, &*claim.name);
        let find = |claim: &ClaimUse| snapshot.claims.get(&key(claim));
        for used in pod.claims.iter().filter(|claim| !claim.ephemeral) {
            let claim = find(used).ok_or_else(|| {
                reject(Plugin::VolumeRestrictions, not_found("persistentvolumeclaim", &used.name))
            })?;
            if claim.is_for_one_pod() && state.exclusive.insert(claim.name.clone()) {
                state.conflicts += i64::from(snapshot.claim_is_used(&key(used)));
            }
        }
        state.checks_restrictions = !pod.disks.is_empty() || state.conflicts > 0;
        for used in &pod.claims {
            let claim = find(used).ok_or_else(|| {
                let reason = format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {:?}",
                    &*used.name
                );
                reject(Plugin::VolumeBinding, reason)
            })?;
            let trouble = if claim.lost {
                let volume = claim.volume.as_deref().unwrap_or_default();
                let name = &*claim.name;
                Some(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ))
            } else if claim.deleting {
                Some(format!("persistentvolumeclaim {:?} is being deleted", &*claim.name))
            } else if used.ephemeral && claim.controller_uid.as_ref() != Some(&pod.uid) {
                let (namespace, name) = (&claim.namespace, &claim.name);
                Some(format!("PVC {namespace}/{name} was not created for pod {} (pod is not owner)", pod.key))
            } else {
                None
            };
            if let Some(trouble) = trouble {
                return Err(reject(Plugin::VolumeBinding, trouble));
            }
        }
        let mut immediate = false;
        for claim in pod.claims.iter().filter_map(find) {
            if claim.is_fully_bound() {
                state.bound.push(claim.clone());
                continue;
            }
            let waits = match snapshot.classes.get(&claim.class) {
                None => false,
                Some(class) => class.waits_for_consumer.ok_or_else(|| {
                    let class = &*claim.class;
                    PreFilterError::Error(format!(
                        "running PreFilter plugin \"VolumeBinding\": VolumeBindingMode not set for StorageClass \
                         {class:?}"
                    ))
                })?,
            };
            if waits && claim.volume.is_none() {
                state.unbound.push(claim.clone());
            } else {
                immediate = true;
            }
        }
        if immediate {
            let reason = "pod has unbound immediate PersistentVolumeClaims".to_owned();
            return Err(reject(Plugin::VolumeBinding, reason));
        }
        state.unbound.sort_by_key(|claim| claim.request);
        for used in pod.claims.iter().filter(|claim| !claim.ephemeral) {
            let Some(claim) = find(used) else { continue };
            let Some(name) = &claim.volume else { continue };
            let volume = snapshot
                .volumes
                .get(name)
                .ok_or_else(|| reject(Plugin::VolumeZone, not_found("persistentvolume", name)))?;
            state.zones.extend(volume.zones());
        }
        Ok(state)
    }

    /// Checks inline disks and claims that only one pod may use. `delta` is the change of the number of users by a
    /// simulation.
    pub(super) fn check_restrictions(&self, pod: &PodInfo, load: &Load, delta: i64) -> Result<(), Rejection> {
        if !self.checks_restrictions {
            return Ok(());
        }
        let mut others = load.pods.iter().flat_map(|other| &other.disks);
        if !pod.disks.is_empty()
            && others.any(|other| pod.disks.iter().any(|disk| disk.conflicts_with(other)))
        {
            return Err(Rejection::resolvable(Plugin::VolumeRestrictions, "node(s) had no available disk"));
        }
        if self.conflicts + delta > 0 {
            return Err(Rejection::resolvable(
                Plugin::VolumeRestrictions,
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already \
                 in-use by another pod",
            ));
        }
        Ok(())
    }

    pub(super) fn restricts(&self) -> bool {
        self.checks_restrictions
    }

    /// Whether the node's drivers can attach the pod's volumes in addition to those that are attached.
    pub(super) fn check_limits(
        &self,
        snapshot: &Snapshot,
        pod: &PodInfo,
        node: &NodeFacts,
        load: &Load,
    ) -> Result<(), Rejection> {
        if pod.claims.is_empty() {
            return Ok(());
        }
        let Some(limits) = snapshot.attach_limits.get(&node.name).filter(|limits| !limits.is_empty()) else {
            return Ok(());
        };
        let mut wanted = attachments(snapshot, pod);
        if wanted.is_empty() {
            return Ok(());
        }
        let mut held = Attachments::new();
        for other in load.pods.iter().filter(|other| !other.claims.is_empty()) {
            held.extend(attachments(snapshot, other));
        }
        wanted.retain(|volume| !held.contains(volume));
        // An attached volume counts even if no pod uses it; if the new pod uses it, it is counted a second time.
        for (attacher, volume) in snapshot.attached_to(&node.name) {
            if let Some((_, handle)) = volume.csi.as_ref().filter(|_| !attacher.is_empty()) {
                held.insert((attacher.clone(), handle.clone()));
            }
        }
        for (driver, limit) in limits {
            let of_driver =
                |volumes: &Attachments| volumes.iter().filter(|(of, _)| of == driver).count() as i64;
            let new = of_driver(&wanted);
            if new > 0 && of_driver(&held) + new > *limit {
                return Err(Rejection::resolvable(
                    Plugin::NodeVolumeLimits,
                    "node(s) exceed max volume count",
                ));
            }
        }
        Ok(())
    }

    /// Whether the pod's volumes can be used on the node, and the changes of claims that are needed for this.
    pub(super) fn check_binding(
        &self,
        snapshot: &Snapshot,
        node: &NodeFacts,
    ) -> Result<VolumePlan, Rejection> {
        let mut reasons: Vec<&'static str> = Vec::new();
        for claim in &self.bound {
            let volume = claim.volume.as_ref().and_then(|name| snapshot.volumes.get(name));
            match volume {
                None => {
                    reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
                    break;
                }
                Some(volume) if !volume.is_reachable_from(&node.labels) => {
                    reasons.push("node(s) didn't match PersistentVolume's node affinity");
                    break;
                }
                Some(_) => {}
            }
        }
        let plan = self.plan(snapshot, node);
        if plan.is_none() {
            // Reasons are sorted: conflicts of bound volumes, then conflicts of unbound volumes, then missing volumes.
            let position = reasons.iter().filter(|reason| reason.contains("node affinity")).count();
            reasons.insert(position, "node(s) didn't find available persistent volumes to bind");
        }
        let mut reasons = reasons.into_iter();
        match (reasons.next(), plan) {
            (None, Some(plan)) => Ok(plan),
            (first, _) => Err(Rejection {
                plugin: Some(Plugin::VolumeBinding),
                resolvable: false,
                first: first.unwrap_or_default().into(),
                more: reasons.map(Into::into).collect(),
            }),
        }
    }

    fn plan(&self, snapshot: &Snapshot, node: &NodeFacts) -> Option<VolumePlan> {
        let mut plan = VolumePlan::default();
        let mut to_provision: Vec<&Arc<Claim>> = Vec::new();
        let mut to_match: Vec<&Arc<Claim>> = Vec::new();
        for claim in &self.unbound {
            let key = ObjectKey::new(&*claim.namespace, &*claim.name);
            match snapshot.assumed_selection(&key).or(claim.selected_node.as_ref()) {
                Some(selected) if *selected != node.name => return None,
                Some(_) => to_provision.push(claim),
                None => to_match.push(claim),
            }
        }
        for claim in to_match {
            let taken = |name: &str| {
                snapshot.volume_is_assumed(name) || plan.bindings.iter().any(|(_, volume)| **volume == *name)
            };
            let volumes = snapshot.volumes_of_class(&claim.class);
            match matching_volume(claim, volumes, &node.labels, taken) {
                Some(volume) => {
                    let key = ObjectKey::new(&*claim.namespace, &*claim.name);
                    plan.bindings.push((key, volume.name.clone()));
                }
                None => to_provision.push(claim),
            }
        }
        for claim in to_provision {
            let class = snapshot.classes.get(&claim.class)?;
            if !class.can_provision() || !class.allows(&node.labels) {
                return None;
            }
            plan.provisions.push(ObjectKey::new(&*claim.namespace, &*claim.name));
        }
        Some(plan)
    }

    pub(super) fn check_zones(&self, labels: &Labels) -> Result<(), Rejection> {
        // A node without any zone label belongs to a single-zone cluster.
        let in_a_zone = || ZONE_LABELS.iter().any(|key| labels.contains_key(*key));
        if self.zones.is_empty() || !in_a_zone() || self.zones.iter().all(|zone| zone.admits(labels)) {
            return Ok(());
        }
        Err(Rejection::unresolvable(Plugin::VolumeZone, "node(s) had no available volume zone"))
    }
}

/// Driver and handle of each volume.
type Attachments = BTreeSet<(Arc<str>, Arc<str>)>;

/// The volumes that a pod needs attached; a claim without a volume counts under its own name.
fn attachments(snapshot: &Snapshot, pod: &PodInfo) -> Attachments {
    let claims = pod.claims.iter();
    claims
        .filter_map(|used| {
            let claim = snapshot.claims.get(&ObjectKey::new(&*pod.key.namespace, &*used.name))?;
            if let Some(volume) = claim.volume.as_ref().and_then(|name| snapshot.volumes.get(name)) {
                return volume.csi.clone();
            }
            let class = snapshot.classes.get(&claim.class)?;
            let handle: Arc<str> = format!("claim {}/{}", claim.namespace, claim.name).into();
            Some((class.provisioner.clone(), handle))
        })
        .collect()
}

impl Snapshot {
    /// Whether all claims of a pod are bound to volumes that its node can use. An error if they cannot be.
    pub(super) fn claims_are_ready(&self, pod: &PodInfo, node: &str) -> Result<bool, String> {
        let Some(facts) = self.facts(node) else { return Err(format!("node {node:?} not found")) };
        for used in &pod.claims {
            let key = ObjectKey::new(&*pod.key.namespace, &*used.name);
            let Some(claim) = self.claims.get(&key) else {
                return Err(not_found("persistentvolumeclaim", &used.name));
            };
            if !claim.is_fully_bound() {
                let deselected = claim.volume.is_none()
                    && self.assumed_selection(&key).is_some()
                    && claim.selected_node.as_deref() != Some(node);
                if deselected {
                    return Err(format!("provisioning failed for PVC {:?}", &*used.name));
                }
                return Ok(false);
            }
            let Some(volume) = claim.volume.as_ref().and_then(|name| self.volumes.get(name)) else {
                return Ok(false);
            };
            if !volume.is_reachable_from(&facts.labels) {
                return Err(format!("pv {:?} node affinity doesn't match node {node:?}", &*volume.name));
            }
        }
        Ok(true)
    }
}
