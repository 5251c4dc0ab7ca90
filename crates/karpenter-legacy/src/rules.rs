//! What the old admission webhooks refused, checked before anything is converted: an object that never worked has no
//! meaning to carry over. All mistakes of an object are reported, not only the first.

mod kubelet;
mod provider;
mod provisioner;

pub(crate) use kubelet::check as check_kubelet;
pub(crate) use provider::{Place, check as check_provider};
pub(crate) use provisioner::check as check_provisioner;
