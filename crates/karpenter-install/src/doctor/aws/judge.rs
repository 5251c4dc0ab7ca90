//! Judges what an AWS account answered.

use karpenter_aws::api::{AwsError, ErrorKind};

use super::{AwsFacts, ClassFacts};
use crate::doctor::Finding;

pub fn findings(facts: &AwsFacts) -> Vec<Finding> {
    let region = &facts.asked.region;
    if let Err(error) = &facts.access {
        return vec![Finding::fail(
            "aws-credentials",
            format!("EC2 in {region} says: {error}"),
            credentials(error),
        )];
    }
    let mut all = vec![Finding::ok("aws-credentials", format!("EC2 in {region} answers"))];
    all.push(cluster(facts));
    all.push(queue(facts));
    facts.classes.iter().for_each(|class| all.extend(of_class(class, &facts.asked.cluster_name)));
    if facts.wants_spot {
        // Nobody but the account's owner may look: the controller is not allowed to read roles.
        all.push(Finding::ok(
            "spot-role",
            "pools allow spot machines, which need the account's role AWSServiceRoleForEC2Spot; whether it exists shows at \
             the first launch, or with aws iam get-role --role-name AWSServiceRoleForEC2Spot",
        ));
    }
    all
}

fn credentials(error: &AwsError) -> String {
    match error.kind {
        ErrorKind::BadCredentials => "credentials are missing, wrong or too old: the controller gets its own through an IAM role \
                                      for its service account or pod identity; here AWS_PROFILE, AWS_ACCESS_KEY_ID or a \
                                      role count"
            .to_owned(),
        ErrorKind::Unauthorized => "the role lacks ec2:DescribeInstanceTypes: karpenter bootstrap aws prints all policies".to_owned(),
        ErrorKind::Transient => "check the region, the network, and in VPCs without internet the endpoint of EC2".to_owned(),
        _ => "check --region and the credentials: aws sts get-caller-identity".to_owned(),
    }
}

/// What to do about a call that was refused.
fn allowed(error: &AwsError, action: &str, otherwise: &str) -> String {
    match error.is_unauthorized() {
        true => format!("the role lacks {action}: karpenter bootstrap aws prints all policies"),
        false => otherwise.to_owned(),
    }
}

fn cluster(facts: &AwsFacts) -> Finding {
    let name = &facts.asked.cluster_name;
    match &facts.cluster {
        None => Finding::warn(
            "aws-cluster",
            "not looked at: the name of the cluster is not known",
            "give --cluster-name, or install the controller with it",
        ),
        Some(Ok(cluster)) => Finding::ok(
            "aws-cluster",
            format!("EKS knows {name}, version {}", cluster.version.as_deref().unwrap_or("unknown")),
        ),
        Some(Err(error)) if error.is_not_found() => Finding::warn(
            "aws-cluster",
            format!("EKS in {} knows no cluster {name}", facts.asked.region),
            "check --cluster-name and --region; outside of EKS the controller needs --cluster-endpoint",
        ),
        Some(Err(error)) => Finding::warn(
            "aws-cluster",
            format!("EKS says: {error}"),
            allowed(
                error,
                "eks:DescribeCluster",
                "try again; the controller needs it unless it has --cluster-endpoint",
            ),
        ),
    }
}

fn queue(facts: &AwsFacts) -> Finding {
    let name = &facts.asked.queue;
    match &facts.queue {
        None => Finding::warn(
            "aws-queue",
            "no interruption queue is set: spot machines end without notice",
            "karpenter bootstrap aws prints queue and rules; then --interruption-queue NAME",
        ),
        Some(Ok(_)) => Finding::ok("aws-queue", format!("the queue {name} exists")),
        Some(Err(error)) if error.is_not_found() => Finding::fail(
            "aws-queue",
            format!("there is no queue {name} in {}", facts.asked.region),
            "karpenter bootstrap aws prints queue and rules; names count, not addresses",
        ),
        Some(Err(error)) => Finding::fail(
            "aws-queue",
            format!("SQS says about {name}: {error}"),
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
                    format!("{name}: no addresses are left in {}", full.join(", ")),
                    "add subnets with free addresses, or prefixes to the VPC",
                )),
            }
        }
        Err(error) => all.push(Finding::fail(
            "aws-subnets",
            format!("{name}: EC2 says: {error}"),
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
            format!("{name}: EC2 says: {error}"),
            allowed(error, "ec2:DescribeSecurityGroups", "check the ids in the terms"),
        )),
    }
    all.push(profile(&name, class));
    all
}

/// Groups and subnets of different VPCs cannot be launched together.
fn foreign_vpc(name: &str, class: &ClassFacts) -> Option<Finding> {
    let subnets = class.subnets.as_ref().ok()?;
    let groups = class.security_groups.as_ref().ok()?;
    let vpc = &subnets.first()?.vpc_id;
    let strangers: Vec<&str> = groups
        .iter()
        .filter(|group| group.vpc_id.as_ref().is_some_and(|of_group| of_group != vpc))
        .map(|group| group.id.as_str())
        .collect();
    (!strangers.is_empty()).then(|| {
        Finding::fail(
            "aws-security-groups",
            format!("{name}: {} lie in another VPC than its subnets ({vpc})", strangers.join(", ")),
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
            "create the instance profile, or name a role in spec.role and leave the profile to the controller",
        ),
        (Some(Err(error)), _) => Finding::warn(
            CHECK,
            format!("{name}: IAM says: {error}"),
            allowed(error, "iam:GetInstanceProfile", "try again"),
        ),
        (None, Some(role)) => Finding::ok(
            CHECK,
            format!("{name}: the controller makes an instance profile for the role {role}"),
        ),
        (None, None) => Finding::fail(
            CHECK,
            format!("{name} names neither a role nor an instance profile"),
            "set spec.role or spec.instanceProfile",
        ),
    }
}
