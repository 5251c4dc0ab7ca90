//! The conformance comparison: scripts of requests (`steps/*.yaml`), what a real kube-apiserver answered to them
//! (`recorded/*.json`), and the comparison of another server's answers with those.
//!
//! Shared by the test (embedded server against the recorded answers) and by the `conformance` example (any server, also
//! to record). It judges nothing by itself: what may differ is listed in `differences.yaml`.

// Each of the two users leaves some of it unused.
#![allow(dead_code)]

pub(crate) mod compare;
pub(crate) mod mask;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod transcript;

use std::path::PathBuf;

/// A failure of the comparison itself, as opposed to a difference that it finds.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where scripts, fixtures and recorded answers are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}
