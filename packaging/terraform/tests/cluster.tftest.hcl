# How the cluster is determined. No calls are made: `tofu test` and `terraform test` need no account.

mock_provider "aws" {
  mock_data "aws_partition" {
    defaults = { partition = "aws", dns_suffix = "amazonaws.com" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_data "aws_region" {
    defaults = { id = "ap-northeast-2" }
  }
  mock_data "aws_eks_cluster" {
    defaults = {
      endpoint              = "https://aws.example"
      certificate_authority = [{ data = "YXdz" }]
      identity              = [{ oidc = [{ issuer = "https://oidc.aws.example/id/AWS" }] }]
    }
  }
  mock_data "aws_eks_cluster_auth" {
    defaults = { token = "token-of-aws" }
  }
}

mock_provider "helm" {}

override_data {
  target = data.terraform_remote_state.eks
  values = {
    outputs = {
      cluster_name                       = "of-state"
      cluster_endpoint                   = "https://state.example"
      cluster_certificate_authority_data = "c3RhdGU="
      oidc_provider                      = "oidc.state.example/id/STATE"
      oidc_provider_arn                  = "arn:aws:iam::111122223333:oidc-provider/oidc.state.example/id/STATE"
      node_groups                        = ["outputs", "that", "are", "not", "read"]
      name_by_another_name               = "renamed"
    }
  }
}

override_data {
  target = data.terraform_remote_state.network
  values = { outputs = { vpc_id = "vpc-1", private_subnets = ["subnet-1", "subnet-2"] } }
}

run "nothing_given" {
  command         = plan
  expect_failures = [var.eks_cluster_name]
}

run "a_key_without_its_bucket" {
  command         = plan
  expect_failures = [var.eks_cluster_name]
  variables {
    eks_s3_key = "eks/terraform.tfstate"
    region     = "ap-northeast-2"
  }
}

run "by_the_name_alone" {
  command = plan
  variables {
    eks_cluster_name = "demo"
  }
  assert {
    condition     = length(data.aws_eks_cluster.this) == 1 && length(data.aws_eks_cluster_auth.this) == 1 && length(data.terraform_remote_state.eks) == 0
    error_message = "AWS is asked, and no state."
  }
  assert {
    condition     = [local.eks_endpoint_url, local.eks_oidc_provider_url] == ["https://aws.example", "oidc.aws.example/id/AWS"]
    error_message = "AWS says where the cluster is."
  }
  assert {
    condition     = nonsensitive([local.eks_cluster_certificate_authority_data, local.eks_auth_token]) == ["YXdz", "token-of-aws"]
    error_message = "AWS says how to reach it."
  }
  assert {
    condition     = local.eks_oidc_provider_arn == "arn:aws:iam::111122223333:oidc-provider/oidc.aws.example/id/AWS"
    error_message = "The ARN follows from the address."
  }
}

run "by_state" {
  command = plan
  variables {
    backend_s3_bucket_name = "states"
    eks_s3_key             = "eks/terraform.tfstate"
    region                 = "ap-northeast-2"
  }
  assert {
    condition = [local.eks_cluster_name, local.eks_endpoint_url, local.eks_oidc_provider_url, local.eks_oidc_provider_arn] == [
      "of-state", "https://state.example", "oidc.state.example/id/STATE", "arn:aws:iam::111122223333:oidc-provider/oidc.state.example/id/STATE",
    ]
    error_message = "The state of the EKS stack says it all."
  }
  assert {
    condition     = nonsensitive(local.eks_cluster_certificate_authority_data) == "c3RhdGU="
    error_message = "The state of the EKS stack has the authority too."
  }
  assert {
    condition     = length(data.aws_eks_cluster.this) == 0 && length(data.terraform_remote_state.network) == 0 && length(aws_ec2_tag.subnet) == 0
    error_message = "What the state says is not asked of AWS, and no other state is read."
  }
  assert {
    condition     = data.terraform_remote_state.eks[0].config == { bucket = "states", key = "eks/terraform.tfstate", region = "ap-northeast-2" }
    error_message = "The state is looked for where the variables say."
  }
}

run "by_state_under_other_names" {
  command = plan
  variables {
    backend_s3_bucket_name = "states"
    eks_s3_key             = "eks/terraform.tfstate"
    region                 = "ap-northeast-2"
    state_outputs          = { cluster_name = "name_by_another_name", endpoint = "not_there" }
  }
  assert {
    condition     = [local.eks_cluster_name, local.eks_endpoint_url] == ["renamed", "https://aws.example"]
    error_message = "Names of outputs can be given, and AWS is asked for what the state does not say."
  }
}

run "by_state_that_has_no_name" {
  command         = plan
  expect_failures = [data.aws_partition.this]
  variables {
    backend_s3_bucket_name = "states"
    eks_s3_key             = "eks/terraform.tfstate"
    region                 = "ap-northeast-2"
    state_outputs          = { cluster_name = "not_there" }
  }
}

run "given_before_state" {
  command = plan
  variables {
    backend_s3_bucket_name                 = "states"
    eks_s3_key                             = "eks/terraform.tfstate"
    region                                 = "ap-northeast-2"
    eks_cluster_name                       = "given"
    eks_endpoint_url                       = "https://given.example"
    eks_cluster_certificate_authority_data = "Z2l2ZW4="
    eks_oidc_provider_arn                  = "arn:given"
    eks_oidc_provider_url                  = "https://oidc.given.example/id/GIVEN"
    eks_auth_token                         = "token-given"
  }
  assert {
    condition = [local.eks_cluster_name, local.eks_endpoint_url, local.eks_oidc_provider_url, local.eks_oidc_provider_arn] == [
      "given", "https://given.example", "oidc.given.example/id/GIVEN", "arn:given",
    ]
    error_message = "What is given counts first."
  }
  assert {
    condition     = nonsensitive([local.eks_cluster_certificate_authority_data, local.eks_auth_token]) == ["Z2l2ZW4=", "token-given"]
    error_message = "What is given counts first."
  }
  assert {
    condition     = length(data.aws_eks_cluster.this) == 0 && length(data.aws_eks_cluster_auth.this) == 0
    error_message = "Nothing is asked of AWS that is given."
  }
}

run "a_bucket_alone_is_no_state" {
  command = plan
  variables {
    backend_s3_bucket_name = "states"
    region                 = "ap-northeast-2"
    eks_cluster_name       = "demo"
  }
  assert {
    condition     = length(data.terraform_remote_state.eks) == 0 && local.eks_endpoint_url == "https://aws.example"
    error_message = "Without a key there is nothing to read."
  }
}

run "address_of_the_provider_without_its_scheme" {
  command = plan
  variables {
    eks_cluster_name      = "demo"
    eks_oidc_provider_url = "oidc.given.example/id/GIVEN"
  }
  assert {
    condition     = local.eks_oidc_provider_url == "oidc.given.example/id/GIVEN"
    error_message = "Both ways of writing it mean the same."
  }
}

run "subnets_of_the_network_stack" {
  command = plan
  variables {
    backend_s3_bucket_name = "states"
    infra_network_s3_key   = "network/terraform.tfstate"
    region                 = "ap-northeast-2"
    eks_cluster_name       = "demo"
    tag_subnets            = true
  }
  assert {
    condition = { for key, tag in aws_ec2_tag.subnet : key => [tag.resource_id, tag.key, tag.value] } == {
      subnet-1 = ["subnet-1", "karpenter.sh/discovery", "demo"]
      subnet-2 = ["subnet-2", "karpenter.sh/discovery", "demo"]
    }
    error_message = "Both private subnets are tagged."
  }
}

run "a_name_that_is_too_long_for_roles" {
  command         = plan
  expect_failures = [data.aws_partition.this]
  variables {
    eks_cluster_name = "a-name-of-forty-seven-characters-is-not-allowed"
  }
}
