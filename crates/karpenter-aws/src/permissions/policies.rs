//! The controller's IAM policies, with least privilege: the controller may read what it needs, create only resources
//! with the cluster's tags, and delete only resources that have these tags.

use super::{Condition, Policy, RoleName, Statement, Target, controller_role_name};

const NODE_POOL: &str = "karpenter.sh/nodepool";
const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
const CLUSTER_NAME: &str = "eks:eks-cluster-name";
const REGION: &str = "topology.kubernetes.io/region";
const EQUALS: &str = "StringEquals";
const LIKE: &str = "StringLike";

/// All policies of the controller; each is smaller than IAM's size limit.
pub fn policies(target: &Target) -> Vec<Policy> {
    vec![
        Policy { name: "KarpenterControllerNodeLifecyclePolicy", statements: node_lifecycle(target) },
        Policy { name: "KarpenterControllerIAMIntegrationPolicy", statements: instance_profiles(target) },
        Policy { name: "KarpenterControllerEKSIntegrationPolicy", statements: vec![cluster(target)] },
        Policy { name: "KarpenterControllerInterruptionPolicy", statements: vec![queue(target)] },
        Policy { name: "KarpenterControllerZonalShiftPolicy", statements: vec![zonal_shift(target)] },
        Policy { name: "KarpenterControllerResourceDiscoveryPolicy", statements: discovery(target) },
    ]
}

fn condition(operator: &'static str, key: impl Into<String>, values: &[&str]) -> Condition {
    Condition { operator, key: key.into(), values: values.iter().map(ToString::to_string).collect() }
}

fn owned(side: &str, target: &Target) -> Condition {
    condition(EQUALS, format!("aws:{side}/kubernetes.io/cluster/{}", target.options.cluster), &["owned"])
}

fn tagged(side: &str, tag: &str, value: &str) -> Condition {
    condition(EQUALS, format!("aws:{side}/{tag}"), &[value])
}

fn has_tag(side: &str, tag: &str) -> Condition {
    condition(LIKE, format!("aws:{side}/{tag}"), &["*"])
}

impl Target {
    /// The ARN of an EC2 resource. The ARNs of AMIs and snapshots have no account.
    fn ec2(&self, account: &str, resource: &str) -> String {
        format!("arn:{}:ec2:{}:{account}:{resource}", self.partition, self.region)
    }

    pub(super) fn iam(&self, resource: &str) -> String {
        format!("arn:{}:iam::{}:{resource}", self.partition, self.account)
    }

    pub(super) fn controller_role_arn(&self) -> String {
        self.iam(&format!("role/{}", controller_role_name(&self.options.cluster)))
    }

    /// The ARN of an SSM parameter. If `name` is not an ARN, the parameter is in the target account.
    fn parameter(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        let name = name.trim_start_matches('/');
        format!("arn:{}:ssm:{}:{}:parameter/{name}", self.partition, self.region, self.account)
    }

    pub(super) fn cluster_arn(&self) -> String {
        format!(
            "arn:{}:eks:{}:{}:cluster/{}",
            self.partition, self.region, self.account, self.options.cluster
        )
    }

    pub(super) fn queue_arn(&self) -> String {
        format!("arn:{}:sqs:{}:{}:{}", self.partition, self.region, self.account, self.options.queue)
    }
}

fn node_lifecycle(target: &Target) -> Vec<Statement> {
    let launches = vec!["ec2:RunInstances", "ec2:CreateFleet"];
    let made: Vec<String> = [
        "fleet/*",
        "instance/*",
        "volume/*",
        "network-interface/*",
        "launch-template/*",
        "spot-instances-request/*",
    ]
    .iter()
    .map(|resource| target.ec2("*", resource))
    .collect();
    let of_request = || {
        vec![
            owned("RequestTag", target),
            tagged("RequestTag", CLUSTER_NAME, &target.options.cluster),
            has_tag("RequestTag", NODE_POOL),
        ]
    };
    let of_resource = || vec![owned("ResourceTag", target), has_tag("ResourceTag", NODE_POOL)];
    vec![
        Statement {
            id: "AllowScopedEC2InstanceAccessActions",
            actions: launches.clone(),
            resources: vec![
                target.ec2("", "image/*"),
                target.ec2("", "snapshot/*"),
                target.ec2("*", "security-group/*"),
                target.ec2("*", "subnet/*"),
                target.ec2("*", "capacity-reservation/*"),
                target.ec2("*", "placement-group/*"),
            ],
            conditions: Vec::new(),
        },
        Statement {
            id: "AllowScopedEC2LaunchTemplateAccessActions",
            actions: launches,
            resources: vec![target.ec2("*", "launch-template/*")],
            conditions: of_resource(),
        },
        Statement {
            id: "AllowScopedEC2InstanceActionsWithTags",
            actions: vec!["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            resources: made.clone(),
            conditions: of_request(),
        },
        Statement {
            id: "AllowScopedResourceCreationTagging",
            actions: vec!["ec2:CreateTags"],
            resources: made,
            conditions: [
                of_request(),
                vec![condition(
                    EQUALS,
                    "ec2:CreateAction",
                    &["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                )],
            ]
            .concat(),
        },
        Statement {
            id: "AllowScopedResourceTagging",
            actions: vec!["ec2:CreateTags"],
            resources: vec![target.ec2("*", "instance/*")],
            conditions: [
                of_resource(),
                vec![
                    condition(
                        "StringEqualsIfExists",
                        format!("aws:RequestTag/{CLUSTER_NAME}"),
                        &[&target.options.cluster],
                    ),
                    condition(
                        "ForAllValues:StringEquals",
                        "aws:TagKeys",
                        &[CLUSTER_NAME, "karpenter.sh/nodeclaim", "Name"],
                    ),
                ],
            ]
            .concat(),
        },
        Statement {
            id: "AllowScopedDeletion",
            actions: vec!["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            resources: vec![target.ec2("*", "instance/*"), target.ec2("*", "launch-template/*")],
            conditions: of_resource(),
        },
    ]
}

fn instance_profiles(target: &Target) -> Vec<Statement> {
    let passed = target.options.node_roles.iter().map(RoleName::resource).map(|role| target.iam(&role));
    let profiles = || vec![target.iam("instance-profile/*")];
    let of = |side: &str| {
        vec![
            owned(side, target),
            tagged(side, CLUSTER_NAME, &target.options.cluster),
            tagged(side, REGION, &target.region),
            has_tag(side, NODE_CLASS),
        ]
    };
    let of_tagged = || {
        vec![
            owned("ResourceTag", target),
            tagged("ResourceTag", REGION, &target.region),
            has_tag("ResourceTag", NODE_CLASS),
        ]
    };
    vec![
        Statement {
            id: "AllowPassingInstanceRole",
            actions: vec!["iam:PassRole"],
            resources: passed.collect(),
            conditions: vec![condition(
                EQUALS,
                "iam:PassedToService",
                &["ec2.amazonaws.com", "ec2.amazonaws.com.cn"],
            )],
        },
        Statement {
            id: "AllowScopedInstanceProfileCreationActions",
            actions: vec!["iam:CreateInstanceProfile"],
            resources: profiles(),
            conditions: of("RequestTag"),
        },
        Statement {
            id: "AllowScopedInstanceProfileTagActions",
            actions: vec!["iam:TagInstanceProfile"],
            resources: profiles(),
            // Without this condition, the controller could tag any instance profile as its own and then delete it.
            conditions: [of("RequestTag"), of_tagged()].concat(),
        },
        Statement {
            id: "AllowScopedInstanceProfileActions",
            actions: vec![
                "iam:AddRoleToInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
                "iam:DeleteInstanceProfile",
            ],
            resources: profiles(),
            conditions: of_tagged(),
        },
    ]
}

fn cluster(target: &Target) -> Statement {
    Statement {
        id: "AllowAPIServerEndpointDiscovery",
        actions: vec!["eks:DescribeCluster"],
        resources: vec![target.cluster_arn()],
        conditions: Vec::new(),
    }
}

fn queue(target: &Target) -> Statement {
    Statement {
        id: "AllowInterruptionQueueActions",
        actions: vec!["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
        resources: vec![target.queue_arn()],
        conditions: Vec::new(),
    }
}

fn zonal_shift(target: &Target) -> Statement {
    Statement {
        id: "AllowZonalShiftStatusReadOnly",
        actions: vec!["arc-zonal-shift:GetManagedResource"],
        // IAM cannot restrict this action to an EKS resource, so the condition restricts it to this cluster.
        resources: vec!["*".to_owned()],
        conditions: vec![condition(EQUALS, "arc-zonal-shift:ResourceIdentifier", &[&target.cluster_arn()])],
    }
}

fn discovery(target: &Target) -> Vec<Statement> {
    let anything = || vec!["*".to_owned()];
    let public = format!("arn:{}:ssm:{}::parameter/aws/service/*", target.partition, target.region);
    let own = target.options.ssm_parameters.iter().map(|name| target.parameter(name));
    let parameters = std::iter::once(public).chain(own).collect();
    vec![
        Statement {
            id: "AllowRegionalReadActions",
            actions: vec![
                "ec2:DescribeCapacityReservations",
                "ec2:DescribeImages",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceStatus",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplates",
                "ec2:DescribePlacementGroups",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeSubnets",
            ],
            resources: anything(),
            conditions: vec![condition(EQUALS, "aws:RequestedRegion", &[&target.region])],
        },
        Statement {
            id: "AllowSSMReadActions",
            actions: vec!["ssm:GetParameter"],
            resources: parameters,
            conditions: Vec::new(),
        },
        Statement {
            id: "AllowPricingReadActions",
            actions: vec!["pricing:GetProducts"],
            resources: anything(),
            conditions: Vec::new(),
        },
        Statement {
            id: "AllowUnscopedInstanceProfileListAction",
            actions: vec!["iam:ListInstanceProfiles"],
            resources: anything(),
            conditions: Vec::new(),
        },
        Statement {
            id: "AllowInstanceProfileReadActions",
            actions: vec!["iam:GetInstanceProfile"],
            resources: vec![target.iam("instance-profile/*")],
            conditions: Vec::new(),
        },
    ]
}
