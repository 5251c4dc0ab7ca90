//! What a pod is to Karpenter; see [`karpenter_state::pods`].

pub use karpenter_state::pods::*;
