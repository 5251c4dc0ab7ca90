//! A pod as it is kept here: who it is and how it is doing, beside what it shares with its siblings.
//!
//! A large cluster has ten pods for every node, and nearly all of a pod is what its workload wrote into it. That part is
//! kept once and pointed at by every replica ([`Family`]), so that a pod costs a few hundred bytes, and two replicas are
//! seen to be alike by comparing two addresses. What nobody here looks at is dropped on the way in ([`trim`]); a kept pod
//! is a reading and can never be written back.

mod family;
mod slim;
#[cfg(test)]
mod tests;
mod trim;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as RawPod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use karpenter_api::error::FieldError;
use karpenter_api::pod_requests::{limits_of_spec, occupied};
use karpenter_api::types::Quantities;
use serde::Deserialize;

pub use family::Family;
pub use slim::Slim;

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(from = "Slim")]
pub struct Pod {
    pub name: Box<str>,
    pub uid: Box<str>,
    /// The version of the object; 0 if it has never been written.
    pub version: u64,
    /// Of the spec; 0 where the server does not count.
    pub generation: i64,
    pub created_at: Option<Timestamp>,
    pub deleted_at: Option<Timestamp>,
    /// The node it is bound to.
    pub node_name: Option<Box<str>>,
    pub kin: Arc<Kin>,
    /// Without the name of the node, and for daemons on a node without the affinity that pins them there.
    pub spec: Arc<PodSpec>,
    pub status: Status,
}

/// What the metadata of a pod have in common with those of its siblings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kin {
    pub namespace: Box<str>,
    pub labels: BTreeMap<String, String>,
    /// Karpenter's own and those of Kubernetes.
    pub annotations: BTreeMap<String, String>,
    pub owners: Vec<OwnerReference>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub phase: Phase,
    pub started_at: Option<Timestamp>,
    pub nominated_node: Option<Box<str>>,
    pub ready: Option<Mark>,
    pub scheduled: Option<Mark>,
    /// The scheduler has tried and found no node.
    pub is_unschedulable: bool,
    /// Sizes of containers and the conditions of a resize, where they differ from what the spec asks for.
    pub held: Option<Box<PodStatus>>,
}

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Neither if nobody knows.
    pub is_true: bool,
    pub is_false: bool,
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nobody has said anything yet.
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

    /// As the API spells it.
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

    /// Ran to its end, well or not.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl Pod {
    pub fn namespace(&self) -> &str {
        &self.kin.namespace
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.kin.labels
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.kin.labels.get(key).map(String::as_str)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.kin.annotations.get(key).map(String::as_str)
    }

    pub fn owners(&self) -> &[OwnerReference] {
        &self.kin.owners
    }

    /// The one owner that manages it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.kin.owners.iter().find(|owner| owner.controller == Some(true))
    }

    /// For writes that must not meet another version. Nothing for a pod that was never written.
    pub fn resource_version(&self) -> Option<String> {
        (self.version > 0).then(|| self.version.to_string())
    }

    pub(crate) fn created_at_secs(&self) -> i64 {
        self.created_at.map_or(0, Timestamp::as_second)
    }

    /// What it occupies on a node.
    pub fn requests(&self) -> Result<Quantities, FieldError> {
        occupied(&self.spec, self.status.held.as_deref())
    }

    /// The most it may use, where that is limited.
    pub fn limits(&self) -> Result<Quantities, FieldError> {
        limits_of_spec(&self.spec)
    }

    /// Whether both ask for the same and carry the same labels and annotations. Siblings are told by their addresses.
    pub fn is_like(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.spec, &other.spec) || self.spec == other.spec)
            && (Arc::ptr_eq(&self.kin, &other.kin) || self.kin == other.kin)
            && self.status.held == other.status.held
    }

    /// Whether the pod, written anew, says nothing new.
    pub fn is_same(&self, new: &Self) -> bool {
        self.uid == new.uid
            && self.generation == new.generation
            && self.deleted_at == new.deleted_at
            && self.node_name == new.node_name
            && self.status == new.status
            && self.is_like(new)
    }

    /// Points at the parts of its older self where they are the same. What this process wrote itself came without its
    /// siblings.
    pub fn share_with(&mut self, older: &Self) {
        if self.kin == older.kin {
            self.kin = older.kin.clone();
        }
        if self.spec == older.spec {
            self.spec = older.spec.clone();
        }
    }
}

/// Without siblings: whatever reads one pod.
impl From<RawPod> for Pod {
    fn from(raw: RawPod) -> Self {
        trim::split(raw).joined(Arc::new, Arc::new)
    }
}

impl From<Slim> for Pod {
    fn from(Slim(raw): Slim) -> Self {
        raw.into()
    }
}

impl From<PodStatus> for Status {
    fn from(mut raw: PodStatus) -> Self {
        let condition =
            |kind: &str| raw.conditions.iter().flatten().find(|condition| condition.type_ == kind);
        let mark = |condition: &PodCondition| Mark {
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
            held: None,
        }
    }
}
