//! Tests of provisioning on an embedded cluster with simulated time. The kube-scheduler marks pods as unschedulable,
//! and the provisioner creates NodeClaims. The tests themselves launch the nodes and remove their taints.

mod batches;
mod cloud;
mod faults;
mod ignored;
mod nominations;
mod world;
