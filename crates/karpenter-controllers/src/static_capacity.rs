//! Static NodePools: creates NodeClaims up to `spec.replicas` and deletes surplus ones.
//!
//! There are two controllers, as in upstream. They ignore pending pods, prices and budgets. NodeClaims that a command
//! replaces are counted separately, because their replacement already exists. Disruption decides about drifted and
//! unhealthy nodes. The node limit is granted by [`crate::claims::node_limits`]. The feature gate is StaticCapacity.
//! Upstream: pkg/controllers/static, pkg/controllers/state/statenodepool.go.

mod deprovisioning;
mod provisioning;
#[cfg(test)]
mod tests;

pub use self::deprovisioning::StaticDeprovisioning;
pub use self::provisioning::StaticProvisioning;
