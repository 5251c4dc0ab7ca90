//! Every rule of disruption on small fleets, one table or one case each.

#[path = "support/builders.rs"]
mod builders;

#[path = "rules/budgets.rs"]
mod budgets;
#[path = "rules/candidates.rs"]
mod candidates;
#[path = "rules/compat.rs"]
mod compat;
#[path = "rules/controls.rs"]
mod controls;
#[path = "rules/drift.rs"]
mod drift;
#[path = "rules/emptiness.rs"]
mod emptiness;
#[path = "rules/old_rules.rs"]
mod old_rules;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/repair.rs"]
mod repair;
#[path = "rules/second_look.rs"]
mod second_look;
#[path = "rules/spread_share.rs"]
mod spread_share;
#[path = "rules/whole_fleet.rs"]
mod whole_fleet;
