//! Disruption on the embedded cluster: from the evaluation to the last rescheduled pod, and crashes of the process in between.
//!
//! Upstream's end-to-end tests and their counterparts here:
//!
//! | Test of upstream | Tests here |
//! |---|---|
//! | drift, budgets: three empty nodes at 50 % | `drift_budgets::budget_of_half_deletes_half_of_the_drifted_empty_nodes_without_replacement` |
//! | drift, budgets: nodes whose pods fit elsewhere at 50 % | `drift_budgets::drifted_nodes_whose_pods_fit_elsewhere_are_deleted_within_budget` |
//! | drift, budgets: three of five replaced | `drift_budgets::budget_of_three_replaces_three_of_five_drifted_nodes_at_once` |
//! | drift, budgets: none allowed; a schedule | `drift_budgets::budget_of_zero_blocks_drift`, `budget_schedule_blocks_drift_while_it_is_active` |
//! | drift by annotations, labels, taints, startup taints, requirements | `drift_kinds::changed_*_cause_drift*` |
//! | drift: the condition within five seconds | `drift_kinds::drift_condition_is_set_within_five_seconds` |
//! | drift: hash and version of the hash | `termination::pools::claims_are_migrated_to_the_hash_version` |
//! | drift: the replacement never registers | `drift::command_whose_replacement_never_registers_is_rolled_back` |
//! | drift: the replacement never initializes | `drift_kinds::replacement_that_never_initializes_is_kept_and_the_command_rolled_back` |
//! | drift: a PodDisruptionBudget with unready pods | `drift_kinds::pod_disruption_budget_with_unready_pods_blocks_drift` |
//! | expiration: one for one; with a PodDisruptionBudget | `expiration::*`; on time: `lifecycle::ends::claims_expire_on_time` |
//! | emptiness: a budget of zero; a schedule; an empty node | `budgets::budget_of_zero_blocks_disruption_until_it_is_raised`, `budgets::budget_schedule_blocks_disruption_while_it_is_active`, `consolidation::empty_nodes_are_deleted_after_consolidate_after_and_validation` |
//! | termination: grace period, do-not-disrupt pods, preStop hook | `deleted::deleted_claim_is_drained_within_termination_grace_period`, `termination::grace` |
//! | termination: the node is deleted; the order of the drain | `termination::ends::deleting_a_node_deletes_its_claim_and_instance`, `termination::drain::workload_pods_are_evicted_before_daemonset_pods_and_critical_pods_last` |
//! | do-not-disrupt with a duration: one pod; 1m, 2m and true together | `termination::drain::do_not_disrupt_duration_protects_a_pod`; `termination::drain::pods_with_do_not_disrupt_*`, `protected::*` |
//! | a NodePool is deleted | `deleted::*`, `static_capacity::deleted_nodepool_is_not_refilled` |
//! | terminate-first: a static NodePool of one at its limit, drifted and unhealthy, gates on and off | `terminate_first::*` |
//! | static NodePools: drift within limits; scaled and drifted at once | `static_pools::*` |
//! | static NodePools: pods that do not fit use a dynamic one | `static_capacity::pods_that_do_not_fit_use_a_dynamic_nodepool` |
//! | repair and reboot | `repair::*`, `crate::repair::*` |
//! | chaos: every node is tainted | `chaos::*` |

mod broken_budgets;
mod budgets;
mod chaos;
mod churn;
mod consolidation;
mod controls;
mod crashes;
mod deleted;
mod deletion_costs;
mod drift;
mod drift_budgets;
mod drift_kinds;
mod expiration;
mod failures;
mod idle;
mod protected;
mod rejected;
mod repair;
mod reports;
mod restarts;
mod static_pools;
pub(crate) mod support;
mod terminate_first;
pub(crate) mod world;
