# What the controller may do: launch, tag and end machines of this cluster, and nothing to anything else. policies.json is what
# `karpenter bootstrap aws -o json` prints, with the account and the cluster left open; a test of that command compares the two. One
# policy per concern, because a single one would pass IAM's limit of 6,144 characters.

locals {
  policies_file = "${path.module}/policies.json"
  # Read without filling in, so that the names of resources depend on nothing that is looked up.
  policy_names = [
    for name in keys(jsondecode(file(local.policies_file))) : trimsuffix(name, "-$${cluster}")
    if var.interruption || !startswith(name, "KarpenterControllerInterruptionPolicy")
  ]
  documents = jsondecode(templatefile(local.policies_file, {
    cluster   = local.eks_cluster_name
    partition = local.partition
    region    = local.region
    account   = local.account
  }))
  policies = { for name in local.policy_names : name => jsonencode(local.documents["${name}-${local.eks_cluster_name}"]) }
}
