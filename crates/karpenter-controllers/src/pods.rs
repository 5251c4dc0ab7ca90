//! Re-exports the functions about pods in [`karpenter_state::pods`], and defines the key of a pod in its store.

use karpenter_runtime::object::ObjectKey;
use karpenter_state::pod::Pod;
pub use karpenter_state::pods::*;

/// Namespace and name of a pod.
pub fn key_of_pod(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.namespace(), &*pod.name)
}
