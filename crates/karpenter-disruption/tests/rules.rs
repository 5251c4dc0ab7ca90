//! Tests of every rule of disruption on small clusters, with one table or one case each.

#[path = "support/builders.rs"]
mod builders;

#[path = "rules/budgets.rs"]
mod budgets;
#[path = "rules/candidates.rs"]
mod candidates;
#[path = "rules/compat.rs"]
mod compat;
#[path = "rules/drift.rs"]
mod drift;
#[path = "rules/emptiness.rs"]
mod emptiness;
#[path = "rules/legacy_rules.rs"]
mod legacy_rules;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/pool_policy.rs"]
mod pool_policy;
#[path = "rules/repair.rs"]
mod repair;
#[path = "rules/spread_share.rs"]
mod spread_share;
#[path = "rules/validation.rs"]
mod validation;
#[path = "rules/whole_cluster.rs"]
mod whole_cluster;
