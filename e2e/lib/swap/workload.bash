# shellcheck shell=bash
# NodePools and pods of e2e/swap: one case of every setting that affects disruption. Sourced, never run.

class_ref='{group: "karpenter.kwok.sh", kind: "KWOKNodeClass", name: "default"}'

# pool NAME JQ_FILTER
pool() {
  jq -n "{apiVersion: \"karpenter.sh/v1\", kind: \"NodePool\", metadata: {name: \"$1\"}, spec: {
      template: {metadata: {labels: {\"example.com/team\": \"$1\"}}, spec: {
        requirements: [
          {key: \"kubernetes.io/os\", operator: \"In\", values: [\"linux\"]},
          {key: \"kubernetes.io/arch\", operator: \"In\", values: [\"amd64\"]},
          {key: \"karpenter.sh/capacity-type\", operator: \"In\", values: [\"on-demand\"]},
          {key: \"karpenter.kwok.sh/instance-cpu\", operator: \"Lt\", values: [\"17\"]}],
        nodeClassRef: $class_ref}}}} | $2" | kubectl apply -f - >/dev/null
}

# pods NAME REPLICAS CPU POOL [JQ_FILTER]: a Deployment; the filter changes its template.
pods() {
  jq -n "{apiVersion: \"apps/v1\", kind: \"Deployment\", metadata: {name: \"$1\"}, spec: {
      replicas: $2, selector: {matchLabels: {app: \"$1\"}},
      template: {metadata: {labels: {app: \"$1\"}}, spec: {
        terminationGracePeriodSeconds: 1, nodeSelector: {\"karpenter.sh/nodepool\": \"$4\"},
        containers: [{name: \"main\", image: \"registry.k8s.io/pause:3.10\", resources: {requests: {cpu: \"$3\", memory: \"256Mi\"}}}]}}}}
    | .spec.template |= (${5:-.})" | in_namespace apply -f - >/dev/null
}

apply_pools() {
  pool general '.spec.disruption = {consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: "5s", budgets: [{nodes: "50%"}]}
    | .spec.template.spec += {expireAfter: "720h", terminationGracePeriod: "1h"}
    | .spec.template.spec.requirements += [{key: "karpenter.kwok.sh/instance-family", operator: "Exists", minValues: 2}]
    | .spec.template.metadata.annotations = {"example.com/owner": "swap"}'
  # Upstream's kwok provider launches no instance for a static NodePool without instance types.
  pool fixed '.spec.template.spec.requirements += [
      {key: "node.kubernetes.io/instance-type", operator: "In", values: ["c-2x-amd64-linux", "m-2x-amd64-linux"]}]
    | .spec.replicas = 2 | .spec.limits = {nodes: "3"} | .spec.template.spec.expireAfter = "Never"
    | .spec.template.spec.taints = [{key: "example.com/fixed", effect: "NoSchedule"}]'
  # Expires long enough after the launch by one controller to expire under the next.
  pool expiring '.spec.template.spec.expireAfter = "150s" | .spec.disruption = {consolidateAfter: "Never"}'
}

apply_pods() {
  pods plain 12 1500m general
  pods spread 6 700m general '.spec.topologySpreadConstraints = [{maxSkew: 1, topologyKey: "topology.kubernetes.io/zone",
    whenUnsatisfiable: "DoNotSchedule", labelSelector: {matchLabels: {app: "spread"}}}]'
  pods guarded 4 1 general '.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution =
    [{topologyKey: "kubernetes.io/hostname", labelSelector: {matchLabels: {app: "guarded"}}}]'
  in_namespace create poddisruptionbudget guarded --selector app=guarded --min-available 3 >/dev/null
  pods pinned 3 900m general '.metadata.annotations = {"karpenter.sh/do-not-disrupt": "true"}'
  pods fixed 2 1 fixed '.spec.tolerations = [{key: "example.com/fixed", operator: "Exists"}]'
  pods expiring 3 500m expiring
}

scale() { in_namespace scale deployment "$1" --replicas "$2" >/dev/null; }

# --- conditions -------------------------------------------------------------------------------------------------------

# What must be stable: claims and nodes, except those of the NodePool whose nodes expire, and the nodes of pods.
fleet() {
  in_namespace get nodeclaims,nodes,pods -o json | jq -c '[.items[]
    | select(.metadata.labels["karpenter.sh/nodepool"] != "expiring" and .metadata.labels.app != "expiring")
    | [.kind, .metadata.name, .metadata.deletionTimestamp, .spec.nodeName, .status.phase, .spec.taints]] | sort'
}

# at_rest LIMIT_SECONDS QUIET_SECONDS: every pod runs, every claim has its node, and nothing changed for QUIET_SECONDS.
at_rest() {
  local deadline=$((SECONDS + $1)) quiet=$2 last='' now since=$SECONDS
  while true; do
    now=$(fleet)
    if [[ $now != "$last" ]]; then
      last=$now
      since=$SECONDS
    elif ((SECONDS - since >= quiet)) && complete; then
      return 0
    fi
    if ((SECONDS >= deadline)); then
      wrong "the fleet is not stable after $1 s"
      return 1
    fi
    sleep 1
  done
}

complete() {
  in_namespace get nodeclaims,nodes,pods,deployments -o json | jq -e "$definitions"'
    (of("Deployment") | all(.spec.replicas == (.status.readyReplicas // 0) and .spec.replicas == (.status.replicas // 0)))
    and ((of("Node") | ours | map(.spec.providerID) | sort) == (of("NodeClaim") | map(.status.providerID) | sort))
    and (of("NodeClaim") | map(select(.metadata.labels["karpenter.sh/nodepool"] == "fixed")) | length == 2)
    and (of("Node") | all(.spec.taints // [] | all(.key | . != "karpenter.sh/disrupted" and . != "karpenter.sh/unregistered")))
    and (of("NodeClaim") | all(condition("DisruptionReason") != "True"))
    and ([.items[] | select(.metadata.labels["karpenter.sh/nodepool"] != "expiring" and .metadata.labels.app != "expiring")]
      | all(.metadata.deletionTimestamp == null))' >/dev/null
}

dump() { kubectl get nodeclaims,nodes,nodepools,kwoknodeclasses -o json >"$1"; }
