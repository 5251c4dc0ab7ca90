//! The conformance comparison: scripts of requests (`steps/*.yaml`), the recorded responses of kube-apiserver
//! (`recorded/*.json`), and the comparison of another server's responses with them.
//!
//! Used by the test (embedded server against recorded responses) and by the example `conformance` (any server; it can
//! also record). Accepted differences are listed in `differences.yaml`.

// The test and the example each leave some items unused.
#![allow(dead_code)]

pub(crate) mod compare;
pub(crate) mod mask;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod transcript;

use std::path::PathBuf;

/// An error of the comparison itself, not a difference between servers.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The directory of scripts, fixtures and recorded responses.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}
