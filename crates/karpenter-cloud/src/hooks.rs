//! Registration hooks: conditions that a provider sets for the registration of a node.

use std::time::Duration;

use karpenter_api::types::NodeClaim;

use crate::CloudFuture;

/// Delays the registration of a node until a condition of the provider is met.
pub trait RegistrationHook: Send + Sync {
    /// The name of the hook, which the NodeClaim's condition states while the hook delays registration.
    fn name(&self) -> &str;

    /// Whether the NodeClaim's node may be registered. If the result is an error, registration is delayed, and the hook
    /// is called again.
    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAnswer {
    Ready,
    /// The node may not be registered yet. The hook is called again after this duration; if there is none, after the
    /// controller's default.
    NotYet {
        ask_again_after: Option<Duration>,
    },
}
