//! Tests of the v1alpha5 API with the binary: `convert`, `lint`, its CustomResourceDefinitions on an API server, and
//! the example `three-pools`.

mod convert;
mod definitions;
mod lint;
mod three_pools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::plan::run;

pub(crate) fn karpenter(arguments: &[&str], stdin: &str) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_karpenter")).args(arguments), stdin)
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    let read = karpenter_api::manifest::read("output", text);
    assert_eq!(read.errors, []);
    read.documents.into_iter().map(|document| document.value).collect()
}

/// The path of a published manifest or of its expected result.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../karpenter-legacy/tests/fixtures").join(name)
}

pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/three-pools").join(name)
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
