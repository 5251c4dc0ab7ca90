//! What is done with the Nodes of claims: a deleted one is emptied and its machine ended before the object may go, and
//! every one carries the label of its node class.
//!
//! Nodes without that label and without a claim of ours are somebody else's and are never written. Deciding that a
//! node should go is not done here.

pub mod eviction;
pub mod hydration;
pub mod legacy_repair;
pub mod repair;
pub mod termination;

pub(crate) use eviction::annotation_notice;
pub use eviction::{EvictionQueue, Evictions};
pub use hydration::NodeHydration;
pub use legacy_repair::LegacyRepair;
pub use termination::NodeTermination;
pub(crate) use termination::claim_of;
