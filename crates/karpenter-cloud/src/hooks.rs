//! Conditions of a provider for the registration of a node.

use std::time::Duration;

use karpenter_api::types::NodeClaim;

use crate::CloudFuture;

/// Delays the registration of a node until the provider agrees.
pub trait RegistrationHook: Send + Sync {
    /// The name that the NodeClaim's condition has while the hook delays registration.
    fn name(&self) -> &str;

    /// Whether the NodeClaim's node may be registered. An error delays registration, and the hook is called again.
    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAnswer {
    Ready,
    /// The hook is called again after this duration, or after the controller's default if there is none.
    NotYet {
        ask_again_after: Option<Duration>,
    },
}
