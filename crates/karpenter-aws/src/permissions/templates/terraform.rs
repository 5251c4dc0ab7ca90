//! Terraform's JSON syntax.

use serde_json::{Map, Value, json};

use super::super::queue::RETENTION_SECS;
use super::super::{RULES, ResourceOptions, Target, controller_role_name, names, policies, queue_policy};
use super::{NODE_POLICIES, SPOT_ROLE_HELP, SPOT_SERVICE, node_policy_arns, node_trust};

/// Terraform resources by type and name.
#[derive(Default)]
struct Resources(Map<String, Value>);

impl Resources {
    fn add(&mut self, kind: &str, name: impl Into<String>, resource: Value) {
        self.0.entry(kind).or_insert_with(|| json!({}))[name.into()] = resource;
    }
}

/// Builds the resources in Terraform's JSON syntax, for a file `karpenter.tf.json`.
pub fn terraform(options: &ResourceOptions) -> Value {
    let target = Target {
        options: options.clone(),
        partition: "${data.aws_partition.current.partition}".to_owned(),
        // The region is the attribute `name` in version 5 of the Terraform provider, and `region` in version 6. The
        // attribute `id` exists in both.
        region: "${data.aws_region.current.id}".to_owned(),
        account: "${data.aws_caller_identity.current.account_id}".to_owned(),
        url_suffix: "${data.aws_partition.current.dns_suffix}".to_owned(),
    };
    let mut resources = Resources::default();
    for policy in policies(&target) {
        let resource = json!({"name": policy.full_name(&target), "policy": policy.document().to_string()});
        resources.add("aws_iam_policy", terraform_name(policy.name), resource);
    }
    if options.makes_node_roles {
        node_roles(&target, &mut resources);
    }
    for rule in RULES {
        let name = terraform_name(rule.name);
        let made = json!({
            "name": names::rule(&rule, &options.cluster), "event_pattern": rule.pattern().to_string(),
        });
        let targeted = json!({
            "rule": format!("${{aws_cloudwatch_event_rule.{name}.name}}"),
            "target_id": "KarpenterInterruptionQueueTarget",
            "arn": "${aws_sqs_queue.karpenter.arn}",
        });
        resources.add("aws_cloudwatch_event_rule", &*name, made);
        resources.add("aws_cloudwatch_event_target", name, targeted);
    }
    let spot_role = json!({"count": "${var.create_spot_slr ? 1 : 0}", "aws_service_name": SPOT_SERVICE});
    resources.add("aws_iam_service_linked_role", "spot", spot_role);
    let queue = json!({
        "name": options.queue,
        "message_retention_seconds": RETENTION_SECS,
        "sqs_managed_sse_enabled": true,
    });
    resources.add("aws_sqs_queue", "karpenter", queue);
    let allowed = json!({
        "queue_url": "${aws_sqs_queue.karpenter.id}", "policy": queue_policy(&target).to_string(),
    });
    resources.add("aws_sqs_queue_policy", "karpenter", allowed);
    let node_roles: Vec<&str> = options.node_roles.iter().map(|role| role.name.as_str()).collect();
    let mut outputs = json!({
        "karpenter_node_roles": {"value": node_roles},
        "karpenter_interruption_queue": {"value": "${aws_sqs_queue.karpenter.name}"},
    });
    if options.controller.is_some() {
        controller_role(&target, &mut resources);
        outputs["karpenter_controller_role_arn"] =
            json!({"value": "${aws_iam_role.karpenter_controller.arn}"});
    }
    json!({
        "variable": {"create_spot_slr": {"type": "bool", "default": false, "description": SPOT_ROLE_HELP}},
        "data": {
            "aws_partition": {"current": {}},
            "aws_region": {"current": {}},
            "aws_caller_identity": {"current": {}},
        },
        "resource": resources.0,
        "output": outputs,
    })
}

/// Adds the node roles as `karpenter_node`, `karpenter_node_2`, and so on.
fn node_roles(target: &Target, resources: &mut Resources) {
    for (position, role) in target.options.node_roles.iter().enumerate() {
        let number = if position == 0 { String::new() } else { format!("_{}", position + 1) };
        let mut made = json!({"name": role.name, "assume_role_policy": node_trust(target).to_string()});
        if role.path != "/" {
            made["path"] = json!(role.path);
        }
        resources.add("aws_iam_role", format!("karpenter_node{number}"), made);
        for (name, arn) in NODE_POLICIES.iter().zip(node_policy_arns(target)) {
            let attached =
                json!({"role": format!("${{aws_iam_role.karpenter_node{number}.name}}"), "policy_arn": arn});
            let name = terraform_name(name) + &number;
            resources.add("aws_iam_role_policy_attachment", name, attached);
        }
    }
}

fn controller_role(target: &Target, resources: &mut Resources) {
    let Some(controller) = &target.options.controller else { return };
    let role = json!({
        "name": controller_role_name(&target.options.cluster),
        "assume_role_policy": controller.trust_policy(target).to_string(),
    });
    resources.add("aws_iam_role", "karpenter_controller", role);
    for policy in policies(target) {
        let name = terraform_name(policy.name);
        let attached = json!({
            "role": "${aws_iam_role.karpenter_controller.name}",
            "policy_arn": format!("${{aws_iam_policy.{name}.arn}}"),
        });
        resources.add("aws_iam_role_policy_attachment", name, attached);
    }
    if controller.uses_pod_identity() {
        let association = json!({
            "cluster_name": target.options.cluster,
            "namespace": controller.namespace,
            "service_account": controller.service_account,
            "role_arn": "${aws_iam_role.karpenter_controller.arn}",
        });
        resources.add("aws_eks_pod_identity_association", "karpenter", association);
    }
}

/// Converts a name such as `KarpenterNodeRole` to `karpenter_node_role`.
pub(in crate::permissions) fn terraform_name(name: &str) -> String {
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
