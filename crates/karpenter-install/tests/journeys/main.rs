//! Scenario tests of `install`, `doctor` and `uninstall`, on an embedded cluster with all controllers and simulated
//! instances.

mod doctor;
mod installing;
mod uninstalling;
mod world;
