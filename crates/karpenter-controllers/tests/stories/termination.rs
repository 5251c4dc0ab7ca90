//! Tests of the termination of nodes, and of the status of NodePools, on the embedded cluster.

mod drain;
mod emptiness;
mod ends;
mod faults;
mod grace;
mod pools;
mod world;
