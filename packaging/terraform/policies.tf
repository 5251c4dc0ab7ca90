# What the controller may do: launch, tag and end machines of this cluster, and nothing to anything else. One policy per
# concern, because a single one would pass IAM's limit of 6,144 characters with a long cluster name.

locals {
  ec2_arn = "arn:${local.partition}:ec2:${data.aws_region.this.name}"

  owned_tag   = "kubernetes.io/cluster/${local.eks_cluster_name}"
  is_owned    = { "aws:ResourceTag/${local.owned_tag}" = "owned" }
  has_pool    = { "aws:ResourceTag/karpenter.sh/nodepool" = "*" }
  asks_owned  = { "aws:RequestTag/${local.owned_tag}" = "owned", "aws:RequestTag/eks:eks-cluster-name" = local.eks_cluster_name }
  asks_pool   = { "aws:RequestTag/karpenter.sh/nodepool" = "*" }
  in_region   = { "aws:RequestedRegion" = data.aws_region.this.name }
  created     = ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"]
  created_arn = [for kind in local.created : "${local.ec2_arn}:*:${kind}/*"]

  profile_tags = {
    for kind in ["RequestTag", "ResourceTag"] : kind => {
      "aws:${kind}/${local.owned_tag}"            = "owned"
      "aws:${kind}/topology.kubernetes.io/region" = data.aws_region.this.name
    }
  }

  policies = {
    node-lifecycle = [
      {
        Sid    = "LaunchFrom"
        Effect = "Allow"
        Action = ["ec2:RunInstances", "ec2:CreateFleet"]
        Resource = [
          for kind in ["image", "snapshot", "security-group", "subnet", "capacity-reservation", "placement-group"] :
          contains(["image", "snapshot"], kind) ? "${local.ec2_arn}::${kind}/*" : "${local.ec2_arn}:*:${kind}/*"
        ]
      },
      {
        Sid       = "LaunchFromOwnTemplates"
        Effect    = "Allow"
        Action    = ["ec2:RunInstances", "ec2:CreateFleet"]
        Resource  = "${local.ec2_arn}:*:launch-template/*"
        Condition = { StringEquals = local.is_owned, StringLike = local.has_pool }
      },
      {
        Sid       = "CreateWithTags"
        Effect    = "Allow"
        Action    = ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"]
        Resource  = local.created_arn
        Condition = { StringEquals = local.asks_owned, StringLike = local.asks_pool }
      },
      {
        Sid      = "TagWhatIsCreated"
        Effect   = "Allow"
        Action   = "ec2:CreateTags"
        Resource = local.created_arn
        Condition = {
          StringEquals = merge(local.asks_owned, { "ec2:CreateAction" = ["RunInstances", "CreateFleet", "CreateLaunchTemplate"] })
          StringLike   = local.asks_pool
        }
      },
      {
        Sid      = "TagOwnInstances"
        Effect   = "Allow"
        Action   = "ec2:CreateTags"
        Resource = "${local.ec2_arn}:*:instance/*"
        Condition = {
          StringEquals                = local.is_owned
          StringLike                  = local.has_pool
          StringEqualsIfExists        = { "aws:RequestTag/eks:eks-cluster-name" = local.eks_cluster_name }
          "ForAllValues:StringEquals" = { "aws:TagKeys" = ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"] }
        }
      },
      {
        Sid       = "EndOwn"
        Effect    = "Allow"
        Action    = ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"]
        Resource  = ["${local.ec2_arn}:*:instance/*", "${local.ec2_arn}:*:launch-template/*"]
        Condition = { StringEquals = local.is_owned, StringLike = local.has_pool }
      },
    ]

    iam-integration = [
      {
        Sid       = "PassNodeRole"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = local.node_role_arn
        Condition = { StringEquals = { "iam:PassedToService" = ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] } }
      },
      {
        Sid      = "CreateProfiles"
        Effect   = "Allow"
        Action   = "iam:CreateInstanceProfile"
        Resource = "arn:${local.partition}:iam::${local.account}:instance-profile/*"
        Condition = {
          StringEquals = merge(local.profile_tags["RequestTag"], { "aws:RequestTag/eks:eks-cluster-name" = local.eks_cluster_name })
          StringLike   = { "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass" = "*" }
        }
      },
      {
        Sid      = "TagProfiles"
        Effect   = "Allow"
        Action   = "iam:TagInstanceProfile"
        Resource = "arn:${local.partition}:iam::${local.account}:instance-profile/*"
        Condition = {
          StringEquals = merge(
            local.profile_tags["ResourceTag"], local.profile_tags["RequestTag"],
            { "aws:RequestTag/eks:eks-cluster-name" = local.eks_cluster_name },
          )
          StringLike = {
            "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass" = "*"
            "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass"  = "*"
          }
        }
      },
      {
        Sid      = "ChangeOwnProfiles"
        Effect   = "Allow"
        Action   = ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"]
        Resource = "arn:${local.partition}:iam::${local.account}:instance-profile/*"
        Condition = {
          StringEquals = local.profile_tags["ResourceTag"]
          StringLike   = { "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass" = "*" }
        }
      },
    ]

    cluster = concat(
      [
        {
          Sid      = "DescribeCluster"
          Effect   = "Allow"
          Action   = "eks:DescribeCluster"
          Resource = local.cluster_arn
        },
        {
          Sid      = "ZonalShift"
          Effect   = "Allow"
          Action   = "arc-zonal-shift:GetManagedResource"
          Resource = local.cluster_arn
        },
      ],
      var.interruption ? [
        {
          Sid      = "Interruption"
          Effect   = "Allow"
          Action   = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
          Resource = local.queue_arn
        },
      ] : [],
    )

    discovery = [
      {
        Sid    = "Describe"
        Effect = "Allow"
        Action = [
          for what in [
            "CapacityReservations", "Images", "InstanceStatus", "InstanceTypeOfferings", "InstanceTypes", "Instances",
            "LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotPriceHistory", "Subnets",
          ] : "ec2:Describe${what}"
        ]
        Resource  = "*"
        Condition = { StringEquals = local.in_region }
      },
      {
        Sid      = "ImagesByParameter"
        Effect   = "Allow"
        Action   = "ssm:GetParameter"
        Resource = "arn:${local.partition}:ssm:${data.aws_region.this.name}::parameter/aws/service/*"
      },
      {
        Sid      = "Prices"
        Effect   = "Allow"
        Action   = "pricing:GetProducts"
        Resource = "*"
      },
      {
        Sid      = "ReadProfiles"
        Effect   = "Allow"
        Action   = ["iam:GetInstanceProfile", "iam:ListInstanceProfiles"]
        Resource = "*"
      },
    ]
  }
}
