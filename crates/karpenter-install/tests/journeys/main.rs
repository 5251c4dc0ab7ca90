//! From install through doctor to uninstall, on an embedded cluster with all of Karpenter and simulated machines.

mod doctor;
mod installing;
mod uninstalling;
mod world;
