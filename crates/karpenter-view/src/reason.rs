//! Reasons with their parameters and fixes, and whether a state ends by itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::ObjectRef;

/// A value in [`Reason::params`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Param {
    Count(u64),
    Number(f64),
    Text(String),
    List(Vec<String>),
}

impl From<&str> for Param {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Param {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Param {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Param {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<Vec<String>> for Param {
    fn from(list: Vec<String>) -> Self {
        Self::List(list)
    }
}

/// Why a pod is pending, or why a node is not disrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// The stable name; docs/explain.md lists the codes and their parameters.
    pub code: String,
    pub params: BTreeMap<String, Param>,
    /// Text for people. Its wording may change between versions.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fix: Option<Fix>,
}

/// How a patch is applied: `kubectl patch --type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PatchType {
    Merge,
    Strategic,
}

impl PatchType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Strategic => "strategic",
        }
    }
}

/// A change that removes a reason. A user has to make the change; Karpenter never does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fix {
    pub text: String,
    /// The object to change; absent if no object is changed, for example if the fix is a feature gate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<ObjectRef>,
    /// The patch of the object; absent if the change cannot be expressed as a patch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub patch: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub patch_type: Option<PatchType>,
}

/// Whether a user has to do something about a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ResolutionKind {
    /// Nothing has to change.
    Ok,
    /// The state will change without an intervention by a user.
    InProgress,
    /// A user has to change something.
    Blocked,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    pub is: ResolutionKind,
    /// When a state that is in progress will change; absent if the time is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
}

impl Resolution {
    pub fn ok() -> Self {
        Self { is: ResolutionKind::Ok, until: None }
    }

    pub fn in_progress(until: Option<String>) -> Self {
        Self { is: ResolutionKind::InProgress, until }
    }

    pub fn blocked() -> Self {
        Self { is: ResolutionKind::Blocked, until: None }
    }
}
