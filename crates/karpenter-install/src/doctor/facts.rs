//! What the doctor saw, as plain values. Whatever could not be looked at says why.

use jiff::Timestamp;
use karpenter_api::labels::Provider;
use serde_json::Value;

use crate::controllers::Controller;
use crate::leases::Lease;
use crate::manifests::Permission;

/// Something that was looked at, or why it could not be.
pub type Looked<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Facts {
    /// By our own clock.
    pub now: Timestamp,
    /// The provider that is asked about; by default the one of the controller that was found.
    pub provider: Option<Provider>,
    pub server: Looked<Server>,
    pub definitions: Looked<Vec<Value>>,
    pub controllers: Looked<Vec<Controller>>,
    pub leases: Looked<Vec<Lease>>,
    pub access: Option<Access>,
    pub pools: Looked<Vec<Value>>,
    pub claims: Looked<Vec<Value>>,
    /// EC2NodeClasses and KWOKNodeClasses.
    pub classes: Looked<Vec<Value>>,
    /// Provisioners and AWSNodeTemplates.
    pub old: Looked<Vec<Value>>,
    pub nodes: Looked<Vec<Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// As it calls itself, such as `v1.35.0`.
    pub version: String,
    pub minor: Option<u32>,
    /// How far its clock is ahead of ours, to the second.
    pub ahead_secs: Option<i64>,
}

/// What the service account of the controller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `namespace/name`.
    pub account: String,
    pub exists: Looked<bool>,
    pub checked_count: usize,
    pub missing: Vec<Permission>,
    /// The first question that was not answered.
    pub unanswered: Option<String>,
}

impl Facts {
    /// Whether somebody works: a lease that is renewed, or pods that are ready.
    pub(crate) fn works(&self) -> bool {
        let by_lease = self.leases.iter().flatten().any(|lease| lease.is_held(self.now));
        by_lease || self.controllers.iter().flatten().any(|controller| controller.ready > 0)
    }
}
