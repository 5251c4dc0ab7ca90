//! The command `karpenter doctor`: finds faults of a Karpenter installation and suggests fixes.
//!
//! [`gather`] reads the cluster without evaluating it; [`findings`] evaluates what was read, without I/O. Neither
//! writes to the cluster.

#[cfg(feature = "aws")]
pub mod aws;
mod controller;
mod definitions;
mod explain;
pub mod facts;
mod gather;
mod objects;
mod permissions;
mod server;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use explain::explain;
pub use facts::Facts;
pub use gather::{DoctorOptions, gather};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// An identifier of the check that does not change, for programs that read the report.
    pub check: &'static str,
    pub level: Level,
    pub message: String,
    /// How to fix the fault; `None` for [`Level::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), fix: None }
    }

    pub fn warn(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    pub fn fail(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, message: message.into(), fix: Some(fix.into()) }
    }

    /// The finding that some part of the cluster could not be read.
    fn unreadable(check: &'static str, error: &str) -> Self {
        Self::warn(check, format!("cannot read: {error}"), "use a kubeconfig with permission to read this")
    }
}

/// All findings, grouped by area.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = server::judge(facts);
    if facts.server.is_err() {
        // The other checks are skipped, because each would report the same failure.
        return all;
    }
    all.extend(definitions::judge(facts));
    all.extend(controller::judge(facts));
    all.extend(permissions::judge(facts));
    all.extend(objects::judge(facts));
    all
}
