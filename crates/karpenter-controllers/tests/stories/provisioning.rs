//! Provisioning on an embedded cluster: a real scheduler refuses pods, claims appear, and nothing else happens unless
//! a test makes it happen. Time is simulated.

mod cloud;
mod faults;
mod ignored;
mod nominations;
mod rounds;
mod world;
