//! Provisioning on an embedded cluster: a real scheduler refuses pods, claims appear, and nothing else happens unless
//! a test makes it happen. Time is simulated.

mod cloud;
#[path = "../kit/embedded.rs"]
mod embedded;
mod nominations;
mod rounds;
mod world;
