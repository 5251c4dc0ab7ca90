//! Tests of EC2NodeClasses, from creation to deletion.

mod assembly;
mod becoming_ready;
mod deletion;
mod failures;
mod hashes;
mod live;
mod profiles;
mod sources;
mod world;
