//! The conformance comparison: scripts of requests (`steps/*.yaml`), kube-apiserver's recorded responses
//! (`recorded/*.json`), and the comparison of another server's responses with these.
//!
//! The test uses this module to compare the embedded server with recorded responses; the example `conformance` uses it
//! for any server, and can record responses. `differences.yaml` lists the differences that are accepted.

// The test and the example each use only a part of the items.
#![allow(dead_code)]

pub(crate) mod compare;
pub(crate) mod mask;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod transcript;

use std::path::PathBuf;

/// An error of the comparison itself, as opposed to a difference between servers.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The directory that contains scripts, fixtures and recorded responses.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}
