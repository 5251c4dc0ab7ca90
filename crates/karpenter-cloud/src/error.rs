//! The errors of a cloud provider. Controllers decide by the variant, so providers cannot add variants.
//!
//! Upstream: pkg/cloudprovider/types.go

/// The error of a call to a cloud provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// No compatible offering has capacity at present. The controller deletes the NodeClaim and plans its pods again.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity { message: String },
    /// The node class is not ready, so no instance can be launched with it. The controller deletes the NodeClaim.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady { message: String },
    /// The instance never existed or no longer exists.
    #[error("instance not found: {message}")]
    NotFound { message: String },
    /// The launch failed for a reason that the NodeClaim's status must show to the user. The launch is retried.
    #[error("{message}")]
    CreateRefused { reason: String, message: String },
    /// The NodePool's instance types are not known yet. Until they are, no nodes are planned for the NodePool.
    #[error("instance types of nodepool {pool} have not been evaluated yet")]
    NotEvaluated { pool: String },
    /// The provider cannot reboot instances, so the node is replaced.
    #[error("reboot is not implemented by the cloud provider")]
    RebootNotImplemented,
    /// The reboot failed and would fail again, so the node is replaced.
    #[error("{message}")]
    RebootFailed { message: String },
    /// The provider rejected the call because there were too many calls. The call is retried.
    #[error("throttled: {message}")]
    Throttled { message: String },
    /// The credentials do not allow the call. The call is retried, and a line is logged.
    #[error("not authorized: {message}")]
    Unauthorized { message: String },
    /// Any other error. The call is retried.
    #[error("{message}")]
    Transient { message: String },
}

impl CloudError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The value of the label `error` of the metric `karpenter_cloudprovider_errors_total`, as upstream names it.
    pub fn metric_label(&self) -> &'static str {
        match self {
            Self::InsufficientCapacity { .. } => "InsufficientCapacityError",
            Self::NodeClassNotReady { .. } => "NodeClassNotReadyError",
            Self::NotFound { .. } => "NodeClaimNotFoundError",
            Self::CreateRefused { .. }
            | Self::NotEvaluated { .. }
            | Self::RebootNotImplemented
            | Self::RebootFailed { .. }
            | Self::Throttled { .. }
            | Self::Unauthorized { .. }
            | Self::Transient { .. } => "unknown",
        }
    }
}
