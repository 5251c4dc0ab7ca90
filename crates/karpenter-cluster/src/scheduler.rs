//! A kube-scheduler: which node a pod goes to, and why it goes to none.
//!
//! The core is pure: a [`Snapshot`] is built up from API objects, and [`schedule_one`] decides about one pod with the
//! rules, scores and words of kube-scheduler v1.35 in its default configuration. Around it [`run`] follows an API server
//! through mirrors, keeps the queue of pods that wait, and writes down what was decided.
//!
//! What differs from kube-scheduler, on purpose: among equally good nodes the first by name is taken, not a random one;
//! all nodes are looked at, however many there are; claims of dynamic resources, published storage capacity, the
//! translation of in-tree volumes to CSI, images on nodes and ReplicationControllers are not looked at; hints about what
//! might help a pod that waits are coarser. Everything else is compared with the real one by `e2e/compare-scheduling`.

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
