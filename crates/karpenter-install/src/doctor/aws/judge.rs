//! Evaluates what was read from an AWS account. The functions are pure.

use karpenter_aws::api::{AwsError, ErrorKind};

use super::{AwsFacts, ClassFacts};
use crate::doctor::Finding;

pub fn findings(facts: &AwsFacts) -> Vec<Finding> {
    let region = &facts.options.region;
    if let Err(error) = &facts.access {
        return vec![Finding::fail(
            "aws-credentials",
            format!("EC2 in {region} returned an error: {error}"),
            credentials(error),
        )];
    }
    let mut all = vec![Finding::ok("aws-credentials", format!("EC2 in {region} is reachable"))];
    all.push(cluster(facts));
    all.push(queue(facts));
    facts.classes.iter().for_each(|class| all.extend(of_class(class, &facts.options.cluster_name)));
    if facts.wants_spot {
        // The user may not read IAM roles, so this check is skipped.
        all.push(Finding::ok(
            "spot-role",
            "NodePools allow spot capacity, which needs the account's role AWSServiceRoleForEC2Spot; check it at \
             the first launch, or with aws iam get-role --role-name AWSServiceRoleForEC2Spot",
        ));
    }
    all
}

fn credentials(error: &AwsError) -> String {
    match error.kind {
        ErrorKind::BadCredentials => "credentials are missing, invalid or expired: the controller gets its own through an IAM role \
                                      for its service account or pod identity; this command uses AWS_PROFILE, AWS_ACCESS_KEY_ID or a \
                                      role"
            .to_owned(),
        ErrorKind::Unauthorized => "the role lacks ec2:DescribeInstanceTypes: karpenter bootstrap aws prints all policies".to_owned(),
        ErrorKind::Transient => "check the region, the network, and the EC2 endpoint of a VPC without internet access".to_owned(),
        _ => "check --region and the credentials: aws sts get-caller-identity".to_owned(),
    }
}

/// How to fix a failed AWS call.
fn allowed(error: &AwsError, action: &str, otherwise: &str) -> String {
    match error.is_unauthorized() {
        true => format!("the role lacks {action}: karpenter bootstrap aws prints all policies"),
        false => otherwise.to_owned(),
    }
}

fn cluster(facts: &AwsFacts) -> Finding {
    let name = &facts.options.cluster_name;
    match &facts.cluster {
        None => Finding::warn(
            "aws-cluster",
            "not checked: the name of the cluster is not known",
            "give --cluster-name, or install the controller with it",
        ),
        Some(Ok(cluster)) => Finding::ok(
            "aws-cluster",
            format!("EKS has cluster {name}, version {}", cluster.version.as_deref().unwrap_or("unknown")),
        ),
        Some(Err(error)) if error.is_not_found() => Finding::warn(
            "aws-cluster",
            format!("EKS in {} has no cluster {name}", facts.options.region),
            "check --cluster-name and --region; outside of EKS the controller needs --cluster-endpoint",
        ),
        Some(Err(error)) => Finding::warn(
            "aws-cluster",
            format!("EKS returned an error: {error}"),
            allowed(
                error,
                "eks:DescribeCluster",
                "try again; the controller needs it unless it has --cluster-endpoint",
            ),
        ),
    }
}

fn queue(facts: &AwsFacts) -> Finding {
    let name = &facts.options.queue;
    match &facts.queue {
        None => Finding::warn(
            "aws-queue",
            "no interruption queue is set: spot instances are interrupted without a drain",
            "karpenter bootstrap aws prints queue and rules; then --interruption-queue NAME",
        ),
        Some(Ok(_)) => Finding::ok("aws-queue", format!("queue {name} exists")),
        Some(Err(error)) if error.is_not_found() => Finding::fail(
            "aws-queue",
            format!("queue {name} not found in {}", facts.options.region),
            "karpenter bootstrap aws prints queue and rules; give the queue's name, not its URL",
        ),
        Some(Err(error)) => Finding::fail(
            "aws-queue",
            format!("SQS returned an error for queue {name}: {error}"),
            allowed(error, "sqs:GetQueueUrl", "check the name and the region"),
        ),
    }
}

fn of_class(class: &ClassFacts, cluster: &str) -> Vec<Finding> {
    let name = format!("EC2NodeClass {}", class.name);
    let mut all = Vec::new();
    let cluster = if cluster.is_empty() { "CLUSTER" } else { cluster };
    let tagging = |what: &str| {
        format!(
            "correct the terms, or tag them: aws ec2 create-tags --resources {what} --tags Key=karpenter.sh/discovery,Value={cluster}"
        )
    };
    match &class.subnets {
        Ok(found) if found.is_empty() => {
            all.push(Finding::fail("aws-subnets", format!("{name} selects no subnets"), tagging("subnet-…")))
        }
        Ok(found) => {
            let full: Vec<&str> = found
                .iter()
                .filter(|subnet| subnet.available_ip_count == 0)
                .map(|subnet| subnet.id.as_str())
                .collect();
            match full.is_empty() {
                true => {
                    all.push(Finding::ok("aws-subnets", format!("{name} selects {} subnets", found.len())))
                }
                false => all.push(Finding::warn(
                    "aws-subnets",
                    format!("{name}: no free IP addresses in {}", full.join(", ")),
                    "add subnets with free addresses, or prefixes to the VPC",
                )),
            }
        }
        Err(error) => all.push(Finding::fail(
            "aws-subnets",
            format!("{name}: EC2 returned an error: {error}"),
            allowed(error, "ec2:DescribeSubnets", "check the ids in the terms"),
        )),
    }
    match &class.security_groups {
        Ok(found) if found.is_empty() => all.push(Finding::fail(
            "aws-security-groups",
            format!("{name} selects no security groups"),
            tagging("sg-…"),
        )),
        Ok(found) => {
            all.push(Finding::ok(
                "aws-security-groups",
                format!("{name} selects {} security groups", found.len()),
            ));
            all.extend(foreign_vpc(&name, class));
        }
        Err(error) => all.push(Finding::fail(
            "aws-security-groups",
            format!("{name}: EC2 returned an error: {error}"),
            allowed(error, "ec2:DescribeSecurityGroups", "check the ids in the terms"),
        )),
    }
    all.push(profile(&name, class));
    all
}

/// The finding that the security groups and subnets of a class are in different VPCs.
fn foreign_vpc(name: &str, class: &ClassFacts) -> Option<Finding> {
    let subnets = class.subnets.as_ref().ok()?;
    let groups = class.security_groups.as_ref().ok()?;
    let vpc = &subnets.first()?.vpc_id;
    let others: Vec<&str> = groups
        .iter()
        .filter(|group| group.vpc_id.as_ref().is_some_and(|of_group| of_group != vpc))
        .map(|group| group.id.as_str())
        .collect();
    (!others.is_empty()).then(|| {
        Finding::fail(
            "aws-security-groups",
            format!("{name}: {} are in another VPC than its subnets ({vpc})", others.join(", ")),
            "select groups and subnets of one VPC",
        )
    })
}

fn profile(name: &str, class: &ClassFacts) -> Finding {
    const CHECK: &str = "aws-instance-profile";
    match (&class.profile, &class.role) {
        (Some(Ok(profile)), role) => match (profile.roles.first(), role) {
            (None, _) => Finding::fail(
                CHECK,
                format!("{name}: the instance profile {} has no role", profile.name),
                format!(
                    "aws iam add-role-to-instance-profile --instance-profile-name {} --role-name ROLE",
                    profile.name
                ),
            ),
            (Some(found), Some(wanted)) if karpenter_aws::profiles::role_name(wanted) != found => {
                Finding::warn(
                    CHECK,
                    format!(
                        "{name}: the instance profile {} has the role {found}, the class names {wanted}",
                        profile.name
                    ),
                    "the controller replaces it; see the condition InstanceProfileReady of the class",
                )
            }
            (Some(found), _) => Finding::ok(
                CHECK,
                format!("{name}: the instance profile {} has the role {found}", profile.name),
            ),
        },
        (Some(Err(error)), _) if error.is_not_found() => Finding::fail(
            CHECK,
            format!("{name}: {error}"),
            "create the instance profile, or set spec.role so that the controller creates one",
        ),
        (Some(Err(error)), _) => Finding::warn(
            CHECK,
            format!("{name}: IAM returned an error: {error}"),
            allowed(error, "iam:GetInstanceProfile", "try again"),
        ),
        (None, Some(role)) => Finding::ok(
            CHECK,
            format!("{name}: the controller creates an instance profile for the role {role}"),
        ),
        (None, None) => Finding::fail(
            CHECK,
            format!("{name} has neither a role nor an instance profile"),
            "set spec.role or spec.instanceProfile",
        ),
    }
}
