//! The origin of a document, and references to objects.

use serde::{Deserialize, Serialize};

/// The version of the documents, in [`Meta::api`].
pub const API_VERSION: &str = "v1";

/// The origin of the facts in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Source {
    /// A running controller.
    Controller,
    /// The objects of a cluster, read by the command itself.
    Cluster,
    /// Manifests or a dump.
    #[default]
    Dump,
    /// The simulated cluster of `karpenter up` or `karpenter demo`.
    Simulation,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Cluster => "cluster",
            Self::Dump => "dump",
            Self::Simulation => "simulation",
        }
    }
}

/// The header of every document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Meta {
    pub api: String,
    pub source: Source,
    /// The time to which the document refers; absent if the input has no timestamp.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<String>,
    /// The version of the cluster state; 0 if the source has none.
    pub revision: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<String>,
    /// The pod that holds the leader lease.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leader: Option<String>,
    /// The start of the recorded history; absent without history.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history_since: Option<String>,
    /// Notes about information that the source lacks or that was assumed.
    pub notes: Vec<String>,
}

/// A reference to a Kubernetes object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectRef {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectRef {
    pub fn cluster_scoped(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), namespace: None, name: name.into() }
    }

    pub fn namespaced(
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self { kind: kind.into(), namespace: Some(namespace.into()), name: name.into() }
    }
}

/// `Kind namespace/name`, or `Kind name`.
impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}
