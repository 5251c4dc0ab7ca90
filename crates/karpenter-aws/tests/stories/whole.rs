//! Everything together: the operator with the assembled provider, on an embedded cluster and an in-process AWS whose
//! machines boot. From pods that wait to machines and back.

mod inflate;
mod legacy;
mod pages;
mod partitions;
mod world;
mod zonal_shift;
