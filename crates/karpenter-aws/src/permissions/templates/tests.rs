use super::super::{Controller, OidcProvider, RULES, ResourceOptions, RoleName, Trust};
use super::*;

fn target(options: ResourceOptions) -> Target {
    Target {
        options,
        partition: "aws".to_owned(),
        region: "us-west-2".to_owned(),
        account: "111122223333".to_owned(),
        url_suffix: "amazonaws.com".to_owned(),
    }
}

fn statement<'a>(policies: &'a [Policy], id: &str) -> &'a super::super::Statement {
    let mut statements = policies.iter().flat_map(|policy| &policy.statements);
    statements.find(|statement| statement.id == id).expect("a statement")
}

/// Every name that the templates give to a resource, with its length limit.
fn names(options: &ResourceOptions) -> Vec<(String, usize)> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let (stack, plan) = (cloudformation(options), terraform(options));
    let mut found = Vec::new();
    for resource in stack["Resources"].as_object().expect("resources").values() {
        let properties = &resource["Properties"];
        for (key, limit) in [("RoleName", 64), ("ManagedPolicyName", 128), ("QueueName", 80), ("Name", 64)] {
            found.extend(text(&properties[key]).map(|name| (name, limit)));
        }
    }
    for (kind, limit) in [
        ("aws_iam_role", 64),
        ("aws_iam_policy", 128),
        ("aws_sqs_queue", 80),
        ("aws_cloudwatch_event_rule", 64),
    ] {
        for resource in plan["resource"][kind].as_object().expect("resources").values() {
            found.extend(text(&resource["name"]).map(|name| (name, limit)));
        }
    }
    for line in cli(options).lines() {
        for (command, limit) in
            [("role '", 64), ("policy '", 128), ("queue '", 80), ("aws events put-rule --name '", 64)]
        {
            let name = line.strip_prefix(command).and_then(|rest| rest.split('\'').next());
            found.extend(name.map(|name| (name.to_owned(), limit)));
        }
    }
    found
}

#[test]
fn names_are_within_length_limits() {
    for length in [4, 47, 64, 81, 100] {
        let controller = Controller {
            trust: Trust::PodIdentity,
            namespace: "karpenter".to_owned(),
            service_account: "karpenter".to_owned(),
        };
        let options =
            ResourceOptions { controller: Some(controller), ..ResourceOptions::of(&"c".repeat(length)) };
        let names = names(&options);
        // Each of the three formats names two roles, six policies and a queue. Rules are named in two of them, not in
        // CloudFormation.
        assert_eq!(names.len(), 3 * (2 + 6 + 1) + 2 * RULES.len());
        for (name, limit) in names {
            assert!(name.len() <= limit, "{name} has {} characters, {limit} are allowed", name.len());
        }
    }
}

#[test]
fn only_named_roles_can_be_passed() {
    let roles = ["nodes", "team/a/batch"].map(|text| RoleName::parse(text).expect("a role"));
    let options = ResourceOptions { node_roles: roles.into(), ..ResourceOptions::of("shop") };
    let policies = policies(&target(options.clone()));
    assert_eq!(
        statement(&policies, "AllowPassingInstanceRole").resources,
        ["arn:aws:iam::111122223333:role/nodes", "arn:aws:iam::111122223333:role/team/a/batch"]
    );
    let stack = cloudformation(&options);
    let made = &stack["Resources"]["KarpenterNodeRole2"]["Properties"];
    assert_eq!((&made["RoleName"], &made["Path"]), (&json!("batch"), &json!("/team/a/")));
    assert_eq!(stack["Outputs"]["NodeRole2"]["Value"], "batch");
    let plan = terraform(&options);
    assert_eq!(plan["resource"]["aws_iam_role"]["karpenter_node_2"]["path"], "/team/a/");
    let attached = plan["resource"]["aws_iam_role_policy_attachment"].as_object().expect("attachments");
    assert_eq!(attached.len(), 2 * NODE_POLICIES.len());
    assert!(cli(&options).contains("\nrole 'batch' '/team/a/' "));

    let there = ResourceOptions { makes_node_roles: false, ..options };
    let (stack, plan, script) = (cloudformation(&there), terraform(&there), cli(&there));
    assert!(!stack["Resources"].as_object().expect("resources").keys().any(|name| name.contains("NodeRole")));
    assert_eq!(plan["resource"]["aws_iam_role"], Value::Null);
    assert!(!script.contains("\nrole '"), "{script}");
    for text in [stack.to_string(), plan.to_string(), script] {
        assert!(text.contains(":role/team/a/batch"));
    }
}

#[test]
fn custom_queue_and_parameters_are_allowed() {
    let parameters = ["/images/nodes", "arn:aws:ssm:us-west-2:444455556666:parameter/shared"];
    let options = ResourceOptions {
        queue: "interruptions".to_owned(),
        ssm_parameters: parameters.map(ToOwned::to_owned).into(),
        ..ResourceOptions::of("shop")
    };
    let policies = policies(&target(options.clone()));
    assert_eq!(
        statement(&policies, "AllowInterruptionQueueActions").resources,
        ["arn:aws:sqs:us-west-2:111122223333:interruptions"]
    );
    assert_eq!(
        statement(&policies, "AllowSSMReadActions").resources,
        [
            "arn:aws:ssm:us-west-2::parameter/aws/service/*",
            "arn:aws:ssm:us-west-2:111122223333:parameter/images/nodes",
            parameters[1],
        ]
    );
    assert_eq!(cloudformation(&options)["Outputs"]["InterruptionQueue"]["Value"], "interruptions");
    assert!(cli(&options).contains("\nqueue 'interruptions' "));
}

#[test]
fn controller_role_trusts_one_service_account() {
    let plain = cloudformation(&ResourceOptions::of("shop"));
    assert_eq!(plain["Resources"]["KarpenterControllerRole"], Value::Null, "not requested");
    let of = |trust| {
        let controller = Controller {
            trust,
            namespace: "kube-system".to_owned(),
            service_account: "karpenter".to_owned(),
        };
        ResourceOptions { controller: Some(controller), ..ResourceOptions::of("shop") }
    };
    let issuer = "https://oidc.eks.us-west-2.amazonaws.com/id/AB12";
    let by_tokens = of(Trust::Oidc(OidcProvider::parse(issuer).expect("an issuer")));
    let stack = cloudformation(&by_tokens);
    let role = &stack["Resources"]["KarpenterControllerRole"]["Properties"];
    let statement = &role["AssumeRolePolicyDocument"]["Statement"][0];
    let host = "oidc.eks.us-west-2.amazonaws.com/id/AB12";
    let arn = format!("arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:oidc-provider/{host}");
    assert_eq!(statement["Principal"], json!({"Federated": [{"Fn::Sub": arn}]}));
    assert_eq!(
        statement["Condition"]["StringEquals"],
        json!({
            format!("{host}:aud"): "sts.amazonaws.com",
            format!("{host}:sub"): "system:serviceaccount:kube-system:karpenter",
        })
    );
    assert_eq!(role["ManagedPolicyArns"].as_array().map(Vec::len), Some(6));
    assert_eq!(stack["Resources"]["KarpenterPodIdentity"], Value::Null);
    let plan = terraform(&by_tokens);
    assert!(plan["resource"]["aws_iam_role"]["karpenter_controller"].is_object());
    assert_eq!(plan["resource"]["aws_eks_pod_identity_association"], Value::Null);

    let by_pods = of(Trust::PodIdentity);
    let association = &cloudformation(&by_pods)["Resources"]["KarpenterPodIdentity"]["Properties"];
    assert_eq!(
        (&association["Namespace"], &association["ServiceAccount"]),
        (&json!("kube-system"), &json!("karpenter"))
    );
    let plan = terraform(&by_pods);
    let association = &plan["resource"]["aws_eks_pod_identity_association"]["karpenter"];
    assert_eq!(association["role_arn"], "${aws_iam_role.karpenter_controller.arn}");
    let trust = plan["resource"]["aws_iam_role"]["karpenter_controller"]["assume_role_policy"].as_str();
    assert!(trust.expect("a policy").contains("pods.eks.amazonaws.com"));
    assert!(cli(&by_pods).contains("aws eks create-pod-identity-association --cluster-name 'shop'"));
}
