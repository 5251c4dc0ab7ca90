//! The lifecycle of NodeClaims on the embedded cluster, on simulated time.

mod crashes;
mod ends;
mod starts;
mod world;
