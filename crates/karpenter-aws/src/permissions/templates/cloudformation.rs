//! A CloudFormation template.

use serde_json::{Map, Value, json};

use super::super::queue::RETENTION_SECS;
use super::super::{RULES, ResourceOptions, Target, controller_role_name, policies, queue_policy};
use super::{SPOT_ROLE_HELP, SPOT_SERVICE, node_policy_arns, node_trust};

/// Wraps every string that contains a CloudFormation variable in `Fn::Sub`.
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

/// Builds the template with node roles, controller policies and role, interruption queue and event rules.
pub fn cloudformation(options: &ResourceOptions) -> Value {
    let target = Target {
        options: options.clone(),
        partition: "${AWS::Partition}".to_owned(),
        region: "${AWS::Region}".to_owned(),
        account: "${AWS::AccountId}".to_owned(),
        url_suffix: "${AWS::URLSuffix}".to_owned(),
    };
    let cluster = &options.cluster;
    let (mut resources, mut outputs) = (Map::new(), Map::new());
    node_roles(&target, &mut resources, &mut outputs);
    for policy in policies(&target) {
        let resource = json!({
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {"ManagedPolicyName": policy.full_name(&target), "PolicyDocument": policy.document()},
        });
        resources.insert(policy.name.to_owned(), resource);
    }
    controller_role(&target, &mut resources, &mut outputs);
    let queue = json!({
        "Type": "AWS::SQS::Queue",
        "Properties": {
            "QueueName": options.queue,
            "MessageRetentionPeriod": RETENTION_SECS,
            "SqsManagedSseEnabled": true,
        },
    });
    resources.insert("KarpenterInterruptionQueue".to_owned(), queue);
    outputs.insert("InterruptionQueue".to_owned(), json!({"Value": options.queue}));
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
        // Deleting the stack keeps the role, because other users of the account may need it by then.
        "DeletionPolicy": "Retain",
        "Properties": {"AWSServiceName": SPOT_SERVICE},
    });
    resources.insert("SpotServiceLinkedRole".to_owned(), spot_role);
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": format!("IAM roles, queue and rules that Karpenter needs for cluster {cluster}"),
        "Parameters": {"CreateSpotServiceLinkedRole": {
            "Type": "String",
            "AllowedValues": ["true", "false"],
            "Default": "false",
            "Description": SPOT_ROLE_HELP,
        }},
        "Conditions": {"MakesSpotRole": {"Fn::Equals": [{"Ref": "CreateSpotServiceLinkedRole"}, "true"]}},
        "Resources": substituted(Value::Object(resources)),
        "Outputs": outputs,
    })
}

/// Adds the node roles as `KarpenterNodeRole`, `KarpenterNodeRole2`, and so on.
fn node_roles(target: &Target, resources: &mut Map<String, Value>, outputs: &mut Map<String, Value>) {
    for (position, role) in target.options.node_roles.iter().enumerate() {
        let number = if position == 0 { String::new() } else { (position + 1).to_string() };
        outputs.insert(format!("NodeRole{number}"), json!({"Value": role.name}));
        if !target.options.makes_node_roles {
            continue;
        }
        let resource = json!({
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": role.name,
                "Path": role.path,
                "AssumeRolePolicyDocument": node_trust(target),
                "ManagedPolicyArns": node_policy_arns(target),
            },
        });
        resources.insert(format!("KarpenterNodeRole{number}"), resource);
    }
}

fn controller_role(target: &Target, resources: &mut Map<String, Value>, outputs: &mut Map<String, Value>) {
    let Some(controller) = &target.options.controller else { return };
    let attached: Vec<Value> = policies(target).iter().map(|policy| json!({ "Ref": policy.name })).collect();
    let arn = json!({"Fn::GetAtt": ["KarpenterControllerRole", "Arn"]});
    let role = json!({
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": controller_role_name(&target.options.cluster),
            "AssumeRolePolicyDocument": controller.trust_policy(target),
            "ManagedPolicyArns": attached,
        },
    });
    resources.insert("KarpenterControllerRole".to_owned(), role);
    outputs.insert("ControllerRoleArn".to_owned(), json!({ "Value": arn }));
    if controller.uses_pod_identity() {
        let association = json!({
            "Type": "AWS::EKS::PodIdentityAssociation",
            "Properties": {
                "ClusterName": target.options.cluster,
                "Namespace": controller.namespace,
                "ServiceAccount": controller.service_account,
                "RoleArn": arn,
            },
        });
        resources.insert("KarpenterPodIdentity".to_owned(), association);
    }
}
