//! The same permissions for different tools: plain documents, a CloudFormation stack, Terraform's JSON, and commands.

use serde_json::{Map, Value, json};

use super::queue::RETENTION_SECS;
use super::{Policy, RULES, Target, node_role_name, policies, queue_policy};

const NODE_POLICIES: [&str; 4] = [
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
];

/// Spot machines need a role of the account's that AWS names itself. It can be there already, and then cannot be made again.
const SPOT_SERVICE: &str = "spot.amazonaws.com";
const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";
const SPOT_ROLE_HELP: &str =
    "true makes the service-linked role for spot, which fails if the account has used spot before";

fn node_trust(target: &Target) -> Value {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": {"Service": [format!("ec2.{}", target.url_suffix)]},
            "Action": ["sts:AssumeRole"],
        }],
    })
}

fn node_policy_arns(target: &Target) -> Vec<String> {
    NODE_POLICIES.iter().map(|name| format!("arn:{}:iam::aws:policy/{name}", target.partition)).collect()
}

/// Documents by the names of their policies.
pub fn json(target: &Target) -> Value {
    let documents = policies(target).into_iter().map(|policy| (policy.full_name(target), policy.document()));
    Value::Object(documents.collect())
}

/// Wherever a text has one of CloudFormation's variables, the stack fills it in.
fn substituted(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains("${AWS::") => json!({ "Fn::Sub": text }),
        Value::Array(values) => Value::Array(values.into_iter().map(substituted).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, substituted(value))).collect())
        }
        other => other,
    }
}

/// A whole stack: the role of nodes, the controller's policies, the queue and what fills it.
pub fn cloudformation(cluster: &str) -> Value {
    let target = Target {
        cluster: cluster.to_owned(),
        partition: "${AWS::Partition}".to_owned(),
        region: "${AWS::Region}".to_owned(),
        account: "${AWS::AccountId}".to_owned(),
        url_suffix: "${AWS::URLSuffix}".to_owned(),
    };
    let mut resources = Map::new();
    let role = json!({
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": node_role_name(cluster),
            "Path": "/",
            "AssumeRolePolicyDocument": node_trust(&target),
            "ManagedPolicyArns": node_policy_arns(&target),
        },
    });
    resources.insert("KarpenterNodeRole".to_owned(), role);
    for policy in policies(&target) {
        let resource = json!({
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {"ManagedPolicyName": policy.full_name(&target), "PolicyDocument": policy.document()},
        });
        resources.insert(policy.name.to_owned(), resource);
    }
    let queue = json!({
        "Type": "AWS::SQS::Queue",
        "Properties": {
            "QueueName": cluster,
            "MessageRetentionPeriod": RETENTION_SECS,
            "SqsManagedSseEnabled": true,
        },
    });
    resources.insert("KarpenterInterruptionQueue".to_owned(), queue);
    let allowed = json!({
        "Type": "AWS::SQS::QueuePolicy",
        "Properties": {
            "Queues": [{"Ref": "KarpenterInterruptionQueue"}],
            "PolicyDocument": queue_policy(&target),
        },
    });
    resources.insert("KarpenterInterruptionQueuePolicy".to_owned(), allowed);
    for rule in RULES {
        let resource = json!({
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventPattern": rule.pattern(),
                "Targets": [{
                    "Id": "KarpenterInterruptionQueueTarget",
                    "Arn": {"Fn::GetAtt": ["KarpenterInterruptionQueue", "Arn"]},
                }],
            },
        });
        resources.insert(format!("{}Rule", rule.name), resource);
    }
    let spot_role = json!({
        "Type": "AWS::IAM::ServiceLinkedRole",
        "Condition": "MakesSpotRole",
        // Others in the account may have come to need it.
        "DeletionPolicy": "Retain",
        "Properties": {"AWSServiceName": SPOT_SERVICE},
    });
    resources.insert("SpotServiceLinkedRole".to_owned(), spot_role);
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": format!("What Karpenter needs in the account of cluster {cluster}"),
        "Parameters": {"CreateSpotServiceLinkedRole": {
            "Type": "String",
            "AllowedValues": ["true", "false"],
            "Default": "false",
            "Description": SPOT_ROLE_HELP,
        }},
        "Conditions": {"MakesSpotRole": {"Fn::Equals": [{"Ref": "CreateSpotServiceLinkedRole"}, "true"]}},
        "Resources": substituted(Value::Object(resources)),
    })
}

/// Terraform's JSON syntax: to be saved as `karpenter.tf.json`.
pub fn terraform(cluster: &str) -> Value {
    let target = Target {
        cluster: cluster.to_owned(),
        partition: "${data.aws_partition.current.partition}".to_owned(),
        // `name` in version 5 of the provider, `region` in 6, and this in both.
        region: "${data.aws_region.current.id}".to_owned(),
        account: "${data.aws_caller_identity.current.account_id}".to_owned(),
        url_suffix: "${data.aws_partition.current.dns_suffix}".to_owned(),
    };
    let mut of_policies = Map::new();
    for policy in policies(&target) {
        let resource = json!({"name": policy.full_name(&target), "policy": policy.document().to_string()});
        of_policies.insert(terraform_name(policy.name), resource);
    }
    let mut attachments = Map::new();
    for (name, arn) in NODE_POLICIES.iter().zip(node_policy_arns(&target)) {
        let resource = json!({"role": "${aws_iam_role.karpenter_node.name}", "policy_arn": arn});
        attachments.insert(terraform_name(name), resource);
    }
    let (mut rules, mut targets) = (Map::new(), Map::new());
    for rule in RULES {
        let name = terraform_name(rule.name);
        let targeted = format!("${{aws_cloudwatch_event_rule.{name}.name}}");
        let named = format!("Karpenter{}-{cluster}", rule.name);
        rules.insert(name.clone(), json!({"name": named, "event_pattern": rule.pattern().to_string()}));
        targets.insert(
            name,
            json!({
                "rule": targeted,
                "target_id": "KarpenterInterruptionQueueTarget",
                "arn": "${aws_sqs_queue.karpenter.arn}",
            }),
        );
    }
    json!({
        "variable": {"create_spot_slr": {"type": "bool", "default": false, "description": SPOT_ROLE_HELP}},
        "data": {
            "aws_partition": {"current": {}},
            "aws_region": {"current": {}},
            "aws_caller_identity": {"current": {}},
        },
        "resource": {
            "aws_iam_role": {"karpenter_node": {
                "name": node_role_name(cluster),
                "assume_role_policy": node_trust(&target).to_string(),
            }},
            "aws_iam_role_policy_attachment": attachments,
            "aws_iam_policy": of_policies,
            "aws_iam_service_linked_role": {"spot": {
                "count": "${var.create_spot_slr ? 1 : 0}",
                "aws_service_name": SPOT_SERVICE,
            }},
            "aws_sqs_queue": {"karpenter": {
                "name": cluster,
                "message_retention_seconds": RETENTION_SECS,
                "sqs_managed_sse_enabled": true,
            }},
            "aws_sqs_queue_policy": {"karpenter": {
                "queue_url": "${aws_sqs_queue.karpenter.id}",
                "policy": queue_policy(&target).to_string(),
            }},
            "aws_cloudwatch_event_rule": rules,
            "aws_cloudwatch_event_target": targets,
        },
    })
}

/// `KarpenterNodeRole` as `karpenter_node_role`.
pub(super) fn terraform_name(name: &str) -> String {
    let mut out = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && was_lower {
            out.push('_');
        }
        was_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Commands of the AWS CLI, for a shell.
pub fn cli(cluster: &str) -> String {
    let target = Target {
        cluster: cluster.to_owned(),
        partition: "${PARTITION}".to_owned(),
        region: "${REGION}".to_owned(),
        account: "${ACCOUNT}".to_owned(),
        url_suffix: "${URL_SUFFIX}".to_owned(),
    };
    let role = node_role_name(cluster);
    let mut script = String::from(
        "#!/bin/sh\nset -eu\n\
         ACCOUNT=$(aws sts get-caller-identity --query Account --output text)\n\
         PARTITION=$(aws sts get-caller-identity --query Arn --output text | cut -d: -f2)\n\
         REGION=${AWS_REGION:-$(aws configure get region)}\n\
         case \"$PARTITION\" in aws-cn) URL_SUFFIX=amazonaws.com.cn ;; *) URL_SUFFIX=amazonaws.com ;; esac\n",
    );
    script.push_str(&format!(
        "\naws iam get-role --role-name {SPOT_ROLE} >/dev/null 2>&1 ||\n  \
         aws iam create-service-linked-role --aws-service-name {SPOT_SERVICE}\n"
    ));
    let mut document = |command: &str, option: &str, value: &Value| {
        script.push_str(&format!("\n{command} {option} \"$(cat <<EOF\n{value:#}\nEOF\n)\"\n"));
    };
    document(
        &format!("aws iam create-role --role-name '{role}'"),
        "--assume-role-policy-document",
        &node_trust(&target),
    );
    for policy in policies(&target) {
        let command = format!("aws iam create-policy --policy-name '{}'", policy.full_name(&target));
        document(&command, "--policy-document", &policy.document());
    }
    for arn in node_policy_arns(&target) {
        script.push_str(&format!("aws iam attach-role-policy --role-name '{role}' --policy-arn \"{arn}\"\n"));
    }
    let attributes = json!({
        "MessageRetentionPeriod": RETENTION_SECS.to_string(),
        "SqsManagedSseEnabled": "true",
        "Policy": queue_policy(&target).to_string(),
    });
    script.push_str(&format!(
        "\naws sqs create-queue --queue-name '{cluster}' --attributes \"$(cat <<EOF\n{attributes:#}\nEOF\n)\"\n"
    ));
    for rule in RULES {
        let name = format!("Karpenter{}-{cluster}", rule.name);
        script.push_str(&format!(
            "aws events put-rule --name '{name}' --event-pattern '{}'\n\
             aws events put-targets --rule '{name}' --targets \"Id=KarpenterInterruptionQueueTarget,Arn={}\"\n",
            rule.pattern(),
            target.queue_arn(),
        ));
    }
    script
}

impl Policy {
    /// Characters that IAM counts; it allows 6,144 in a managed policy.
    pub fn size(&self) -> usize {
        self.document().to_string().chars().filter(|letter| !letter.is_whitespace()).count()
    }
}
