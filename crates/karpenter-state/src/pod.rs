//! A pod as the controllers keep it: its identity and status, and references to what it shares with other
//! pods of its workload.
//!
//! A large cluster has ten pods per node, and most fields of a pod come from its workload. These fields are stored
//! once, and every replica references them ([`PodInterner`]). So a pod needs a few hundred bytes, and replicas are
//! compared by address. Fields that are not used are dropped when the pod is read ([`keep`]), so a stored pod must not
//! be written back.

mod fields;
mod intern;
mod keep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as RawPod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use karpenter_api::error::FieldError;
use karpenter_api::pod_requests::{limits_of_spec, occupied};
use karpenter_api::types::Quantities;
use serde::Deserialize;

pub use fields::PodFields;
pub use intern::PodInterner;

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(from = "PodFields")]
pub struct Pod {
    pub name: Box<str>,
    pub uid: Box<str>,
    /// The resource version; 0 if the pod was never written.
    pub version: u64,
    /// The generation of the spec; 0 if the API server does not count it.
    pub generation: i64,
    pub created_at: Option<Timestamp>,
    pub deleted_at: Option<Timestamp>,
    /// The node that the pod is bound to.
    pub node_name: Option<Box<str>>,
    pub shared_meta: Arc<SharedMeta>,
    /// The spec without the node name. A DaemonSet pod on a node also lacks the affinity that pins it there.
    pub spec: Arc<PodSpec>,
    pub status: Status,
}

/// The metadata that a pod shares with other pods of its workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SharedMeta {
    pub namespace: Box<str>,
    pub labels: BTreeMap<String, String>,
    /// Annotations of Karpenter and Kubernetes only.
    pub annotations: BTreeMap<String, String>,
    pub owners: Vec<OwnerReference>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub phase: Phase,
    pub started_at: Option<Timestamp>,
    pub nominated_node: Option<Box<str>>,
    pub ready: Option<ConditionStamp>,
    pub scheduled: Option<ConditionStamp>,
    /// Whether the scheduler tried to schedule the pod and found no node.
    pub is_unschedulable: bool,
    /// The resources of containers and the conditions of a resize, if they differ from the spec.
    pub actual_resources: Option<Box<PodStatus>>,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionStamp {
    /// Whether the status is `True`. If neither `is_true` nor `is_false` is set, the status is `Unknown`.
    pub is_true: bool,
    pub is_false: bool,
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// The condition is not set yet.
    #[default]
    Unset,
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Unset,
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }

    /// The name of the phase as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Succeeded or failed.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl Pod {
    pub fn namespace(&self) -> &str {
        &self.shared_meta.namespace
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.shared_meta.labels
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.shared_meta.labels.get(key).map(String::as_str)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.shared_meta.annotations.get(key).map(String::as_str)
    }

    pub fn owners(&self) -> &[OwnerReference] {
        &self.shared_meta.owners
    }

    /// The controlling owner.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.shared_meta.owners.iter().find(|owner| owner.controller == Some(true))
    }

    /// The resource version for writes with a precondition. `None` for a pod that was never written.
    pub fn resource_version(&self) -> Option<String> {
        (self.version > 0).then(|| self.version.to_string())
    }

    pub(crate) fn created_at_secs(&self) -> i64 {
        self.created_at.map_or(0, Timestamp::as_second)
    }

    /// The resources that the pod occupies on a node.
    pub fn requests(&self) -> Result<Quantities, FieldError> {
        occupied(&self.spec, self.status.actual_resources.as_deref())
    }

    /// The resource limits of the pod.
    pub fn limits(&self) -> Result<Quantities, FieldError> {
        limits_of_spec(&self.spec)
    }

    /// Whether both pods have equal specs, labels and annotations. Shared parts are compared by address.
    pub fn has_equal_spec(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.spec, &other.spec) || self.spec == other.spec)
            && (Arc::ptr_eq(&self.shared_meta, &other.shared_meta) || self.shared_meta == other.shared_meta)
            && self.status.actual_resources == other.status.actual_resources
    }

    /// Whether an update of the pod changes nothing that the controllers use.
    pub fn is_equivalent(&self, new: &Self) -> bool {
        self.uid == new.uid
            && self.generation == new.generation
            && self.deleted_at == new.deleted_at
            && self.node_name == new.node_name
            && self.status == new.status
            && self.has_equal_spec(new)
    }

    /// References the shared parts of the older version of the pod where they are equal. This is needed for a pod from
    /// the response to a write, which is not read through the interner.
    pub fn reuse_shared_parts(&mut self, older: &Self) {
        if self.shared_meta == older.shared_meta {
            self.shared_meta = older.shared_meta.clone();
        }
        if self.spec == older.spec {
            self.spec = older.spec.clone();
        }
    }
}

/// Converts a single pod, without sharing parts with other pods.
impl From<RawPod> for Pod {
    fn from(raw: RawPod) -> Self {
        keep::split(raw).joined(Arc::new, Arc::new)
    }
}

impl From<PodFields> for Pod {
    fn from(PodFields(raw): PodFields) -> Self {
        raw.into()
    }
}

impl From<PodStatus> for Status {
    fn from(mut raw: PodStatus) -> Self {
        let condition =
            |kind: &str| raw.conditions.iter().flatten().find(|condition| condition.type_ == kind);
        let mark = |condition: &PodCondition| ConditionStamp {
            is_true: condition.status == "True",
            is_false: condition.status == "False",
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        };
        let scheduled = condition("PodScheduled");
        Self {
            phase: Phase::parse(raw.phase.as_deref()),
            started_at: raw.start_time.as_ref().map(|time| time.0),
            ready: condition("Ready").map(mark),
            scheduled: scheduled.map(mark),
            is_unschedulable: scheduled.is_some_and(|one| one.reason.as_deref() == Some("Unschedulable")),
            nominated_node: raw
                .nominated_node_name
                .take()
                .filter(|name| !name.is_empty())
                .map(String::into_boxed_str),
            actual_resources: None,
        }
    }
}
