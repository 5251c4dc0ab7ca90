//! Static NodePools: creates NodeClaims up to `spec.replicas` and deletes surplus ones.
//!
//! As in upstream, one controller creates NodeClaims and another one deletes them. Both ignore pending pods, prices and
//! budgets. NodeClaims that a command replaces are counted separately, because their replacements exist already.
//! Disruption decides about drifted and unhealthy nodes. [`crate::claims::node_limits`] grants nodes under
//! `limits.nodes`. The feature gate is `StaticCapacity`. Upstream: pkg/controllers/static,
//! pkg/controllers/state/statenodepool.go.

mod deprovisioning;
mod provisioning;
#[cfg(test)]
mod tests;

pub use self::deprovisioning::StaticDeprovisioning;
pub use self::provisioning::StaticProvisioning;
