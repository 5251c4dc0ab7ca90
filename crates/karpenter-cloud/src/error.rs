//! How a cloud says no. Behaviour hangs on these, so the list is closed.

/// Why a call to the cloud did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// None of the wanted offerings can be had right now. The claim is given up; the pods are planned anew.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity { message: String },
    /// The node class is not ready, so nothing can be launched with it. The claim is given up.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady { message: String },
    /// There is no such machine (any more).
    #[error("instance not found: {message}")]
    NotFound { message: String },
    /// The launch was refused for a reason the user should see in the claim's status; tried again later.
    #[error("{message}")]
    CreateRefused { reason: String, message: String },
    /// The pool's instance types are not known yet; it is left out until they are.
    #[error("instance types of nodepool {pool} have not been evaluated yet")]
    NotEvaluated { pool: String },
    /// The provider cannot restart machines in place; the machine is replaced.
    #[error("reboot is not implemented by the cloud provider")]
    RebootNotImplemented,
    /// The restart was refused, and asking again would not help; the machine is replaced.
    #[error("{message}")]
    RebootFailed { message: String },
    /// Too many calls; tried again later.
    #[error("throttled: {message}")]
    Throttled { message: String },
    /// The credentials do not allow it; tried again later, told plainly.
    #[error("not authorized: {message}")]
    Unauthorized { message: String },
    /// Anything else; tried again later.
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
