//! Nodes are taken away on purpose: from the first thought to the last pod that runs elsewhere, and when the process
//! that does it ends on the way.
//!
//! Upstream's own cases for real clusters and the stories that tell them here:
//!
//! | upstream | here |
//! |---|---|
//! | drift, budgets: three empty nodes at 50 % | `drift_budgets::half_of_the_empty_nodes_that_drifted_go_at_once_and_nothing_takes_their_place` |
//! | drift, budgets: nodes whose pods fit elsewhere at 50 % | `drift_budgets::drifted_nodes_whose_pods_fit_elsewhere_go_within_the_budget` |
//! | drift, budgets: three of five replaced | `drift_budgets::three_of_five_drifted_nodes_are_replaced_at_once_and_five_are_left` |
//! | drift, budgets: none allowed; a schedule | `drift_budgets::a_budget_of_zero_keeps_drifted_nodes`, `a_schedule_keeps_drifted_nodes_while_it_lasts` |
//! | drift by annotations, labels, taints, start-up taints, requirements | `drift_kinds::*_drift*` |
//! | drift: the condition within five seconds | `drift_kinds::drift_is_seen_within_five_seconds` |
//! | drift: hash and version of the hash | `termination::pools::claims_are_carried_over_to_the_hash_version` |
//! | drift: the replacement never registers | `drift::a_replacement_that_never_registers_is_given_up_and_the_old_node_opened_again` |
//! | drift: the replacement never initialises | `drift_kinds::a_replacement_that_never_initialises_is_kept_and_the_old_node_opened_again` |
//! | drift: a pod budget with unready pods | `drift_kinds::a_pod_budget_with_unready_pods_blocks_drift` |
//! | expiration: one for one; with a pod budget | `expiration::*`; on time: `lifecycle::ends::claims_expire_on_time` |
//! | emptiness: a budget of zero; a schedule; an empty node | `budgets::a_budget_of_zero_keeps_everything_until_it_is_lifted`, `budgets::a_schedule_blocks_while_it_lasts`, `consolidation::empty_nodes_go_after_their_pools_wait_and_a_second_look` |
//! | termination: grace period, pods that may not be disrupted, preStop hook | `deleted::a_claim_that_is_deleted_has_the_time_that_its_pool_grants`, `termination::grace` |
//! | termination: the node is deleted; the order of the drain | `termination::ends::a_node_deleted_by_hand_takes_its_claim_and_machine_along`, `termination::drain::workloads_leave_before_daemons_and_critical_pods_last` |
//! | do-not-disrupt for a while: one pod; 1m, 2m and true together | `termination::drain::a_duration_protects_a_pod_for_so_long`; `termination::drain::pods_protected_*`, `protected::*` |
//! | a pool is deleted | `deleted::*`, `static_capacity::a_pool_that_is_deleted_is_not_filled_up_again` |
//! | terminate-first: a static pool of one at its limit, drifted and sick, gates on and off | `terminate_first::*` |
//! | static pools: drift within limits; scaled and drifted at once | `fixed_pools::*` |
//! | static pools: what does not fit goes to a dynamic one | `static_capacity::what_does_not_fit_on_it_goes_to_a_pool_that_may_grow` |
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
mod fixed_pools;
mod idle;
mod protected;
mod rejected;
mod repair;
mod restarts;
pub(crate) mod support;
mod terminate_first;
mod told;
pub(crate) mod world;
