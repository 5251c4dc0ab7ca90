//! What a provider may want to see done before a node is opened to pods.

use std::time::Duration;

use karpenter_api::types::NodeClaim;

use crate::CloudFuture;

/// Holds a node's registration up until it agrees.
pub trait RegistrationHook: Send + Sync {
    /// What the claim's condition names while it waits.
    fn name(&self) -> &str;

    /// Whether the claim's node may be opened. An error is a "not yet" that is asked again later.
    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAnswer {
    Ready,
    /// Asked again after this long; without it, after a while.
    NotYet {
        ask_again_after: Option<Duration>,
    },
}
