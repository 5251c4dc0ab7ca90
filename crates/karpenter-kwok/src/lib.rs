//! The kwok provider, whose instances are only Node objects. It is for clusters without a cloud, in which kwok or the
//! simulated kubelets report the status of nodes.
//!
//! A launch chooses the cheapest offering that the NodeClaim allows, and creates the Node after the registration delay
//! of the node class. The name of the Node is derived from the NodeClaim's uid, so a launch that is repeated, even by
//! another process, finds the first instance. Tests inject faults of a cloud ([`Faults`]). The provider does not make
//! nodes ready.
//!
//! Upstream: kwok/cloudprovider/cloudprovider.go

mod choice;
mod ec2;
mod faults;
mod health;
mod naming;
mod node;
mod provider;
mod unavailable;

pub use choice::Choice;
pub use ec2::{EC2_NODE_CLASS_KIND, Ec2Classes};
pub use faults::{Faults, OfferingPattern, Registration};
pub use health::{REBOOT_REQUIRED, UNHEALTHY};
pub use naming::node_name;
pub use node::{
    KWOK_NODE, KWOK_NODE_VALUE, PARTITION_LABEL, PARTITION_VALUE, PRICE_LABEL, PROVIDER_ID_PREFIX,
};
pub use provider::{Kwok, NODE_CLASS_KIND};
pub use unavailable::UNAVAILABLE_FOR;
