# The variables of the module. The first part has the names and defaults of an existing module, so that its users can keep their
# files; the second part is ours.

variable "project" {
  description = "code name of the project; added as a tag to all resources"
  type        = string
  default     = ""
}

variable "env" {
  description = "environment: dev, stg, qa, prod, ...; added as a tag to all resources"
  type        = string
  default     = ""
}

variable "region" {
  description = "AWS region; default: the region of the AWS provider"
  type        = string
  default     = ""
}

variable "backend_s3_bucket_name" {
  description = "S3 bucket with the state files of other stacks"
  type        = string
  default     = ""
}

variable "eks_s3_key" {
  description = "key of the EKS stack's state file in that bucket"
  type        = string
  default     = ""
}

variable "infra_network_s3_key" {
  description = "key of the network stack's state file in that bucket"
  type        = string
  default     = ""
}

variable "eks_cluster_name" {
  description = "name of the EKS cluster, at most 46 characters"
  type        = string
  default     = ""

  validation {
    condition     = var.eks_cluster_name != "" || (var.backend_s3_bucket_name != "" && var.eks_s3_key != "" && var.region != "")
    error_message = "Say which cluster: give eks_cluster_name, or backend_s3_bucket_name, eks_s3_key and region to read it from the state of the EKS stack."
  }
}

variable "eks_endpoint_url" {
  description = "URL of the API server"
  type        = string
  default     = ""
}

variable "eks_cluster_certificate_authority_data" {
  description = "CA certificate of the API server, base64"
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
  description = "URL of the cluster's OIDC provider, with or without https://"
  type        = string
  default     = ""
}

variable "eks_auth_token" {
  description = "token for the API server; default: requested for the cluster name"
  type        = string
  default     = ""
  sensitive   = true
}

variable "helm_release_name" {
  description = "name of the Helm release; default: karpenter"
  type        = string
  default     = ""
}

variable "helm_chart_name" {
  description = "name or path of the chart; default: the chart of this repository, or karpenter if helm_repository_url is set"
  type        = string
  default     = ""
}

variable "helm_chart_version" {
  description = "version of the chart; default: the version of this module"
  type        = string
  default     = ""
}

variable "helm_repository_url" {
  description = "repository of the chart, for example oci://...; default: none, the chart of this repository is used"
  type        = string
  default     = ""
}

variable "create_namespace" {
  description = "create the namespace"
  type        = bool
  default     = true
}

variable "namespace" {
  description = "namespace of the controller"
  type        = string
  default     = "karpenter"
}

variable "replica_count" {
  description = "replicas of the controller"
  type        = number
  default     = 2
}

variable "karpenter_values" {
  description = "values of the chart; they override those of the module"
  type        = any
  default     = {}
}

variable "node_selector" {
  description = "node selector of the controller"
  type        = map(string)
  default     = {}
}

variable "affinity" {
  description = "affinity of the controller; the rule that keeps it off nodes that Karpenter launched is added, see allow_self_scheduling"
  type        = any
  default     = {}
}

variable "tolerations" {
  description = "tolerations of the controller, as a list; {} means none"
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
  description = "repository of the controller image; none is published"
  type        = string
  default     = ""
}

variable "image_tag" {
  description = "tag of the image; default: the version of the chart"
  type        = string
  default     = ""
}

variable "state_outputs" {
  description = "names of the outputs to read from the state files of other stacks"
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
  description = "tag the private subnets of the network stack with karpenter.sh/discovery, so that node classes can select them"
  type        = bool
  default     = false
}

variable "service_account_name" {
  description = "service account of the controller"
  type        = string
  default     = "karpenter"
}

variable "pod_identity" {
  description = "use EKS Pod Identity instead of IAM roles for service accounts (IRSA) for the controller role"
  type        = bool
  default     = false
}

variable "node_auth" {
  description = "how nodes join the cluster: access_entry, aws_auth (patches the ConfigMap with kubectl) or none"
  type        = string
  default     = "access_entry"

  validation {
    condition     = contains(["access_entry", "aws_auth", "none"], var.node_auth)
    error_message = "Valid: access_entry, aws_auth, none."
  }
}

variable "interruption" {
  description = "create an interruption queue and EventBridge rules, so that nodes are drained before EC2 reclaims them"
  type        = bool
  default     = true
}

variable "create_spot_slr" {
  description = "create the service-linked role for spot; fails if the account has it already"
  type        = bool
  default     = false
}

variable "allow_self_scheduling" {
  description = "let your affinity place the controller on nodes that it launched; it would be evicted when it terminates such a node"
  type        = bool
  default     = false
}

variable "on_destroy" {
  description = "what to do with instances when the module is destroyed: drain, keep, or fail if there are any"
  type        = string
  default     = "drain"

  validation {
    condition     = contains(["drain", "keep", "fail"], var.on_destroy)
    error_message = "Valid: drain, keep, fail."
  }
}

variable "helm_timeout_seconds" {
  description = "timeout in seconds for Helm, and for draining on destroy"
  type        = number
  default     = 1800
}

variable "manifests" {
  description = "manifests to apply with the controller, for example a NodePool and its EC2NodeClass, or a Provisioner (legacy_api)"
  type        = any
  default     = []
}

variable "legacy_api" {
  description = "also serve Provisioner and AWSNodeTemplate (v1alpha5 API)"
  type        = bool
  default     = false
}
