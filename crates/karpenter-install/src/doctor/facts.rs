//! What the doctor has read, as values. If a part could not be read, its value is the reason.

use jiff::Timestamp;
use karpenter_api::labels::Provider;
use serde_json::Value;

use crate::controllers::Controller;
use crate::leases::Lease;
use crate::manifests::Permission;

/// A part that was read, or the reason why it could not be read.
pub type Observed<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Facts {
    /// The current time according to this machine's clock.
    pub now: Timestamp,
    /// The provider to check; `None` means that of the installed controller.
    pub provider: Option<Provider>,
    pub server: Observed<Server>,
    pub definitions: Observed<Vec<Value>>,
    pub controllers: Observed<Vec<Controller>>,
    pub leases: Observed<Vec<Lease>>,
    pub access: Option<Access>,
    pub pools: Observed<Vec<Value>>,
    pub claims: Observed<Vec<Value>>,
    /// All EC2NodeClasses and KWOKNodeClasses of the cluster.
    pub classes: Observed<Vec<Value>>,
    /// Provisioners and AWSNodeTemplates.
    pub old: Observed<Vec<Value>>,
    pub nodes: Observed<Vec<Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// The version that the API server reports, such as `v1.35.0`.
    pub version: String,
    pub minor: Option<u32>,
    /// How many seconds the API server's clock is ahead of this machine's; `None` if unknown.
    pub ahead_secs: Option<i64>,
}

/// What the controller's service account may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `namespace/name`.
    pub account: String,
    pub exists: Observed<bool>,
    pub checked_count: usize,
    pub missing: Vec<Permission>,
    /// The error of the first access review that failed; `None` if none did.
    pub unanswered: Option<String>,
}

impl Facts {
    /// Whether a controller is active, because a Lease is being renewed or pods are ready.
    pub(crate) fn has_active_controller(&self) -> bool {
        let by_lease = self.leases.iter().flatten().any(|lease| lease.is_held(self.now));
        by_lease || self.controllers.iter().flatten().any(|controller| controller.ready > 0)
    }
}
