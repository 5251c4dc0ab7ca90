//! A provider whose instances are Node objects: for clusters without a cloud, where kwok or our own kubelets play the
//! machines.
//!
//! Launching chooses the cheapest offering a claim allows and creates the Node after the delay its node class asks for.
//! Names follow from the claim's uid, so a launch that is repeated, even by another process, finds the first machine.
//! What can go wrong in a cloud is injected ([`Faults`]). The machines do nothing by themselves: who makes the nodes
//! ready is not decided here.

mod choice;
mod ec2;
mod faults;
mod naming;
mod node;
mod provider;
mod sickness;
mod unavailable;

pub use choice::Choice;
pub use ec2::{EC2_NODE_CLASS_KIND, Ec2Classes};
pub use faults::{Faults, OfferingPattern, Registration};
pub use naming::node_name;
pub use node::{
    KWOK_MARK, KWOK_MARK_VALUE, PARTITION_LABEL, PARTITION_VALUE, PRICE_LABEL, PROVIDER_ID_PREFIX,
};
pub use provider::{Kwok, NODE_CLASS_KIND};
pub use sickness::{REBOOT_REQUIRED, UNHEALTHY};
pub use unavailable::UNAVAILABLE_FOR;
