//! Tests of the lifecycle of NodeClaims on the embedded cluster, with a simulated clock.

mod crashes;
mod ends;
mod starts;
mod world;
