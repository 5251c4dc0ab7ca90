# What the module is called with. The first part has the names and defaults that this module's users have in their files; the
# second is ours.

variable "project" {
  description = "code name of the project; a tag on everything"
  type        = string
  default     = ""
}

variable "env" {
  description = "environment: dev, stg, qa, prod, ...; a tag on everything"
  type        = string
  default     = ""
}

variable "region" {
  description = "AWS region; by default the one the AWS provider finds"
  type        = string
  default     = ""
}

variable "backend_s3_bucket_name" {
  description = "bucket with the states of other stacks"
  type        = string
  default     = ""
}

variable "eks_s3_key" {
  description = "key of the EKS stack's state in that bucket"
  type        = string
  default     = ""
}

variable "infra_network_s3_key" {
  description = "key of the network stack's state in that bucket"
  type        = string
  default     = ""
}

variable "eks_cluster_name" {
  description = "name of the EKS cluster, of 46 characters at most"
  type        = string
  default     = ""

  validation {
    condition     = var.eks_cluster_name != "" || (var.backend_s3_bucket_name != "" && var.eks_s3_key != "" && var.region != "")
    error_message = "Say which cluster: give eks_cluster_name, or backend_s3_bucket_name, eks_s3_key and region to read it from the state of the EKS stack."
  }
}

variable "eks_endpoint_url" {
  description = "address of the API server"
  type        = string
  default     = ""
}

variable "eks_cluster_certificate_authority_data" {
  description = "certificate authority of the API server, in base64"
  type        = string
  default     = ""
  sensitive   = true
}

variable "eks_oidc_provider_arn" {
  description = "ARN of the cluster's OIDC provider"
  type        = string
  default     = ""
}

variable "eks_oidc_provider_url" {
  description = "address of the cluster's OIDC provider, with or without https://"
  type        = string
  default     = ""
}

variable "eks_auth_token" {
  description = "token for the API server; by default one is asked for by the cluster's name"
  type        = string
  default     = ""
  sensitive   = true
}

variable "helm_release_name" {
  description = "name of the Helm release; by default karpenter"
  type        = string
  default     = ""
}

variable "helm_chart_name" {
  description = "chart, or a path to one; by default the chart of this repository, or karpenter from the repository that is given"
  type        = string
  default     = ""
}

variable "helm_chart_version" {
  description = "version of the chart; by default that of this module"
  type        = string
  default     = ""
}

variable "helm_repository_url" {
  description = "repository of the chart, for example oci://...; by default none: the chart of this repository is used"
  type        = string
  default     = ""
}

variable "create_namespace" {
  description = "whether the namespace is created"
  type        = bool
  default     = true
}

variable "namespace" {
  description = "namespace of the controller"
  type        = string
  default     = "karpenter"
}

variable "replica_count" {
  description = "copies of the controller"
  type        = number
  default     = 2
}

variable "karpenter_values" {
  description = "values of the chart, over those of the module"
  type        = any
  default     = {}
}

variable "node_selector" {
  description = "labels of nodes that the controller may run on"
  type        = map(string)
  default     = {}
}

variable "affinity" {
  description = "affinity of the controller; that it stays off its own nodes is added, see allow_self_scheduling"
  type        = any
  default     = {}
}

variable "tolerations" {
  description = "tolerations of the controller, as a list; {} is none"
  type        = any
  default     = {}

  validation {
    condition = alltrue([
      for toleration in flatten([var.tolerations]) :
      length(setsubtract(try(keys(toleration), ["?"]), ["key", "operator", "value", "effect", "tolerationSeconds"])) == 0
    ])
    error_message = "Give a list of tolerations with key, operator, value, effect and tolerationSeconds, or {} for none."
  }
}

# --- ours

variable "image_repository" {
  description = "where the image of the controller was pushed; none is published"
  type        = string
  default     = ""
}

variable "image_tag" {
  description = "tag of the image; by default the version of the chart"
  type        = string
  default     = ""
}

variable "state_outputs" {
  description = "names of the outputs that are read from the states of other stacks"
  type = object({
    cluster_name       = optional(string, "cluster_name")
    endpoint           = optional(string, "cluster_endpoint")
    ca_data            = optional(string, "cluster_certificate_authority_data")
    oidc_provider_arn  = optional(string, "oidc_provider_arn")
    oidc_provider_url  = optional(string, "oidc_provider")
    private_subnet_ids = optional(string, "private_subnets")
  })
  default = {}
}

variable "tag_subnets" {
  description = "tags the private subnets of the network stack with karpenter.sh/discovery, so that node classes find them"
  type        = bool
  default     = false
}

variable "service_account_name" {
  description = "service account of the controller"
  type        = string
  default     = "karpenter"
}

variable "pod_identity" {
  description = "gives the controller its role by EKS pod identity instead of IAM roles for service accounts"
  type        = bool
  default     = false
}

variable "node_auth" {
  description = "how nodes are let into the cluster: access_entry, aws_auth (patches the ConfigMap with kubectl) or none"
  type        = string
  default     = "access_entry"

  validation {
    condition     = contains(["access_entry", "aws_auth", "none"], var.node_auth)
    error_message = "Valid: access_entry, aws_auth, none."
  }
}

variable "interruption" {
  description = "creates a queue and rules, so that nodes are drained before EC2 takes them"
  type        = bool
  default     = true
}

variable "create_spot_slr" {
  description = "creates the service-linked role for spot; fails if the account has it already"
  type        = bool
  default     = false
}

variable "allow_self_scheduling" {
  description = "lets an affinity of yours put the controller on nodes that it launched itself; it would end itself with them"
  type        = bool
  default     = false
}

variable "on_destroy" {
  description = "what becomes of machines when the module is destroyed: drain, keep, or fail while there are any"
  type        = string
  default     = "drain"

  validation {
    condition     = contains(["drain", "keep", "fail"], var.on_destroy)
    error_message = "Valid: drain, keep, fail."
  }
}

variable "helm_timeout_seconds" {
  description = "how long Helm, and draining on destruction, may take"
  type        = number
  default     = 1800
}

variable "manifests" {
  description = "manifests to put beside the controller, for example a NodePool and its EC2NodeClass, or a Provisioner (legacy_api)"
  type        = any
  default     = []
}

variable "legacy_api" {
  description = "also serves Provisioner and AWSNodeTemplate"
  type        = bool
  default     = false
}
