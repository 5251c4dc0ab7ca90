# Which cluster: what is given outright, else what the states of other stacks say, else what AWS says of the cluster's name.

locals {
  reads_eks_state     = var.backend_s3_bucket_name != "" && var.eks_s3_key != "" && var.region != ""
  reads_network_state = var.backend_s3_bucket_name != "" && var.infra_network_s3_key != "" && var.region != ""
  eks_state           = local.reads_eks_state ? data.terraform_remote_state.eks[0].outputs : {}
  network_state       = local.reads_network_state ? data.terraform_remote_state.network[0].outputs : {}

  region = var.region != "" ? var.region : null

  eks_cluster_name = coalesce(var.eks_cluster_name, lookup(local.eks_state, var.state_outputs.cluster_name, ""), "unknown")

  eks_endpoint_url = coalesce(
    var.eks_endpoint_url,
    lookup(local.eks_state, var.state_outputs.endpoint, ""),
    try(data.aws_eks_cluster.this[0].endpoint, ""),
  )
  eks_cluster_certificate_authority_data = coalesce(
    var.eks_cluster_certificate_authority_data,
    lookup(local.eks_state, var.state_outputs.ca_data, ""),
    try(data.aws_eks_cluster.this[0].certificate_authority[0].data, ""),
  )
  eks_auth_token = var.eks_auth_token != "" ? var.eks_auth_token : data.aws_eks_cluster_auth.this[0].token

  # Without its scheme, as trust policies name it.
  eks_oidc_provider_url = trimprefix(coalesce(
    var.eks_oidc_provider_url,
    lookup(local.eks_state, var.state_outputs.oidc_provider_url, ""),
    try(data.aws_eks_cluster.this[0].identity[0].oidc[0].issuer, ""),
    "https://unknown",
  ), "https://")
  eks_oidc_provider_arn = coalesce(
    var.eks_oidc_provider_arn,
    lookup(local.eks_state, var.state_outputs.oidc_provider_arn, ""),
    "arn:${local.partition}:iam::${local.account}:oidc-provider/${local.eks_oidc_provider_url}",
  )

  partition = data.aws_partition.this.partition
  account   = data.aws_caller_identity.this.account_id

  tags = { for key, value in { project = var.project, env = var.env } : key => value if value != "" }
}

data "aws_partition" "this" {}

data "aws_caller_identity" "this" {}

data "aws_region" "this" {}

data "terraform_remote_state" "eks" {
  count   = local.reads_eks_state ? 1 : 0
  backend = "s3"

  config = {
    bucket = var.backend_s3_bucket_name
    key    = var.eks_s3_key
    region = var.region
  }
}

data "terraform_remote_state" "network" {
  count   = local.reads_network_state ? 1 : 0
  backend = "s3"

  config = {
    bucket = var.backend_s3_bucket_name
    key    = var.infra_network_s3_key
    region = var.region
  }
}

# Asked only if something is missing, so that those who give everything need no permission for it.
data "aws_eks_cluster" "this" {
  count = (
    var.eks_endpoint_url != "" && var.eks_cluster_certificate_authority_data != "" && var.eks_oidc_provider_url != "" ? 0 : 1
  )
  name = local.eks_cluster_name
}

data "aws_eks_cluster_auth" "this" {
  count = var.eks_auth_token == "" ? 1 : 0
  name  = local.eks_cluster_name
}

resource "aws_ec2_tag" "subnet" {
  for_each = toset(var.tag_subnets ? lookup(local.network_state, var.state_outputs.private_subnet_ids, []) : [])

  resource_id = each.value
  key         = "karpenter.sh/discovery"
  value       = local.eks_cluster_name
}
