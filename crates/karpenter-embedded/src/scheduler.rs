//! A kube-scheduler: selects a node for each pod, or reports why there is none.
//!
//! The core is pure: a [`Snapshot`] is built from API objects, and [`schedule_one`] decides about one pod with the
//! filters, scores and messages of kube-scheduler v1.35 in its default configuration. [`run`] watches an API server,
//! keeps the scheduling queue, and writes the decisions.
//!
//! Deliberate differences of this scheduler from kube-scheduler: among nodes with equal scores it takes the first by
//! name, not a random one; it evaluates all nodes, also in large clusters; it ignores dynamic resource claims,
//! CSIStorageCapacity, the translation of in-tree volumes to CSI, images on nodes and ReplicationControllers; it may
//! retry unschedulable pods more often, because its queueing hints are coarser. `e2e/compare-scheduling` compares
//! everything else with kube-scheduler.
//!
//! Upstream: pkg/scheduler

mod affinity;
mod cycle;
mod hints;
mod node;
mod pod;
mod preemption;
mod queue;
mod resources;
mod runner;
mod score;
mod selectors;
mod snapshot;
mod sources;
mod spread;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
mod volumes;
mod writes;

pub use cycle::{best_nodes, schedule_one};
pub use pod::PodInfo;
pub use resources::{Amounts, PodRequests};
pub use runner::{Settings, run};
pub use snapshot::{PodChange, PodKey, Snapshot};
pub use sources::Sources;
pub use verdict::{Decision, Failure, Plugin};
pub use volumes::VolumePlan;
