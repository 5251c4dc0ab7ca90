# The charts and values of the Helm releases.

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

variables {
  eks_cluster_name = "demo"
}

run "defaults" {
  command = plan
  assert {
    condition = [helm_release.karpenter.name, helm_release.karpenter.namespace, helm_release.karpenter.create_namespace, helm_release.karpenter.timeout] == [
      "karpenter", "karpenter", true, 1800,
    ]
    error_message = "The release has the names that every guide uses, and time to drain."
  }
  assert {
    condition     = endswith(helm_release.karpenter.chart, "/charts/karpenter") && helm_release.karpenter.repository == null && helm_release.karpenter.version == null
    error_message = "The chart is that of this repository."
  }
  assert {
    condition     = [for each in helm_release.crds : each.name] == ["karpenter-crd"] && helm_release.karpenter.skip_crds
    error_message = "Definitions are a release of their own, so that they are upgraded."
  }
  assert {
    condition = yamldecode(helm_release.karpenter.values[0]) == {
      replicas = 2
      serviceAccount = {
        create      = true
        name        = "karpenter"
        annotations = { "eks.amazonaws.com/role-arn" = "arn:aws:iam::111122223333:role/demo-karpenter" }
      }
      settings = {
        clusterName            = "demo"
        clusterEndpoint        = "https://aws.example"
        eksControlPlane        = true
        interruptionQueue      = "demo"
        defaultInstanceProfile = "KarpenterNodeInstanceProfile-demo"
      }
      legacyApi    = { enabled = false }
      extraObjects = []
    }
    error_message = "What is not given is left to the chart: placement, image, tolerations."
  }
  assert {
    condition     = yamldecode(helm_release.karpenter.values[1]) == {}
    error_message = "The user's values come last, and there are none."
  }
}

run "a_chart_of_ones_own" {
  command = plan
  variables {
    helm_release_name   = "scaler"
    helm_chart_name     = "karpenter"
    helm_chart_version  = "1.2.3"
    helm_repository_url = "oci://registry.example/charts"
    namespace           = "ops"
    create_namespace    = false
  }
  assert {
    condition = [
      helm_release.karpenter.name, helm_release.karpenter.chart, helm_release.karpenter.version, helm_release.karpenter.repository,
      helm_release.karpenter.namespace, helm_release.karpenter.create_namespace,
    ] == ["scaler", "karpenter", "1.2.3", "oci://registry.example/charts", "ops", false]
    error_message = "The release is that of the variables."
  }
  assert {
    condition     = length(helm_release.crds) == 0 && !helm_release.karpenter.skip_crds
    error_message = "A chart from elsewhere brings its own definitions."
  }
  assert {
    condition     = strcontains(local.irsa_trust, "system:serviceaccount:ops:karpenter")
    error_message = "The role is for the service account in that namespace."
  }
}

run "a_repository_without_the_name_of_a_chart" {
  command = plan
  variables {
    helm_repository_url = "oci://registry.example/charts"
  }
  assert {
    condition     = [helm_release.karpenter.chart, helm_release.karpenter.repository] == ["karpenter", "oci://registry.example/charts"]
    error_message = "A repository has no folder of ours."
  }
}

run "a_chart_from_elsewhere_with_the_old_api" {
  command = plan
  variables {
    helm_repository_url = "oci://registry.example/charts"
    legacy_api          = true
  }
  assert {
    condition     = length(helm_release.crds) == 1 && helm_release.karpenter.skip_crds
    error_message = "The chart of the controller does not include the v1alpha5 CRDs."
  }
  assert {
    condition     = yamldecode(helm_release.crds[0].values[0]).legacy
    error_message = "The v1alpha5 CRDs are installed too."
  }
}

run "the_chart_of_the_original_is_noticed" {
  command = plan
  variables {
    helm_repository_url = "oci://public.ecr.aws/karpenter"
    helm_chart_name     = "karpenter"
    helm_chart_version  = "v0.27.3"
  }
  expect_failures = [check.chart_of_the_original]
}

run "an_affinity_among_the_values_keeps_it_off_its_own_nodes" {
  command = plan
  variables {
    karpenter_values = {
      affinity = {
        nodeAffinity = {
          requiredDuringSchedulingIgnoredDuringExecution = {
            nodeSelectorTerms = [{ matchExpressions = [{ key = "role", operator = "In", values = ["ops"] }] }]
          }
        }
      }
    }
  }
  assert {
    condition = [
      for term in yamldecode(helm_release.karpenter.values[2]).affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms :
      [for expression in term.matchExpressions : expression.key]
    ] == [["role", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name"]]
    error_message = "Terms among the values take the place of the chart's, and the rule is added to them."
  }
}

run "an_affinity_among_the_values_as_it_is" {
  command = plan
  variables {
    allow_self_scheduling = true
    karpenter_values = {
      affinity = { nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms = [{ matchExpressions = [] }] } } }
    }
  }
  assert {
    condition     = length(helm_release.karpenter.values) == 2
    error_message = "Nothing is laid over the user's values."
  }
}

run "values_over_ours" {
  command = plan
  variables {
    replica_count    = 1
    image_repository = "registry.example/karpenter/controller"
    image_tag        = "0.1.0"
    node_selector    = { role = "ops" }
    karpenter_values = { logLevel = "debug", settings = { batchMaxDuration = "5s" } }
    manifests        = [{ apiVersion = "karpenter.sh/v1", kind = "NodePool", metadata = { name = "default" } }]
    legacy_api       = true
  }
  assert {
    condition     = yamldecode(helm_release.karpenter.values[1]) == { logLevel = "debug", settings = { batchMaxDuration = "5s" } }
    error_message = "Helm merges them over the module's."
  }
  assert {
    condition = { for key in ["replicas", "controller", "nodeSelector", "legacyApi"] : key => yamldecode(helm_release.karpenter.values[0])[key] } == {
      replicas     = 1
      controller   = { image = { repository = "registry.example/karpenter/controller", tag = "0.1.0" } }
      nodeSelector = { role = "ops" }
      legacyApi    = { enabled = true }
    }
    error_message = "Every variable finds its value."
  }
  assert {
    condition     = jsonencode(yamldecode(helm_release.karpenter.values[0]).extraObjects) == jsonencode(var.manifests)
    error_message = "Manifests go with the chart."
  }
  assert {
    condition     = yamldecode(helm_release.crds[0].values[0]) == { legacy = true, keep = false }
    error_message = "The v1alpha5 CRDs are installed too."
  }
}

run "tolerations_as_a_list" {
  command = plan
  variables {
    tolerations = [{ key = "role", operator = "Equal", value = "ops", effect = "NoSchedule" }, { operator = "Exists" }]
  }
  assert {
    condition = yamldecode(helm_release.karpenter.values[0]).tolerations == [
      { key = "role", operator = "Equal", value = "ops", effect = "NoSchedule" }, { operator = "Exists" },
    ]
    error_message = "The list is passed on."
  }
}

run "tolerations_as_a_map" {
  command = plan
  variables {
    tolerations = { key = "role", operator = "Exists" }
  }
  assert {
    condition     = yamldecode(helm_release.karpenter.values[0]).tolerations == [{ key = "role", operator = "Exists" }]
    error_message = "One map is one toleration."
  }
}

run "tolerations_that_are_none" {
  command = plan
  variables {
    tolerations = []
  }
  assert {
    condition     = !contains(keys(yamldecode(helm_release.karpenter.values[0])), "tolerations")
    error_message = "The chart's own stay."
  }
}

run "tolerations_that_are_something_else" {
  command         = plan
  expect_failures = [var.tolerations]
  variables {
    tolerations = [{ key = "role", operater = "Exists" }]
  }
}

run "tolerations_that_are_text" {
  command         = plan
  expect_failures = [var.tolerations]
  variables {
    tolerations = "role=ops:NoSchedule"
  }
}

run "an_affinity_keeps_it_off_its_own_nodes" {
  command = plan
  variables {
    affinity = {
      nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms = [
        { matchExpressions = [{ key = "role", operator = "In", values = ["ops"] }] },
        { matchFields = [{ key = "metadata.name", operator = "In", values = ["node-1"] }] },
      ] } }
      podAntiAffinity = { requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "kubernetes.io/hostname" }] }
    }
  }
  assert {
    condition = [
      for term in local.own_values.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms :
      [for each in term.matchExpressions : each.key]
    ] == [["role", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name"], ["karpenter.sh/nodepool", "karpenter.sh/provisioner-name"]]
    error_message = "Terms are alternatives, so each has the rule."
  }
  assert {
    condition     = local.own_values.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[0].values == ["node-1"]
    error_message = "Nothing of a term is lost."
  }
  assert {
    condition     = local.own_values.affinity.podAntiAffinity == var.affinity.podAntiAffinity
    error_message = "Nothing else of the affinity is lost."
  }
}

run "an_affinity_without_terms_keeps_it_off_its_own_nodes" {
  command = plan
  variables {
    affinity = { podAntiAffinity = { requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "kubernetes.io/hostname" }] } }
  }
  assert {
    condition     = length(local.own_values.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions) == 2
    error_message = "Setting an affinity would take the chart's away."
  }
}

run "an_affinity_as_it_is" {
  command = plan
  variables {
    affinity              = { podAntiAffinity = { requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "kubernetes.io/hostname" }] } }
    allow_self_scheduling = true
  }
  assert {
    condition     = local.own_values.affinity == var.affinity
    error_message = "The affinity of the values is used if allow_self_scheduling is set."
  }
}

run "pod_identity_needs_no_annotation" {
  command = plan
  variables {
    pod_identity         = true
    service_account_name = "scaler"
  }
  assert {
    condition     = local.own_values.serviceAccount == { create = true, name = "scaler", annotations = {} }
    error_message = "EKS knows the role."
  }
}

run "drains_by_default" {
  command = plan
  assert {
    condition     = terraform_data.machines.input == { cluster = "demo", region = "ap-northeast-2", on_destroy = "drain", timeout_seconds = 1800 }
    error_message = "Machines are drained before the controller goes."
  }
}

run "keeps_machines_and_their_definitions" {
  command = plan
  variables {
    on_destroy           = "keep"
    helm_timeout_seconds = 600
    manifests = [
      { apiVersion = "karpenter.sh/v1", kind = "NodePool", metadata = { name = "default", annotations = { owner = "ops" } }, spec = { weight = 1 } },
      { apiVersion = "karpenter.k8s.aws/v1", kind = "EC2NodeClass", metadata = { name = "default" } },
    ]
  }
  assert {
    condition = yamldecode(helm_release.karpenter.values[0]).extraObjects == [
      {
        apiVersion = "karpenter.sh/v1"
        kind       = "NodePool"
        metadata   = { name = "default", annotations = { owner = "ops", "helm.sh/resource-policy" = "keep" } }
        spec       = { weight = 1 }
      },
      {
        apiVersion = "karpenter.k8s.aws/v1"
        kind       = "EC2NodeClass"
        metadata   = { name = "default", annotations = { "helm.sh/resource-policy" = "keep" } }
      },
    ]
    error_message = "Pools of the release stay, or the machines would go with them."
  }
  assert {
    condition     = terraform_data.machines.input.on_destroy == "keep" && yamldecode(helm_release.crds[0].values[0]).keep
    error_message = "Definitions stay, or the objects of the machines would go with them."
  }
  assert {
    condition     = [terraform_data.machines.input.timeout_seconds, helm_release.karpenter.timeout, helm_release.crds[0].timeout] == [600, 600, 600]
    error_message = "The time limit is that of the variable."
  }
}

run "fails_while_there_are_machines" {
  command = plan
  variables {
    on_destroy = "fail"
  }
  assert {
    condition     = terraform_data.machines.input.on_destroy == "fail"
    error_message = "The script gets the setting."
  }
}

run "on_destroy_that_is_not_known" {
  command         = plan
  expect_failures = [var.on_destroy]
  variables {
    on_destroy = "delete"
  }
}
