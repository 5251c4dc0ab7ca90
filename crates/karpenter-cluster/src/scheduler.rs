//! A kube-scheduler: which node a pod goes to, and why it goes to none.
//!
//! The core is pure: a [`Snapshot`] is built up from API objects, and [`schedule_one`] decides about one pod with the
//! rules, scores and words of kube-scheduler v1.35 in its default configuration.

mod affinity;
mod cycle;
mod node;
mod pod;
mod preemption;
mod resources;
mod score;
mod selectors;
mod snapshot;
mod spread;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
mod volumes;

pub use cycle::schedule_one;
pub use pod::PodInfo;
pub use resources::{Amounts, PodRequests};
pub use snapshot::{PodChange, PodKey, Snapshot};
pub use verdict::{Decision, Failure, Plugin};
pub use volumes::VolumePlan;
