//! The fields of a pod that matter for scheduling, parsed once from the API object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use karpenter_model::selector::{LabelSelector, Labels, Match};
use karpenter_model::taints::Toleration;
use karpenter_runtime::object::ObjectKey;

use super::resources::PodRequests;
use super::selectors::{NodeTerm, label_selector, labels, node_terms, tolerations};

pub(super) const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The requirements of a pod on nodes that are independent of other pods. Pods of one workload share it and its cached
/// results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Placement {
    pub(super) tolerations: Vec<Toleration>,
    pub(super) node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// The required node affinity, of which one term must match; `None` if there is none.
    pub(super) required: Option<Vec<NodeTerm>>,
    pub(super) preferred: Vec<(i32, NodeTerm)>,
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct AffinityTerm {
    pub(super) topology_key: Arc<str>,
    pub(super) namespaces: BTreeSet<Arc<str>>,
    /// The namespace selector; `None` selects no namespaces other than those in `namespaces`.
    pub(super) namespace_selector: Option<LabelSelector>,
    /// The label selector; `None` selects no pod.
    pub(super) selector: Option<LabelSelector>,
}

impl AffinityTerm {
    /// Whether the term matches a pod whose namespace has these labels.
    pub(super) fn matches(&self, pod: &PodInfo, namespace_labels: &Labels) -> bool {
        let in_namespace = self.namespaces.contains(pod.key.namespace.as_str())
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels));
        in_namespace && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SpreadConstraint {
    pub(super) topology_key: Arc<str>,
    pub(super) max_skew: i64,
    pub(super) min_domains: i64,
    /// The label selector; `None` selects no pod.
    pub(super) selector: Option<LabelSelector>,
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
}

impl SpreadConstraint {
    pub(super) fn selects(&self, pod_labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(pod_labels))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostPort {
    address: Arc<str>,
    protocol: Arc<str>,
    port: i32,
}

const EVERY_ADDRESS: &str = "0.0.0.0";

impl HostPort {
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address
                || &*self.address == EVERY_ADDRESS
                || &*other.address == EVERY_ADDRESS)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimUse {
    pub(super) name: Arc<str>,
    /// Whether the claim is created from a template in the pod (generic ephemeral volume).
    pub(super) ephemeral: bool,
}

/// A volume without a claim that only one pod may mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InlineDisk {
    Gce { name: String, read_only: bool },
    Ebs { volume: String },
    Iscsi { iqn: String, read_only: bool },
    Rbd { monitors: Vec<String>, pool: String, image: String, read_only: bool },
}

impl InlineDisk {
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gce { name, read_only }, Self::Gce { name: other, read_only: other_read_only }) => {
                name == other && !(*read_only && *other_read_only)
            }
            (Self::Ebs { volume }, Self::Ebs { volume: other }) => volume == other,
            (Self::Iscsi { iqn, read_only }, Self::Iscsi { iqn: other, read_only: other_read_only }) => {
                iqn == other && !(*read_only && *other_read_only)
            }
            (Self::Rbd { monitors, pool, image, read_only }, other) => {
                let Self::Rbd {
                    monitors: other_monitors,
                    pool: other_pool,
                    image: other_image,
                    read_only: other_read_only,
                } = other
                else {
                    return false;
                };
                monitors.iter().any(|monitor| other_monitors.contains(monitor))
                    && pool == other_pool
                    && image == other_image
                    && !(*read_only && *other_read_only)
            }
            _ => false,
        }
    }
}

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
}

/// A pod as the scheduler uses it.
#[derive(Debug, Clone)]
pub struct PodInfo {
    pub key: Arc<ObjectKey>,
    pub uid: Arc<str>,
    pub(super) version: Arc<str>,
    pub labels: Labels,
    /// The node that the pod is bound to or assumed to be bound to.
    pub node: Option<Arc<str>>,
    pub nominated_node: Option<Arc<str>>,
    pub priority: i32,
    pub requests: PodRequests,
    /// Names of the scheduling gates.
    pub gates: Vec<String>,
    pub(super) scheduler_name: String,
    pub(super) never_preempts: bool,
    pub(super) deleting: bool,
    pub(super) deleting_for_preemption: bool,
    pub(super) started_at: Option<Timestamp>,
    pub(super) requested_node: Option<Arc<str>>,
    pub(super) placement: Arc<Placement>,
    pub(super) host_ports: Vec<HostPort>,
    pub(super) required_affinity: Vec<AffinityTerm>,
    pub(super) required_anti_affinity: Vec<AffinityTerm>,
    /// Terms of preferred affinity with their weights, which are negative for anti-affinity.
    pub(super) preferred_affinity: Vec<(i64, AffinityTerm)>,
    pub(super) hard_spread: Vec<SpreadConstraint>,
    pub(super) soft_spread: Vec<SpreadConstraint>,
    pub(super) claims: Vec<ClaimUse>,
    pub(super) disks: Vec<InlineDisk>,
    pub(super) owner: Option<Owner>,
}

impl PodInfo {
    pub fn parse(pod: &core::Pod) -> Self {
        let meta = &pod.metadata;
        let none = core::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let status = pod.status.as_ref();
        let key = Arc::new(ObjectKey::of(meta));
        let pod_labels = labels(meta.labels.as_ref());
        let deleting = meta.deletion_timestamp.is_some();
        let affinity = spec.affinity.as_ref();
        let pod_affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti_affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let read_term = |term: &core::PodAffinityTerm| affinity_term(&key.namespace, &pod_labels, term);
        let weighted = |terms: Option<&Vec<core::WeightedPodAffinityTerm>>, sign: i64| {
            let terms = terms.into_iter().flatten();
            let read = terms.map(|term| (sign * i64::from(term.weight), read_term(&term.pod_affinity_term)));
            read.collect::<Vec<_>>()
        };
        let mut preferred_affinity = weighted(
            pod_affinity
                .and_then(|terms| terms.preferred_during_scheduling_ignored_during_execution.as_ref()),
            1,
        );
        preferred_affinity.extend(weighted(
            anti_affinity
                .and_then(|terms| terms.preferred_during_scheduling_ignored_during_execution.as_ref()),
            -1,
        ));
        let (hard_spread, soft_spread) = spread(spec, &pod_labels);
        let filled =
            |text: Option<&String>| text.filter(|text| !text.is_empty()).map(|text| text.as_str().into());
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: meta.resource_version.as_deref().unwrap_or_default().into(),
            // `spec.nodeName` is set only for bound pods.
            node: filled(spec.node_name.as_ref()),
            requested_node: filled(spec.node_name.as_ref()),
            nominated_node: filled(status.and_then(|status| status.nominated_node_name.as_ref())),
            priority: spec.priority.unwrap_or(0),
            requests: PodRequests::of(pod),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned()),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            deleting,
            deleting_for_preemption: deleting && is_preempted(pod),
            started_at: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            placement: Arc::new(placement(spec)),
            host_ports: host_ports(spec),
            required_affinity: pod_affinity
                .and_then(|terms| terms.required_during_scheduling_ignored_during_execution.as_ref())
                .into_iter()
                .flatten()
                .map(read_term)
                .collect(),
            required_anti_affinity: anti_affinity
                .and_then(|terms| terms.required_during_scheduling_ignored_during_execution.as_ref())
                .into_iter()
                .flatten()
                .map(read_term)
                .collect(),
            preferred_affinity,
            hard_spread,
            soft_spread,
            claims: claims(&key.name, spec),
            disks: spec.volumes.iter().flatten().filter_map(inline_disk).collect(),
            owner: meta
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| Owner { kind: owner.kind.clone(), name: owner.name.clone() }),
            labels: pod_labels,
            key,
        }
    }

    pub(super) fn has_spread(&self) -> bool {
        !self.hard_spread.is_empty() || !self.soft_spread.is_empty()
    }
}

fn is_preempted(pod: &core::Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let mut targets = conditions.filter(|condition| condition.type_ == "DisruptionTarget");
    targets.next().is_some_and(|condition| {
        condition.status == "True" && condition.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn placement(spec: &core::PodSpec) -> Placement {
    let node_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = node_affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred = node_affinity
        .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    Placement {
        tolerations: tolerations(spec),
        node_selector: labels(spec.node_selector.as_ref()),
        required: required.map(node_terms),
        preferred: preferred
            .into_iter()
            .flatten()
            .filter(|term| term.weight != 0)
            .filter_map(|term| Some((term.weight, NodeTerm::parse(&term.preference)?)))
            .collect(),
    }
}

/// The API server merges `matchLabelKeys` and `mismatchLabelKeys` into the selector; merging them again has no effect.
fn affinity_term(namespace: &str, pod_labels: &Labels, term: &core::PodAffinityTerm) -> AffinityTerm {
    let mut namespaces: BTreeSet<Arc<str>> =
        term.namespaces.iter().flatten().map(|name| name.as_str().into()).collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.insert(namespace.into());
    }
    let mut selector = label_selector(term.label_selector.as_ref());
    if let Some(selector) = &mut selector {
        for key in term.match_label_keys.iter().flatten() {
            if let Some((key, value)) = pod_labels.get_key_value(key.as_str()) {
                selector.require(key.clone(), Match::In([value.clone()].into()));
            }
        }
        for key in term.mismatch_label_keys.iter().flatten() {
            if let Some((key, value)) = pod_labels.get_key_value(key.as_str()) {
                selector.require(key.clone(), Match::NotIn([value.clone()].into()));
            }
        }
    }
    AffinityTerm {
        topology_key: term.topology_key.as_str().into(),
        namespaces,
        namespace_selector: label_selector(term.namespace_selector.as_ref()),
        selector,
    }
}

fn spread(spec: &core::PodSpec, pod_labels: &Labels) -> (Vec<SpreadConstraint>, Vec<SpreadConstraint>) {
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for constraint in spec.topology_spread_constraints.iter().flatten() {
        let mut selector = label_selector(constraint.label_selector.as_ref());
        if let Some(selector) = &mut selector {
            for key in constraint.match_label_keys.iter().flatten() {
                if let Some((key, value)) = pod_labels.get_key_value(key.as_str()) {
                    selector.require(key.clone(), Match::In([value.clone()].into()));
                }
            }
        }
        let parsed = SpreadConstraint {
            topology_key: constraint.topology_key.as_str().into(),
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.unwrap_or(1).into(),
            selector,
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        };
        match constraint.when_unsatisfiable.as_str() {
            "DoNotSchedule" => hard.push(parsed),
            "ScheduleAnyway" => soft.push(parsed),
            _ => {}
        }
    }
    (hard, soft)
}

/// The host ports of a pod. Of the init containers, only sidecars have host ports.
fn host_ports(spec: &core::PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&spec.containers).filter_map(|container| container.ports.as_ref()).flatten();
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.as_deref().filter(|address| !address.is_empty());
            let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty());
            Some(HostPort {
                address: address.unwrap_or(EVERY_ADDRESS).into(),
                protocol: protocol.unwrap_or("TCP").into(),
                port: number,
            })
        })
        .collect()
}

fn claims(pod_name: &str, spec: &core::PodSpec) -> Vec<ClaimUse> {
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(ClaimUse { name: claim.claim_name.as_str().into(), ephemeral: false }),
            (None, Some(_)) => {
                Some(ClaimUse { name: format!("{pod_name}-{}", volume.name).into(), ephemeral: true })
            }
            (None, None) => None,
        })
        .collect()
}

fn inline_disk(volume: &core::Volume) -> Option<InlineDisk> {
    if let Some(disk) = &volume.gce_persistent_disk {
        let read_only = disk.read_only.unwrap_or(false);
        Some(InlineDisk::Gce { name: disk.pd_name.clone(), read_only })
    } else if let Some(disk) = &volume.aws_elastic_block_store {
        Some(InlineDisk::Ebs { volume: disk.volume_id.clone() })
    } else if let Some(disk) = &volume.iscsi {
        Some(InlineDisk::Iscsi { iqn: disk.iqn.clone(), read_only: disk.read_only.unwrap_or(false) })
    } else {
        let disk = volume.rbd.as_ref()?;
        Some(InlineDisk::Rbd {
            monitors: disk.monitors.clone(),
            pool: disk.pool.clone().unwrap_or_else(|| "rbd".to_owned()),
            image: disk.image.clone(),
            read_only: disk.read_only.unwrap_or(false),
        })
    }
}
