//! Errors of a cloud provider. Controllers decide by the variant, so the list is closed.
//!
//! Upstream: pkg/cloudprovider/types.go

/// The error of a call to a cloud provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// None of the compatible offerings currently has capacity. The NodeClaim is deleted and its pods are planned
    /// again.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity { message: String },
    /// The node class is not ready, so nothing can be launched with it. The NodeClaim is deleted.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady { message: String },
    /// The instance does not exist, or does not exist any more.
    #[error("instance not found: {message}")]
    NotFound { message: String },
    /// The launch failed for a reason that the user should see in the NodeClaim's status; it is retried.
    #[error("{message}")]
    CreateRefused { reason: String, message: String },
    /// The NodePool's instance types are not known yet; it is excluded from planning until they are.
    #[error("instance types of nodepool {pool} have not been evaluated yet")]
    NotEvaluated { pool: String },
    /// The provider cannot reboot instances; the node is replaced.
    #[error("reboot is not implemented by the cloud provider")]
    RebootNotImplemented,
    /// The reboot failed, and a retry would fail too; the node is replaced.
    #[error("{message}")]
    RebootFailed { message: String },
    /// The provider rejected the call because of its rate; it is retried.
    #[error("throttled: {message}")]
    Throttled { message: String },
    /// The credentials do not allow the call; it is retried and logged.
    #[error("not authorized: {message}")]
    Unauthorized { message: String },
    /// Any other error; the call is retried.
    #[error("{message}")]
    Transient { message: String },
}

impl CloudError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The `error` label of `karpenter_cloudprovider_errors_total`, as upstream names it.
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
