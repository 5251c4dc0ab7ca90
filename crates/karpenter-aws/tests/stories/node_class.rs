//! Classes: from their creation until nothing of them is left.

mod becoming_ready;
mod deletion;
mod failures;
mod hashes;
mod profiles;
mod sources;
mod world;
