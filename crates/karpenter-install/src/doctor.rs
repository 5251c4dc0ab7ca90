//! What is wrong with Karpenter on a cluster, and what to do about it.
//!
//! [`gather`] looks and judges nothing; [`findings`] judges and looks at nothing. Nothing is changed by either.

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
pub use gather::{Asked, gather};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name for programs.
    pub check: &'static str,
    pub level: Level,
    pub message: String,
    /// What to do; nothing where all is well.
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

    /// Something could not be looked at.
    fn unseen(check: &'static str, error: &str) -> Self {
        Self::warn(check, format!("cannot look: {error}"), "use a kubeconfig of somebody who may read this")
    }
}

/// Everything there is to say, area by area.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = server::judge(facts);
    if facts.server.is_err() {
        // The rest could only repeat it.
        return all;
    }
    all.extend(definitions::judge(facts));
    all.extend(controller::judge(facts));
    all.extend(permissions::judge(facts));
    all.extend(objects::judge(facts));
    all
}
