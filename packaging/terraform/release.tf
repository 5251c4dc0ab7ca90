locals {
  chart_folder = "${path.module}/../../charts"
  release_name = var.helm_release_name != "" ? var.helm_release_name : "karpenter"
  # A repository has charts by name; without one, the chart is the folder next to this module.
  chart = var.helm_chart_name != "" ? var.helm_chart_name : var.helm_repository_url != "" ? "karpenter" : "${local.chart_folder}/karpenter"
  # A custom chart includes its CRDs, but not those of the v1alpha5 API; ours are a separate release, so that they are upgraded.
  installs_crds = var.legacy_api || (var.helm_chart_name == "" && var.helm_repository_url == "")

  # Karpenter must not run on nodes that it manages.
  off_own_nodes = [
    { key = "karpenter.sh/nodepool", operator = "DoesNotExist" },
    { key = "karpenter.sh/provisioner-name", operator = "DoesNotExist" },
  ]
  given_terms = try(var.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms, [])
  terms = [
    for term in concat(local.given_terms, length(local.given_terms) == 0 ? [{}] : []) : merge(term, {
      matchExpressions = concat(try(term.matchExpressions, []), local.off_own_nodes)
    })
  ]
  # Lists are not merged, so terms among the chart's values would take the place of those above.
  terms_of_values = [
    for term in try(var.karpenter_values.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms, []) :
    merge(term, { matchExpressions = concat(try(term.matchExpressions, []), local.off_own_nodes) })
  ]
  guards_values = length(local.terms_of_values) > 0 && !var.allow_self_scheduling
  values_over_values = {
    affinity = { nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms = local.terms_of_values } } }
  }
  # Through JSON, because both sides of a condition must otherwise have one type.
  affinity = jsondecode(var.allow_self_scheduling ? jsonencode(var.affinity) : jsonencode(merge(var.affinity, {
    nodeAffinity = merge(try(var.affinity.nodeAffinity, {}), {
      requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms = local.terms }
    })
  })))
  # Helm deletes the objects of a release, and the deletion of a NodePool terminates its instances.
  kept_manifests = [
    for manifest in var.manifests : try(merge(manifest, { metadata = merge(manifest.metadata, {
      annotations = merge(try(manifest.metadata.annotations, {}), { "helm.sh/resource-policy" = "keep" })
    }) }), manifest)
  ]
  manifests = jsondecode(var.on_destroy == "keep" ? jsonencode(local.kept_manifests) : jsonencode(var.manifests))
  # A list, or {} for none.
  tolerations = [for toleration in flatten([var.tolerations]) : toleration if length(toleration) > 0]

  own_values = merge(
    {
      replicas = var.replica_count
      serviceAccount = {
        create      = true
        name        = var.service_account_name
        annotations = { for key, arn in { "eks.amazonaws.com/role-arn" = local.controller_role_arn } : key => arn if !var.pod_identity }
      }
      settings = {
        clusterName            = local.eks_cluster_name
        clusterEndpoint        = local.eks_endpoint_url
        eksControlPlane        = true
        interruptionQueue      = var.interruption ? local.queue_name : ""
        defaultInstanceProfile = local.instance_profile_name
      }
      legacyApi    = { enabled = var.legacy_api }
      extraObjects = local.manifests
    },
    # Unset variables have the defaults of the chart.
    {
      for key, value in {
        controller   = { for key, image in { image = { repository = var.image_repository, tag = var.image_tag } } : key => image if image.repository != "" }
        nodeSelector = var.node_selector
        affinity     = jsondecode(length(var.affinity) > 0 ? jsonencode(local.affinity) : "{}")
        tolerations  = local.tolerations
      } : key => value if length(value) > 0
    },
  )
}

# Variables for a module of upstream's Karpenter name upstream's chart, which would be installed.
check "chart_of_the_original" {
  assert {
    condition     = length(regexall("public\\.ecr\\.aws/karpenter|charts\\.karpenter\\.sh", var.helm_repository_url)) == 0
    error_message = "helm_repository_url is that of the original Karpenter, whose chart installs the original. Leave helm_repository_url, helm_chart_name and helm_chart_version out for the chart of this module."
  }
}

resource "helm_release" "crds" {
  count = local.installs_crds ? 1 : 0

  name             = "${local.release_name}-crd"
  namespace        = var.namespace
  create_namespace = var.create_namespace
  chart            = "${local.chart_folder}/karpenter-crd"
  timeout          = var.helm_timeout_seconds
  values           = [yamlencode({ legacy = var.legacy_api, keep = var.on_destroy == "keep" })]
}

# Destroyed in the opposite order: instances first, then the controller that drains them, and then the role, the instance profile
# and the access entry, without which the kubelets lose access and nodes become NotReady.
resource "helm_release" "karpenter" {
  name             = local.release_name
  namespace        = var.namespace
  create_namespace = var.create_namespace
  repository       = var.helm_repository_url != "" ? var.helm_repository_url : null
  chart            = local.chart
  version          = var.helm_chart_version != "" ? var.helm_chart_version : null
  skip_crds        = local.installs_crds
  timeout          = var.helm_timeout_seconds
  values = concat(
    [yamlencode(local.own_values), yamlencode(var.karpenter_values)],
    local.guards_values ? [yamlencode(local.values_over_values)] : [],
  )

  depends_on = [
    aws_cloudwatch_event_target.interruption,
    aws_eks_access_entry.node,
    aws_eks_pod_identity_association.controller,
    aws_iam_instance_profile.node,
    aws_iam_role_policy_attachment.controller,
    aws_iam_role_policy_attachment.node,
    aws_iam_service_linked_role.spot,
    aws_sqs_queue_policy.interruption,
    helm_release.crds,
    terraform_data.aws_auth,
  ]
}

resource "terraform_data" "machines" {
  input = {
    cluster         = local.eks_cluster_name
    region          = local.region
    on_destroy      = var.on_destroy
    timeout_seconds = var.helm_timeout_seconds
  }

  provisioner "local-exec" {
    when    = destroy
    command = "${path.module}/scripts/on-destroy"
    environment = {
      CLUSTER         = self.input.cluster
      REGION          = self.input.region
      ON_DESTROY      = self.input.on_destroy
      TIMEOUT_SECONDS = self.input.timeout_seconds
    }
  }

  depends_on = [helm_release.karpenter]
}
