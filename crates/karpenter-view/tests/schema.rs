//! Tests that the JSON Schema of every document equals the file in this repository. A change of such a file is a change
//! of the API; fields may only be added. `UPDATE_EXPECT=1 cargo test -p karpenter-view` writes the files.

use expect_test::expect_file;
use karpenter_view::{NodeClaimDocument, NodeDocument, NodePoolDocument, PodDocument};
use schemars::{JsonSchema, schema_for};

fn schema<T: JsonSchema>() -> String {
    let mut text = serde_json::to_string_pretty(&schema_for!(T)).expect("a schema is JSON");
    text.push('\n');
    text
}

#[test]
fn schema_of_pod_document_is_stable() {
    expect_file!["schema/pod.json"].assert_eq(&schema::<PodDocument>());
}

#[test]
fn schema_of_node_document_is_stable() {
    expect_file!["schema/node.json"].assert_eq(&schema::<NodeDocument>());
}

#[test]
fn schema_of_node_claim_document_is_stable() {
    expect_file!["schema/nodeclaim.json"].assert_eq(&schema::<NodeClaimDocument>());
}

#[test]
fn schema_of_node_pool_document_is_stable() {
    expect_file!["schema/nodepool.json"].assert_eq(&schema::<NodePoolDocument>());
}
