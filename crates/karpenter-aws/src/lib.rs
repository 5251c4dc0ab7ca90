//! The AWS provider: launch settings, instance types, launches, instances and interruptions on EC2.
//!
//! No type of the AWS SDK is known here: [`api`] says in our own words what is asked of AWS, `karpenter-aws-sdk` puts
//! it on the wire, and `fake` answers it in process. Everything that decides is a function over plain values in a
//! file of its own; what talks, caches or waits is thin.
//!
//! | module | what it decides or holds |
//! |---|---|
//! | [`api`] | the calls of AWS as narrow traits, plain structs and classified errors |
//! | `fake` | an in-process cloud behind those traits (feature `fake`) |
//! | [`call_metrics`] | what is told about calls on the wire |
//! | [`cache`], [`single_flight`], [`batcher`] | values with an age, questions asked once, calls put together |
//! | [`launch`] | launch templates, fleets, filters, subnets for launch, and what a refusal means |
//! | [`instances`], [`provider`] | machines found, listed, tagged and ended; the cloud as Karpenter sees it |
//! | [`kubelet`], [`amis`] | what a class says about the kubelet, and which image a type boots |
//! | [`types`], [`unavailable`], [`pricing`], [`reservations`], [`placement_groups`] | what can be bought, where, for how much, right now |
//! | `node_class`, `subnets`, `security_groups`, `profiles`, `drift` | a class's status, and machines that no longer match it |
//! | [`interruption`], [`instance_status`], [`reserved_claims`], [`zonal_shift`] | what happens to machines by itself, and what is done about it |
//! | [`garbage_collection`], [`tagging`], [`machines`] | what is left over, and what machines are called |
//! | [`version`], [`cluster_facts`], [`options`] | the facts of the cluster, and what an administrator set |
//! | [`assembly`] | who knows whom |
//! | [`permissions`] | what the provider may do in an account, compared with what it does |

pub mod amis;
pub mod api;
pub mod assembly;
pub mod batcher;
pub mod cache;
pub mod call_metrics;
pub mod cluster_facts;
pub mod drift;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod garbage_collection;
pub mod instance_status;
pub mod instances;
pub mod interruption;
pub mod kubelet;
pub mod launch;
pub mod machines;
pub mod node_class;
pub mod options;
pub mod permissions;
pub mod placement_groups;
pub mod pricing;
pub mod profiles;
pub mod provider;
pub mod reservations;
pub mod reserved_claims;
pub mod security_groups;
pub mod single_flight;
pub mod subnets;
pub mod tagging;
pub mod types;
pub mod unavailable;
pub mod version;
pub mod zonal_shift;
