# The cluster: from variables, else from the state files of other stacks, else from AWS by the name of the cluster.

locals {
  reads_eks_state     = var.backend_s3_bucket_name != "" && var.eks_s3_key != "" && var.region != ""
  reads_network_state = var.backend_s3_bucket_name != "" && var.infra_network_s3_key != "" && var.region != ""
  eks_state           = try(data.terraform_remote_state.eks[0].outputs, {})
  network_state       = try(data.terraform_remote_state.network[0].outputs, {})

  # Empty where neither the variable nor the state says it.
  given = {
    for name, value in {
      cluster_name      = var.eks_cluster_name
      endpoint          = var.eks_endpoint_url
      ca_data           = var.eks_cluster_certificate_authority_data
      oidc_provider_arn = var.eks_oidc_provider_arn
      oidc_provider_url = var.eks_oidc_provider_url
    } : name => try(coalesce(value, lookup(local.eks_state, var.state_outputs[name], "")), "")
  }
  # Read only if a variable is missing, so that no permission is needed if all are set.
  asks_for_cluster = anytrue([for name in ["endpoint", "ca_data", "oidc_provider_url"] : nonsensitive(local.given[name] == "")])

  eks_cluster_name                       = local.given.cluster_name
  eks_endpoint_url                       = local.given.endpoint != "" ? local.given.endpoint : data.aws_eks_cluster.this[0].endpoint
  eks_cluster_certificate_authority_data = local.given.ca_data != "" ? local.given.ca_data : data.aws_eks_cluster.this[0].certificate_authority[0].data
  eks_auth_token                         = var.eks_auth_token != "" ? var.eks_auth_token : data.aws_eks_cluster_auth.this[0].token

  # Without the scheme, as in trust policies. A cluster without an OIDC provider has none.
  eks_oidc_provider_url = trimprefix(
    local.given.oidc_provider_url != "" ? local.given.oidc_provider_url : try(data.aws_eks_cluster.this[0].identity[0].oidc[0].issuer, ""),
    "https://",
  )
  eks_oidc_provider_arn = (
    local.given.oidc_provider_arn != "" ? local.given.oidc_provider_arn
    : "arn:${local.partition}:iam::${local.account}:oidc-provider/${local.eks_oidc_provider_url}"
  )

  partition = data.aws_partition.this.partition
  account   = data.aws_caller_identity.this.account_id
  region    = data.aws_region.this.id

  tags = { for key, value in { project = var.project, env = var.env } : key => value if value != "" }
}

data "aws_partition" "this" {
  lifecycle {
    precondition {
      condition     = local.eks_cluster_name != ""
      error_message = "The state of the EKS stack has no output ${var.state_outputs.cluster_name}: set its name in state_outputs, or set eks_cluster_name."
    }
    precondition {
      condition     = length(local.eks_cluster_name) <= 46
      error_message = "Cluster names of more than 46 characters make names of roles that IAM does not take."
    }
  }
}

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

data "aws_eks_cluster" "this" {
  count = local.asks_for_cluster ? 1 : 0
  name  = local.eks_cluster_name
}

data "aws_eks_cluster_auth" "this" {
  count = nonsensitive(var.eks_auth_token == "") ? 1 : 0
  name  = local.eks_cluster_name
}

resource "aws_ec2_tag" "subnet" {
  for_each = toset(var.tag_subnets ? lookup(local.network_state, var.state_outputs.private_subnet_ids, []) : [])

  resource_id = each.value
  key         = "karpenter.sh/discovery"
  value       = local.eks_cluster_name
}
