terraform {
  # Validations look at more than one variable.
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.33, < 7.0"
    }
    helm = {
      source  = "hashicorp/helm"
      version = ">= 2.12, < 3.0"
    }
  }
}

provider "aws" {
  region = var.region != "" ? var.region : null

  default_tags {
    tags = local.tags
  }
}

provider "helm" {
  kubernetes {
    host                   = local.eks_endpoint_url
    cluster_ca_certificate = base64decode(local.eks_cluster_certificate_authority_data)
    token                  = local.eks_auth_token
  }
}
