//! Classes: from their creation until nothing of them is left.

mod assembly;
mod becoming_ready;
mod deletion;
mod failures;
mod hashes;
mod live;
mod profiles;
mod sources;
mod world;
