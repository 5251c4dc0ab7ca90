//! Tests of the format of single log lines.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use karpenter_controllers::COMMIT;
use karpenter_controllers::logs::{LogFormat, PassIds, json as nested};
use karpenter_runtime::object::ObjectKey;
use serde_json::json;

use super::kept::KeptLog;

fn now() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().expect("a time")
}

async fn check(format: LogFormat, controller: &'static str, log: impl FnOnce(), expected: Expect) {
    let captured = KeptLog::start(format, now);
    let pass = PassIds::new(now()).pass(controller, &ObjectKey::new("", "default-x"));
    pass.run(async { log() }).await;
    expected.assert_eq(&captured.text().replace(&format!("\"{COMMIT}\""), "COMMIT"));
}

fn log_launched() {
    tracing::info!(
        target: "karpenter_controllers",
        provider_id = "aws:///a/i-1",
        instance_type = "m5.large",
        allocatable = nested(json!({"cpu": "1930m", "pods": "29"})),
        "launched nodeclaim"
    );
}

fn log_failed() {
    tracing::error!(
        target: "karpenter_controllers",
        pod = "default/web",
        node = None::<&str>,
        count = 3,
        error = "a \"b\"",
        "taint.Key" = "",
        "could not schedule pod"
    );
}

#[tokio::test]
async fn json_line_of_a_pass_has_keys_of_controller_runtime() {
    let expected = expect![[r#"
        {"level":"INFO","time":"2026-01-02T03:04:05.678Z","logger":"controller","message":"launched nodeclaim","commit":COMMIT,"controller":"nodeclaim.lifecycle","controllerGroup":"karpenter.sh","controllerKind":"NodeClaim","NodeClaim":{"name":"default-x"},"namespace":"","name":"default-x","reconcileID":"695735a5-a1dc-8d7c-8002-000000000000","provider-id":"aws:///a/i-1","instance-type":"m5.large","allocatable":{"cpu":"1930m","pods":"29"}}
    "#]];
    check(LogFormat::Json, "nodeclaim.lifecycle", log_launched, expected).await;
}

#[tokio::test]
async fn json_line_of_a_cluster_pass_has_no_object() {
    let expected = expect![[r#"
        {"level":"ERROR","time":"2026-01-02T03:04:05.678Z","logger":"controller","message":"could not schedule pod","commit":COMMIT,"controller":"provisioner","namespace":"","name":"","reconcileID":"695735a5-a1dc-8d7c-8002-000000000000","Pod":{"name":"web","namespace":"default"},"count":3,"error":"a \"b\"","taint.Key":""}
    "#]];
    check(LogFormat::Json, "provisioner", log_failed, expected).await;
}

#[tokio::test]
async fn console_line_quotes_values_with_spaces() {
    let expected = expect![[r#"
        2026-01-02T03:04:05.678Z ERROR could not schedule pod controller=provisioner pod=default/web count=3 error="a \"b\"" taint.Key=""
    "#]];
    check(LogFormat::Console, "provisioner", log_failed, expected).await;
    let expected = expect![[r#"
        2026-01-02T03:04:05.678Z INFO  launched nodeclaim controller=nodeclaim.lifecycle nodeclaim=default-x provider-id=aws:///a/i-1 instance-type=m5.large allocatable={"cpu":"1930m","pods":"29"}
    "#]];
    check(LogFormat::Console, "nodeclaim.lifecycle", log_launched, expected).await;
}
