//! Tests of provisioning on an embedded cluster: kube-scheduler marks pods unschedulable and NodeClaims are created.
//! Tests launch and open nodes themselves. Time is simulated.

mod batches;
mod cloud;
mod faults;
mod ignored;
mod nominations;
mod world;
