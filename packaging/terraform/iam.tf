locals {
  # The name that the policies let the controller pass on.
  node_role_name = "KarpenterNodeRole-${local.eks_cluster_name}"

  node_policies = [
    "AmazonEKS_CNI_Policy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore",
  ]

  # Worked out instead of read from the resource: the values of the chart can then be seen in a plan.
  controller_role_name  = "${local.eks_cluster_name}-karpenter"
  controller_role_arn   = "arn:${local.partition}:iam::${local.account}:role/${local.controller_role_name}"
  instance_profile_name = "KarpenterNodeInstanceProfile-${local.eks_cluster_name}"

  irsa_trust = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = local.eks_oidc_provider_arn }
      Condition = {
        StringEquals = {
          "${local.eks_oidc_provider_url}:sub" = "system:serviceaccount:${var.namespace}:${var.service_account_name}"
          "${local.eks_oidc_provider_url}:aud" = "sts.amazonaws.com"
        }
      }
    }]
  })
  pod_identity_trust = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = ["sts:AssumeRole", "sts:TagSession"]
      Principal = { Service = "pods.eks.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role" "node" {
  name = local.node_role_name
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.${data.aws_partition.this.dns_suffix}" } }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset(local.node_policies)

  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.value}"
}

# For node classes with spec.instanceProfile and for the v1alpha5 API; v1 node classes may have spec.role instead.
resource "aws_iam_instance_profile" "node" {
  name = local.instance_profile_name
  role = aws_iam_role.node.name
}

resource "aws_iam_role" "controller" {
  name               = local.controller_role_name
  assume_role_policy = var.pod_identity ? local.pod_identity_trust : local.irsa_trust
}

resource "aws_iam_policy" "controller" {
  for_each = local.policies

  name   = "${each.key}-${local.eks_cluster_name}"
  policy = each.value
}

resource "aws_iam_role_policy_attachment" "controller" {
  for_each = local.policies

  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.controller[each.key].arn
}

resource "aws_eks_pod_identity_association" "controller" {
  count = var.pod_identity ? 1 : 0

  cluster_name    = local.eks_cluster_name
  namespace       = var.namespace
  service_account = var.service_account_name
  role_arn        = aws_iam_role.controller.arn
}

resource "aws_eks_access_entry" "node" {
  count = var.node_auth == "access_entry" ? 1 : 0

  cluster_name  = local.eks_cluster_name
  principal_arn = aws_iam_role.node.arn
  type          = "EC2_LINUX"
}

# Clusters that know no access entries let nodes in by a ConfigMap.
resource "terraform_data" "aws_auth" {
  count = var.node_auth == "aws_auth" ? 1 : 0
  input = {
    cluster  = local.eks_cluster_name
    region   = local.region
    role_arn = aws_iam_role.node.arn
  }

  provisioner "local-exec" {
    command = "${path.module}/scripts/aws-auth"
    environment = {
      CLUSTER  = self.input.cluster
      REGION   = self.input.region
      ROLE_ARN = self.input.role_arn
    }
  }
}

resource "aws_iam_service_linked_role" "spot" {
  count = var.create_spot_slr ? 1 : 0

  aws_service_name = "spot.amazonaws.com"
}
