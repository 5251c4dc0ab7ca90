//! NodeClaims on the embedded cluster, on paused time: what a user sees of them from creation to end.

mod crashes;
mod ends;
mod starts;
mod world;
