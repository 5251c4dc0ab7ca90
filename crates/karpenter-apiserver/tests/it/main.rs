//! All integration tests of this crate, in one binary: linking is a large part of the time of a test run.

mod admission;
mod conformance;
mod custom_kinds;
mod golden;
mod kube_client;
mod kube_runtime;
mod server;
