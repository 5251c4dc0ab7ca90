use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn target() -> Target {
    Target {
        options: ResourceOptions::of("shop"),
        partition: "aws".to_owned(),
        region: "us-west-2".to_owned(),
        account: "111122223333".to_owned(),
        url_suffix: "amazonaws.com".to_owned(),
    }
}

/// An authorization request that the test evaluates against the policies.
#[derive(Default, Clone)]
struct Request {
    action: &'static str,
    resource: String,
    facts: BTreeMap<String, Vec<String>>,
}

impl Request {
    fn new(action: &'static str, resource: &str) -> Self {
        Self { action, resource: resource.to_owned(), facts: BTreeMap::new() }
            .with("aws:RequestedRegion", &["us-west-2"])
    }

    fn with(mut self, key: &str, values: &[&str]) -> Self {
        self.facts.insert(key.to_owned(), values.iter().map(ToString::to_string).collect());
        self
    }

    fn tagged(self, side: &str, tags: &[(&str, &str)]) -> Self {
        tags.iter().fold(self, |request, (key, value)| request.with(&format!("aws:{side}/{key}"), &[value]))
    }
}

/// Whether a text matches a pattern in which `*` stands for any text, as in IAM.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(after, &rest[at..]))
        }),
    }
}

fn holds(condition: &Condition, request: &Request) -> bool {
    let values = request.facts.get(&condition.key);
    let any = |value: &String| condition.values.iter().any(|wanted| wanted == value);
    let like = |value: &String| condition.values.iter().any(|wanted| matches(wanted, value));
    match condition.operator {
        "StringEquals" => values.is_some_and(|values| values.iter().any(any)),
        "StringLike" => values.is_some_and(|values| values.iter().any(like)),
        "StringEqualsIfExists" => values.is_none_or(|values| values.iter().any(any)),
        "ForAllValues:StringEquals" => values.is_none_or(|values| values.iter().all(any)),
        other => panic!("unknown operator {other}"),
    }
}

fn is_allowed(request: &Request) -> bool {
    policies(&target()).iter().flat_map(|policy| &policy.statements).any(|statement| {
        statement.actions.contains(&request.action)
            && statement.resources.iter().any(|pattern| matches(pattern, &request.resource))
            && statement.conditions.iter().all(|condition| holds(condition, request))
    })
}

const OWNED: (&str, &str) = ("kubernetes.io/cluster/shop", "owned");
const NAMED: (&str, &str) = ("eks:eks-cluster-name", "shop");
const POOL: (&str, &str) = ("karpenter.sh/nodepool", "default");
const CLASS: (&str, &str) = ("karpenter.k8s.aws/ec2nodeclass", "default");
const REGION: (&str, &str) = ("topology.kubernetes.io/region", "us-west-2");

fn ec2(resource: &str) -> String {
    let account =
        if resource.starts_with("image/") || resource.starts_with("snapshot/") { "" } else { "111122223333" };
    format!("arn:aws:ec2:us-west-2:{account}:{resource}")
}

fn iam(resource: &str) -> String {
    format!("arn:aws:iam::111122223333:{resource}")
}

/// The authorization requests of a launch: one for every resource that the launch uses or creates.
fn launch(action: &'static str, made: &[&str]) -> Vec<Request> {
    let used = ["image/ami-1", "snapshot/snap-1", "security-group/sg-1", "subnet/subnet-1"];
    let also = ["capacity-reservation/cr-1", "placement-group/pg"];
    let mut requests: Vec<Request> =
        used.iter().chain(&also).map(|resource| Request::new(action, &ec2(resource))).collect();
    requests.push(
        Request::new(action, &ec2("launch-template/lt-1"))
            .tagged("ResourceTag", &[OWNED, NAMED, POOL, CLASS]),
    );
    for resource in made {
        requests
            .push(Request::new(action, &ec2(resource)).tagged("RequestTag", &[OWNED, NAMED, POOL, CLASS]));
        let creation = action.trim_start_matches("ec2:");
        requests.push(
            Request::new("ec2:CreateTags", &ec2(resource))
                .tagged("RequestTag", &[OWNED, NAMED, POOL, CLASS])
                .with("ec2:CreateAction", &[creation]),
        );
    }
    requests.push(pass_role());
    requests
}

fn pass_role() -> Request {
    Request::new("iam:PassRole", &iam("role/KarpenterNodeRole-shop"))
        .with("iam:PassedToService", &["ec2.amazonaws.com"])
}

fn of_profile(action: &'static str) -> Request {
    let profile = iam("instance-profile/karpenter/us-west-2/shop/uid/shop_1");
    Request::new(action, &profile).tagged("ResourceTag", &[OWNED, NAMED, REGION, CLASS])
}

/// The authorization requests that IAM evaluates for a call.
fn requests(call: &Call) -> Vec<Request> {
    let machine = ["instance/i-1", "volume/vol-1", "network-interface/eni-1"];
    let ours = |action, resource: &str| {
        vec![Request::new(action, &ec2(resource)).tagged("ResourceTag", &[OWNED, NAMED, POOL, CLASS])]
    };
    let of_creation = |action: &'static str| {
        let profile = iam("instance-profile/karpenter/us-west-2/shop/uid/shop_1");
        Request::new(action, &profile).tagged("RequestTag", &[OWNED, NAMED, REGION, CLASS])
    };
    let cluster = "arn:aws:eks:us-west-2:111122223333:cluster/shop";
    let queue = "arn:aws:sqs:us-west-2:111122223333:shop";
    match call.name {
        "ec2:CreateFleet" => {
            let made: Vec<&str> =
                machine.into_iter().chain(["fleet/fleet-1", "spot-instances-request/sir-1"]).collect();
            [launch("ec2:CreateFleet", &made), launch("ec2:RunInstances", &made)].concat()
        }
        "ec2:RunInstances" => launch("ec2:RunInstances", &machine),
        "ec2:CreateLaunchTemplate" => {
            let template = ec2("launch-template/lt-1");
            // The dry run of a node class uses a launch template whose NodePool tag is empty.
            let of_nobody = [OWNED, NAMED, (POOL.0, ""), CLASS];
            vec![
                Request::new("ec2:CreateLaunchTemplate", &template).tagged("RequestTag", &of_nobody),
                Request::new("ec2:CreateTags", &template)
                    .tagged("RequestTag", &of_nobody)
                    .with("ec2:CreateAction", &["CreateLaunchTemplate"]),
                pass_role(),
            ]
        }
        "ec2:DeleteLaunchTemplate" => ours("ec2:DeleteLaunchTemplate", "launch-template/lt-1"),
        "ec2:TerminateInstances" => ours("ec2:TerminateInstances", "instance/i-1"),
        "ec2:CreateTags" => ours("ec2:CreateTags", "instance/i-1")
            .into_iter()
            .map(|request| {
                request
                    .tagged("RequestTag", &[NAMED, ("Name", "node"), ("karpenter.sh/nodeclaim", "claim")])
                    .with("aws:TagKeys", &["Name", "karpenter.sh/nodeclaim", "eks:eks-cluster-name"])
            })
            .collect(),
        "iam:CreateInstanceProfile" => {
            // Upstream's policies also require that the resource has the tags already. A resource that is created with
            // tags has them at once.
            let born = of_creation("iam:TagInstanceProfile");
            vec![
                of_creation("iam:CreateInstanceProfile"),
                born.tagged("ResourceTag", &[OWNED, NAMED, REGION, CLASS]),
            ]
        }
        "iam:AddRoleToInstanceProfile" => vec![of_profile("iam:AddRoleToInstanceProfile"), pass_role()],
        "iam:RemoveRoleFromInstanceProfile" => vec![of_profile("iam:RemoveRoleFromInstanceProfile")],
        "iam:DeleteInstanceProfile" => vec![of_profile("iam:DeleteInstanceProfile")],
        "iam:GetInstanceProfile" => vec![of_profile("iam:GetInstanceProfile")],
        "eks:DescribeCluster" => vec![Request::new("eks:DescribeCluster", cluster)],
        "arc-zonal-shift:GetManagedResource" => {
            let call = Request::new("arc-zonal-shift:GetManagedResource", "*");
            vec![call.with("arc-zonal-shift:ResourceIdentifier", &[cluster])]
        }
        "ssm:GetParameter" => {
            let image = "arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami/1.35/x/image_id";
            vec![Request::new("ssm:GetParameter", image)]
        }
        name if name.starts_with("sqs:") => vec![Request::new(call.actions[0], queue)],
        _ => vec![Request::new(call.actions[0], "*")],
    }
}

#[test]
fn policies_allow_every_call() {
    for call in CALLS {
        let requests = requests(call);
        let asked: BTreeSet<&str> = requests.iter().map(|request| request.action).collect();
        assert_eq!(asked, call.actions.iter().copied().collect(), "{}", call.name);
        for request in requests {
            assert!(is_allowed(&request), "{}: {} on {}", call.name, request.action, request.resource);
        }
    }
}

#[test]
fn policies_grant_no_unneeded_action() {
    let needed: BTreeSet<&str> = CALLS.iter().flat_map(|call| call.actions).copied().collect();
    let statements: Vec<Statement> =
        policies(&target()).into_iter().flat_map(|policy| policy.statements).collect();
    let granted: BTreeSet<&str> =
        statements.iter().flat_map(|statement| &statement.actions).copied().collect();
    assert_eq!(granted, needed);
    assert!(granted.iter().all(|action| !action.contains('*')));
}

#[test]
fn policies_deny_changes_to_foreign_resources() {
    let theirs = ("kubernetes.io/cluster/other", "owned");
    let instance = ec2("instance/i-1");
    let refused = [
        Request::new("ec2:TerminateInstances", &instance),
        Request::new("ec2:TerminateInstances", &instance).tagged("ResourceTag", &[theirs, POOL]),
        Request::new("ec2:TerminateInstances", &instance).tagged("ResourceTag", &[OWNED]),
        Request::new("ec2:RunInstances", &instance).tagged("RequestTag", &[theirs, NAMED, POOL]),
        Request::new("ec2:RunInstances", &instance).tagged("RequestTag", &[OWNED, POOL]),
        Request::new("ec2:RunInstances", &ec2("launch-template/lt-1")).tagged("ResourceTag", &[theirs, POOL]),
        Request::new("ec2:DeleteLaunchTemplate", &ec2("launch-template/lt-1"))
            .tagged("ResourceTag", &[theirs, POOL]),
        // On existing instances, the controller may set only the tags `Name`, `karpenter.sh/nodeclaim` and
        // `eks:eks-cluster-name`, and the last one only to the name of its own cluster.
        Request::new("ec2:CreateTags", &instance)
            .tagged("ResourceTag", &[OWNED, POOL])
            .with("aws:TagKeys", &["kubernetes.io/cluster/other"]),
        Request::new("ec2:CreateTags", &instance)
            .tagged("ResourceTag", &[OWNED, POOL])
            .tagged("RequestTag", &[(NAMED.0, "other")])
            .with("aws:TagKeys", &[NAMED.0]),
        Request::new("ec2:CreateTags", &ec2("volume/vol-1"))
            .tagged("ResourceTag", &[OWNED, POOL])
            .with("aws:TagKeys", &["Name"]),
        Request::new("ec2:CreateTags", &instance)
            .tagged("RequestTag", &[OWNED, NAMED, POOL])
            .with("ec2:CreateAction", &["CreateImage"]),
        Request::new("iam:PassRole", &iam("role/Admin")).with("iam:PassedToService", &["ec2.amazonaws.com"]),
        Request::new("iam:PassRole", &iam("role/KarpenterNodeRole-shop"))
            .with("iam:PassedToService", &["lambda.amazonaws.com"]),
        Request::new("iam:DeleteInstanceProfile", &iam("instance-profile/x"))
            .tagged("ResourceTag", &[theirs, REGION, CLASS]),
        Request::new("iam:CreateInstanceProfile", &iam("instance-profile/x"))
            .tagged("RequestTag", &[OWNED, NAMED, CLASS]),
        // The controller must not be able to take over an instance profile of another cluster by tagging it.
        Request::new("iam:TagInstanceProfile", &iam("instance-profile/x"))
            .tagged("RequestTag", &[OWNED, NAMED, REGION, CLASS]),
        Request::new("eks:DescribeCluster", "arn:aws:eks:us-west-2:111122223333:cluster/other"),
        Request::new("arc-zonal-shift:GetManagedResource", "*").with(
            "arc-zonal-shift:ResourceIdentifier",
            &["arn:aws:eks:us-west-2:111122223333:cluster/other"],
        ),
        Request::new("sqs:ReceiveMessage", "arn:aws:sqs:us-west-2:111122223333:other"),
        Request::new("sqs:SendMessage", "arn:aws:sqs:us-west-2:111122223333:shop"),
        Request::new("ssm:GetParameter", "arn:aws:ssm:us-west-2:111122223333:parameter/secret"),
        Request::new("ec2:DescribeInstances", "*").with("aws:RequestedRegion", &["eu-west-1"]),
        Request::new("ec2:RunInstances", "arn:aws:ec2:eu-west-1:111122223333:subnet/subnet-1"),
    ];
    for request in refused {
        assert!(!is_allowed(&request), "{} on {} {:?}", request.action, request.resource, request.facts);
    }
}

/// The doc comments of the traits in `api` name the AWS calls. The table must have the same calls.
#[test]
fn call_table_equals_doc_comments_of_traits() {
    let sources = [
        include_str!("../api/ec2.rs"),
        include_str!("../api/eks.rs"),
        include_str!("../api/iam.rs"),
        include_str!("../api/pricing.rs"),
        include_str!("../api/sqs.rs"),
        include_str!("../api/ssm.rs"),
        include_str!("../api/zonal_shift.rs"),
    ];
    let mut documented = BTreeSet::new();
    for source in sources {
        let of_trait = source.split("\npub trait ").nth(1).and_then(|rest| rest.split("\n}").next());
        let of_trait = of_trait.expect("a trait");
        let mut documentation = String::new();
        for line in of_trait.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                documentation.push_str(text);
            } else if line.starts_with("fn ") {
                let call = documentation.split('`').nth(1).filter(|call| call.contains(':'));
                documented.insert(call.unwrap_or_else(|| panic!("{line} does not say its call")).to_owned());
                documentation.clear();
            }
        }
    }
    let listed: BTreeSet<String> = CALLS.iter().map(|call| call.name.to_owned()).collect();
    assert_eq!(documented, listed);
}

/// This crate does not depend on karpenter-aws-sdk, so the test finds that crate's AWS calls in its source text. There,
/// each call begins with the client, which is the field `0` of a tuple struct.
#[test]
fn call_table_equals_calls_of_sdk_crate() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../karpenter-aws-sdk/src");
    let mut made = BTreeSet::new();
    for (service, files) in [
        (
            "ec2",
            &["ec2", "ec2/fleets", "ec2/instances", "ec2/launch_templates", "ec2/places", "ec2/type_infos"][..],
        ),
        ("eks", &["eks"]),
        ("iam", &["iam"]),
        ("pricing", &["pricing"]),
        ("sqs", &["sqs"]),
        ("ssm", &["ssm"]),
        ("arc-zonal-shift", &["zonal_shift"]),
    ] {
        for file in files {
            let source = std::fs::read_to_string(folder.join(file).with_extension("rs")).expect("a source");
            let source: String = source.split_whitespace().collect();
            for rest in source.split(".0.").skip(1) {
                let method: String = rest
                    .chars()
                    .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                    .collect();
                let operation: String = method
                    .split('_')
                    .filter_map(|word| word.split_at_checked(1))
                    .map(|(first, others)| first.to_ascii_uppercase() + others)
                    .collect();
                // The call DeleteMessageBatch needs the permission sqs:DeleteMessage.
                made.insert(format!("{service}:{}", operation.trim_end_matches("Batch")));
            }
        }
    }
    let listed: BTreeSet<String> = CALLS.iter().map(|call| call.name.to_owned()).collect();
    assert_eq!(made, listed);
}

#[test]
fn names_in_policies_equal_names_in_code() {
    assert_eq!(crate::tagging::TAG_CLUSTER, NAMED.0);
    assert_eq!(karpenter_api::labels::NODEPOOL, POOL.0);
    assert_eq!(karpenter_api::labels::AWS_NODE_CLASS, CLASS.0);
    assert_eq!(karpenter_api::labels::REGION, REGION.0);
}

#[test]
fn event_rules_match_messages_of_the_parser() {
    use crate::interruption::message::{Kind, parse};
    for rule in RULES {
        let detail = json!({
            "instance-id": "i-1", "state": "stopping", "service": "EC2", "eventTypeCategory": "scheduledChange",
            "affectedEntities": [{"entityValue": "i-1"}],
        });
        let body = json!({
            "version": "0", "source": rule.source, "detail-type": rule.detail_type, "detail": detail,
        });
        let message = parse(&body.to_string()).expect("a message");
        assert_ne!(message.kind, Kind::NoOp, "{}", rule.name);
        assert_eq!(message.instance_ids, ["i-1"]);
    }
}

#[test]
fn policies_are_within_iam_size_limit() {
    let longest = Target { options: ResourceOptions::of(&"c".repeat(100)), ..target() };
    for policy in policies(&longest) {
        assert!(policy.size() <= 6_144, "{}: {}", policy.name, policy.size());
        assert!(policy.full_name(&longest).len() <= 128, "{}", policy.name);
    }
}

#[test]
fn all_formats_have_the_same_permissions() {
    let stack = cloudformation(&ResourceOptions::of("shop")).to_string();
    let plan = terraform(&ResourceOptions::of("shop")).to_string();
    let script = cli(&ResourceOptions::of("shop"));
    let documents = json(&target()).to_string();
    for call in CALLS {
        for action in call.actions {
            for (name, text) in
                [("cloudformation", &stack), ("terraform", &plan), ("cli", &script), ("json", &documents)]
            {
                assert!(text.contains(action), "{action} is not in {name}");
            }
        }
    }
    assert!(stack.contains(
        r#"{"Fn::Sub":"arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/shop"}"#
    ));
    assert!(!plan.contains("AWS::") && !script.contains("AWS::") && !documents.contains("${"));
    assert!(script.starts_with("#!/bin/sh\nset -eu\n"));
    // CloudFormation cannot replace variables in condition keys, so the cluster name is written as a value.
    assert!(stack.contains("aws:ResourceTag/kubernetes.io/cluster/shop"));
}

/// An account that has used spot before has the service-linked role, and creating it again would fail.
#[test]
fn spot_service_linked_role_is_created_only_on_request() {
    let stack = cloudformation(&ResourceOptions::of("shop"));
    let role = &stack["Resources"]["SpotServiceLinkedRole"];
    assert_eq!(role["Properties"]["AWSServiceName"], "spot.amazonaws.com");
    let condition = role["Condition"].as_str().expect("a condition");
    assert!(stack["Conditions"][condition].is_object());
    assert_eq!(stack["Parameters"]["CreateSpotServiceLinkedRole"]["Default"], "false");
    let plan = terraform(&ResourceOptions::of("shop"));
    let role = &plan["resource"]["aws_iam_service_linked_role"]["spot"];
    assert_eq!(role["count"], "${var.create_spot_slr ? 1 : 0}");
    assert_eq!(plan["variable"]["create_spot_slr"]["default"], false);
    let script = cli(&ResourceOptions::of("shop"));
    let (look, make) = (script.find("get-role"), script.find("create-service-linked-role"));
    assert!(look.is_some() && look < make, "{script}");
}

/// A target whose account id, region and partition are template variables.
fn left_open() -> Target {
    Target {
        options: ResourceOptions::of("${cluster}"),
        partition: "${partition}".to_owned(),
        region: "${region}".to_owned(),
        account: "${account}".to_owned(),
        url_suffix: "amazonaws.com".to_owned(),
    }
}

fn of_terraform_module() -> Value {
    serde_json::from_str(include_str!("../../../../packaging/terraform/policies.json")).expect("JSON")
}

/// The Terraform module has the same policies, with its own variables.
#[test]
fn terraform_module_has_the_same_policies() {
    assert!(
        of_terraform_module() == json(&left_open()),
        "packaging/terraform/policies.json should hold this:\n{:#}",
        json(&left_open())
    );
}

/// The statements by Sid, in the form of `testdata/upstream-policies.json`: lists are sorted, and a single value is a
/// list of one.
fn facts(documents: &Value) -> BTreeMap<String, Value> {
    let list = |value: &Value| {
        let mut values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        values.sort_by_key(ToString::to_string);
        Value::Array(values)
    };
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut facts = BTreeMap::new();
    for document in object(documents).values() {
        for statement in document["Statement"].as_array().expect("statements") {
            let conditions: Map<String, Value> = object(&statement["Condition"])
                .into_iter()
                .map(|(operator, keys)| {
                    let keys = object(&keys).into_iter().map(|(key, value)| (key, list(&value)));
                    (operator, Value::Object(keys.collect()))
                })
                .collect();
            let fact = json!({
                "effect": statement["Effect"],
                "actions": list(&statement["Action"]),
                "resources": list(&statement["Resource"]),
                "conditions": conditions,
            });
            let sid = statement["Sid"].as_str().expect("a Sid").to_owned();
            assert!(facts.insert(sid.clone(), fact).is_none(), "{sid} occurs twice");
        }
    }
    facts
}

/// Every statement must equal upstream's. The EKS Blueprints add-on compares its statements with the same table
/// (packaging/eks-blueprints/test).
#[test]
fn every_statement_equals_upstream() {
    let upstream: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../testdata/upstream-policies.json")).expect("JSON");
    for (name, documents) in [("policies", json(&left_open())), ("terraform", of_terraform_module())] {
        let ours = facts(&documents);
        let sids = |table: &BTreeMap<String, Value>| table.keys().cloned().collect::<Vec<_>>();
        assert_eq!(sids(&ours), sids(&upstream), "{name}");
        for (sid, fact) in &upstream {
            assert_eq!(&ours[sid], fact, "{name}: {sid}");
        }
    }
}

#[test]
fn terraform_names_are_snake_case() {
    for (name, expected) in [
        ("KarpenterNodeRole", "karpenter_node_role"),
        ("AmazonEKS_CNI_Policy", "amazon_eks_cni_policy"),
        ("SpotInterruption", "spot_interruption"),
    ] {
        assert_eq!(super::templates::terraform_name(name), expected);
    }
}
