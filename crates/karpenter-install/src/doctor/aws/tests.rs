use karpenter_runtime::clock::Clock;

use super::*;
use crate::doctor::{Finding, Level};
use karpenter_aws::fake::{Call, FakeAws};
use serde_json::json;
use std::sync::Arc;

fn class() -> Value {
    let tags = json!([{"tags": {"karpenter.sh/discovery": "cluster"}}]);
    json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"subnetSelectorTerms": tags, "securityGroupSelectorTerms": tags, "role": "KarpenterNodeRole-cluster",
            "amiSelectorTerms": [{"alias": "al2023@latest"}]}})
}

fn options() -> AwsOptions {
    AwsOptions {
        region: "us-east-1".to_owned(),
        cluster_name: "cluster".to_owned(),
        queue: "queue".to_owned(),
    }
}

fn pool(values: &[&str]) -> Value {
    json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": values}]}}}})
}

fn cloud() -> Arc<FakeAws> {
    let cloud =
        FakeAws::new(Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time")), "us-east-1");
    cloud.world(|world| world.queues.insert("queue".to_owned(), Vec::new()));
    cloud
}

async fn examine(cloud: &Arc<FakeAws>, options: &AwsOptions, class: Value) -> Vec<Finding> {
    findings(&gather(&cloud.apis(), options, &[class], &[pool(&["spot"])]).await)
}

fn worst(found: &[Finding], check: &str) -> (Level, String) {
    let of_check = found.iter().filter(|finding| finding.check == check);
    let worst = of_check.max_by_key(|finding| finding.level).unwrap_or_else(|| panic!("{check}: {found:?}"));
    (worst.level, worst.message.clone())
}

#[tokio::test(start_paused = true)]
async fn valid_account_has_no_faults() {
    let found = examine(&cloud(), &options(), class()).await;
    assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:#?}");
    assert!(worst(&found, "aws-subnets").1.contains("selects"), "{found:?}");
    assert!(worst(&found, "spot-role").1.contains("AWSServiceRoleForEC2Spot"));
}

#[tokio::test(start_paused = true)]
async fn without_credentials_no_further_calls_are_made() {
    let cloud = cloud();
    cloud.fail_always(Call::CheckAccess, Some(AwsError::no_credentials("no provider in the chain")));
    let found = examine(&cloud, &options(), class()).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(worst(&found, "aws-credentials").0, Level::Fail);
    assert_eq!(cloud.calls(), [Call::CheckAccess]);
}

#[tokio::test(start_paused = true)]
async fn every_aws_fault_is_reported() {
    type Damage = fn(&FakeAws, &mut AwsOptions, &mut Value);
    let cases: [(&str, Level, &str, Damage); 11] = [
        ("aws-cluster", Level::Warn, "has no cluster", |_, options, _| {
            options.cluster_name = "other".to_owned()
        }),
        ("aws-cluster", Level::Warn, "not known", |_, options, _| options.cluster_name = String::new()),
        ("aws-queue", Level::Fail, "not found in", |_, options, _| options.queue = "nowhere".to_owned()),
        ("aws-queue", Level::Warn, "no interruption queue", |_, options, _| options.queue = String::new()),
        ("aws-queue", Level::Fail, "AccessDenied", |cloud, _, _| {
            cloud.fail_always(Call::GetQueueUrl, Some(AwsError::new("AccessDenied", "no")));
        }),
        ("aws-subnets", Level::Fail, "selects no subnets", |_, _, class| {
            class["spec"]["subnetSelectorTerms"] = json!([{"tags": {"karpenter.sh/discovery": "typo"}}]);
        }),
        ("aws-subnets", Level::Warn, "no free IP addresses", |cloud, _, _| {
            cloud.world(|world| {
                world.subnets.values_mut().next().expect("one").available_ip_count = 0;
            });
        }),
        ("aws-security-groups", Level::Fail, "selects no security groups", |_, _, class| {
            class["spec"]["securityGroupSelectorTerms"] =
                json!([{"tags": {"karpenter.sh/discovery": "typo"}}]);
        }),
        ("aws-security-groups", Level::Fail, "another VPC", |cloud, _, _| {
            cloud.world(|world| {
                world.security_groups.values_mut().next().expect("one").vpc_id =
                    Some("vpc-elsewhere".to_owned());
            });
        }),
        ("aws-instance-profile", Level::Fail, "neither", |_, _, class| class["spec"]["role"] = Value::Null),
        ("aws-instance-profile", Level::Fail, "missing", |_, _, class| {
            class["spec"]["role"] = Value::Null;
            class["spec"]["instanceProfile"] = json!("missing");
        }),
    ];
    for (check, level, text, damage) in cases {
        let cloud = cloud();
        let (mut options, mut class) = (options(), class());
        damage(&cloud, &mut options, &mut class);
        let found = examine(&cloud, &options, class).await;
        let (found_level, message) = worst(&found, check);
        assert_eq!(found_level, level, "{check} {text}: {found:#?}");
        assert!(message.contains(text), "{check} {text}: {message}");
    }
}

#[test]
fn pool_allows_spot_unless_requirements_exclude_it() {
    assert!(wants_spot(&json!({})));
    assert!(wants_spot(&pool(&["spot", "on-demand"])));
    assert!(!wants_spot(&pool(&["on-demand"])));
    let without = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"]}]}}}});
    assert!(!wants_spot(&without));
}
