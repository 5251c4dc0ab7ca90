//! The IAM policies of the controller, and a table of the AWS calls that the provider makes. Tests check that the
//! policies allow these calls.
//!
//! This module makes no calls. Account, region and partition may be template variables that CloudFormation, Terraform
//! or a shell replaces by values. The cluster name must be a value, because it is part of tag keys.

mod controller;
mod names;
mod policies;
mod queue;
mod templates;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use controller::{Controller, OidcProvider, Trust};
pub use names::{RoleName, controller_role_name, node_role_name, parse_queue, queue_name};
pub use policies::policies;
pub use queue::{RULES, Rule, queue_policy};
pub use templates::{cli, cloudformation, json, terraform};

/// What to create in IAM and SQS for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceOptions {
    pub cluster: String,
    /// The node roles. The controller may pass only these roles to instances.
    pub node_roles: Vec<RoleName>,
    /// Whether the templates create the node roles; otherwise the roles exist already.
    pub makes_node_roles: bool,
    pub queue: String,
    /// Names or ARNs of SSM parameters with AMI ids that the controller may read, in addition to AWS's public ones.
    pub ssm_parameters: Vec<String>,
    /// The controller role; `None` if the templates do not create it.
    pub controller: Option<Controller>,
}

impl ResourceOptions {
    /// The options with default names for a cluster.
    pub fn of(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            node_roles: vec![RoleName::plain(node_role_name(cluster))],
            makes_node_roles: true,
            queue: queue_name(cluster),
            ssm_parameters: Vec::new(),
            controller: None,
        }
    }
}

/// What to create, and in which account and region. All fields except the options may be template variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub options: ResourceOptions,
    pub partition: String,
    pub region: String,
    pub account: String,
    /// The DNS suffix of the AWS partition, such as `amazonaws.com`.
    pub url_suffix: String,
}

/// A managed policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The name of the policy without the cluster name, which is added to it.
    pub name: &'static str,
    pub statements: Vec<Statement>,
}

/// A statement of an IAM policy: it allows the actions on the resources if all conditions hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statement {
    pub id: &'static str,
    pub actions: Vec<&'static str>,
    pub resources: Vec<String>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub operator: &'static str,
    pub key: String,
    pub values: Vec<String>,
}

impl Policy {
    pub fn full_name(&self, target: &Target) -> String {
        names::policy(self.name, &target.options.cluster)
    }

    /// The policy as a JSON document.
    pub fn document(&self) -> Value {
        let statements: Vec<Value> = self.statements.iter().map(Statement::document).collect();
        json!({"Version": "2012-10-17", "Statement": statements})
    }
}

impl Statement {
    fn document(&self) -> Value {
        let mut document = json!({
            "Sid": self.id,
            "Effect": "Allow",
            "Action": self.actions,
            "Resource": self.resources,
        });
        if !self.conditions.is_empty() {
            let mut conditions = Map::new();
            for condition in &self.conditions {
                let of_operator = conditions.entry(condition.operator).or_insert_with(|| json!({}));
                of_operator[&condition.key] = match condition.values.as_slice() {
                    [single] => json!(single),
                    several => json!(several),
                };
            }
            document["Condition"] = Value::Object(conditions);
        }
        document
    }
}

/// An AWS call that the provider makes, and all IAM actions that the caller needs for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The name of the call, as in the doc comments of the traits in `api`.
    pub name: &'static str,
    pub actions: &'static [&'static str],
}

const fn plain(name: &'static [&'static str; 1]) -> Call {
    Call { name: name[0], actions: name }
}

/// Every call that a method of the traits in `api` makes.
pub const CALLS: &[Call] = &[
    plain(&["ec2:DescribeInstanceTypes"]),
    plain(&["ec2:DescribeInstanceTypeOfferings"]),
    plain(&["ec2:DescribeSpotPriceHistory"]),
    plain(&["ec2:DescribeSubnets"]),
    plain(&["ec2:DescribeSecurityGroups"]),
    plain(&["ec2:DescribeImages"]),
    plain(&["ec2:DescribeCapacityReservations"]),
    plain(&["ec2:DescribePlacementGroups"]),
    plain(&["ec2:DescribeLaunchTemplates"]),
    plain(&["ec2:DescribeInstances"]),
    plain(&["ec2:DescribeInstanceStatus"]),
    Call {
        name: "ec2:CreateLaunchTemplate",
        actions: &["ec2:CreateLaunchTemplate", "ec2:CreateTags", "iam:PassRole"],
    },
    plain(&["ec2:DeleteLaunchTemplate"]),
    Call {
        name: "ec2:CreateFleet",
        actions: &["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"],
    },
    Call { name: "ec2:RunInstances", actions: &["ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"] },
    plain(&["ec2:TerminateInstances"]),
    plain(&["ec2:CreateTags"]),
    plain(&["iam:GetInstanceProfile"]),
    // A call that creates a resource with tags needs the permission to tag as well.
    Call {
        name: "iam:CreateInstanceProfile",
        actions: &["iam:CreateInstanceProfile", "iam:TagInstanceProfile"],
    },
    plain(&["iam:DeleteInstanceProfile"]),
    Call { name: "iam:AddRoleToInstanceProfile", actions: &["iam:AddRoleToInstanceProfile", "iam:PassRole"] },
    plain(&["iam:RemoveRoleFromInstanceProfile"]),
    plain(&["iam:ListInstanceProfiles"]),
    plain(&["eks:DescribeCluster"]),
    plain(&["ssm:GetParameter"]),
    plain(&["pricing:GetProducts"]),
    plain(&["sqs:GetQueueUrl"]),
    plain(&["sqs:ReceiveMessage"]),
    plain(&["sqs:DeleteMessage"]),
    plain(&["arc-zonal-shift:GetManagedResource"]),
];
