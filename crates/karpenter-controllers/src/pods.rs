//! Queries about the pods of nodes; the rules are in [`karpenter_state::pods`].

pub use karpenter_state::pods::*;

use crate::stores::{BY_NODE, Stores};

/// The number of pods that must be rescheduled if the node is deleted.
pub(crate) fn reschedulable_on(stores: &Stores, node: &str) -> usize {
    stores.pods.by(BY_NODE, node).iter().filter(|pod| is_reschedulable(pod)).count()
}
