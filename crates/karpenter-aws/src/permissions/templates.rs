//! The IAM and SQS resources in several formats: policy documents, CloudFormation, Terraform JSON, and AWS CLI
//! commands.

mod cli;
mod cloudformation;
mod terraform;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{Policy, Target, policies};
pub use cli::cli;
pub use cloudformation::cloudformation;
pub use terraform::terraform;
#[cfg(test)]
pub(super) use terraform::terraform_name;

const NODE_POLICIES: [&str; 4] = [
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
];

/// The service whose service-linked role spot instances need. Creating the role fails if the account has it.
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

/// A JSON object that maps the name of each policy to its document.
pub fn json(target: &Target) -> Value {
    let documents = policies(target).into_iter().map(|policy| (policy.full_name(target), policy.document()));
    Value::Object(documents.collect())
}

impl Policy {
    /// The number of characters that IAM counts in the document; a managed policy may have 6,144.
    pub fn size(&self) -> usize {
        self.document().to_string().chars().filter(|letter| !letter.is_whitespace()).count()
    }
}
