//! Tests of the operator with the completely built provider, an embedded cluster, and the AWS fake, whose instances
//! boot: from pending pods to nodes, and until the nodes are deleted.

mod inflate;
mod legacy;
mod pages;
mod partitions;
mod world;
mod zonal_shift;
