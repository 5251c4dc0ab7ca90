//! All integration tests of this crate, in one binary: linking is a large part of the time of a test run.

mod crds;
mod hashes;
mod pod_requests;
mod robustness;
mod validate;
mod validation_cases;
