project = "demo"
env     = "dev"
region  = "ap-northeast-2"

eks_cluster_name = "demo-dev"

image_repository = "registry.example/karpenter/controller"

replica_count = 2

node_selector = {
  role = "ops"
}

affinity = {
  nodeAffinity = {
    requiredDuringSchedulingIgnoredDuringExecution = {
      nodeSelectorTerms = [{
        matchExpressions = [{
          key      = "role"
          operator = "In"
          values   = ["ops"]
        }]
      }]
    }
  }
}

tolerations = [{
  key      = "role"
  operator = "Equal"
  value    = "ops"
  effect   = "NoSchedule"
}]

karpenter_values = {
  logLevel = "debug"
}
