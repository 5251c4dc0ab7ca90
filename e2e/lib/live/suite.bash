# shellcheck shell=bash
# Scenarios after upstream's regression suite: drain, DaemonSets, garbage collection and features. Sourced by e2e/live, never
# run.

# shellcheck disable=SC2034  # used by e2e/live
suite_scenarios=(do_not_disrupt drain_order limit_range host_ports garbage_collection events features)

# bare_pod NAME JQ_FILTER: a pod without a controller.
bare_pod() {
  jq -n "{apiVersion: \"v1\", kind: \"Pod\", metadata: {name: \"$1\", labels: {app: \"$1\"}}, spec: {
      terminationGracePeriodSeconds: 0, containers: [
        {name: \"main\", image: \"registry.k8s.io/pause:3.10\", resources: {requests: {cpu: \"10m\"}}}]}} | ${2:-.}" |
    in_namespace apply -f - >/dev/null
}

# daemon_set NAME [JQ_FILTER]: on nodes of Karpenter only; the filter changes the pod spec.
daemon_set() {
  jq -n "{apiVersion: \"apps/v1\", kind: \"DaemonSet\", metadata: {name: \"$1\"}, spec: {
      selector: {matchLabels: {app: \"$1\"}},
      template: {metadata: {labels: {app: \"$1\"}}, spec: {
        nodeSelector: {\"karpenter.sh/nodepool\": \"default\"},
        containers: [{name: \"main\", image: \"registry.k8s.io/pause:3.10\", resources: {requests: {cpu: \"10m\"}}}]}}}}
    | .spec.template.spec |= (${2:-.})" |
    in_namespace apply -f - >/dev/null
}

# Deletes objects that "clean" does not delete.
clean_suite() {
  in_namespace delete daemonsets,limitranges,podtemplates --all --wait=false >/dev/null
  in_namespace delete pods --all --wait=false >/dev/null
}

# lasted POD SECONDS: waits until the pod is gone, which must be this many seconds after its start, within 5 s.
lasted() {
  local started took
  started=$(date -d "$(in_namespace get pod "$1" -o jsonpath='{.status.startTime}')" +%s)
  within $(($2 + 30)) "$1 goes" pods ".items | all(.metadata.name != \"$1\")"
  took=$(($(date +%s) - started))
  note "$(cat "$run_folder/note" 2>/dev/null) $1 after $took s;"
  ((took >= $2 - 5 && took <= $2 + 5)) || { wrong "$1 was deleted after $took s, not $2"; return 1; }
}

scenario_do_not_disrupt() { # a duration protects a pod for that time, "true" until it is removed
  local keep='.metadata.annotations["karpenter.sh/do-not-disrupt"] = '
  node_pool default
  bare_pod short "$keep\"40s\""
  bare_pod long "$keep\"75s\""
  bare_pod always "$keep\"true\""
  within 60 "3 pods run on one node" pods '(running | length) == 3 and (running | map(.spec.nodeName) | unique | length) == 1'
  kubectl delete nodeclaims --all --wait=false >/dev/null
  lasted short 40
  lasted long 75
  during 8 "the last one stays" pods '(running | map(.metadata.name)) == ["always"]'
  in_namespace annotate pod always karpenter.sh/do-not-disrupt- >/dev/null
  within 30 "node and claim are deleted" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
}

scenario_drain_order() { # drain order: workloads, DaemonSet pods, critical workloads, critical DaemonSet pods
  node_pool default
  daemon_set daemon
  daemon_set critical-daemon '.priorityClassName = "system-node-critical"'
  workload plain 3 10m
  workload critical 2 10m '.priorityClassName = "system-cluster-critical"'
  within 60 "7 pods run" pods '(running | length) == 7'
  now "on one node" nodeclaims '(.items | length) == 1'
  local lines claim order
  lines=$(wc -l <"$run_folder/logs/audit.log")
  claim=$(names nodeclaims)
  kubectl delete nodeclaim "$claim" --wait=false >/dev/null
  within 90 "the claim is gone" nodeclaims ".items | all(.metadata.name != \"$claim\")"
  sleep 1
  order=$(tail -n "+$((lines + 1))" "$run_folder/logs/audit.log" |
    jq -r 'select(.objectRef.subresource == "eviction" and (.responseStatus.code // 0) < 300) | .objectRef.name' |
    sed -E 's/^(critical-daemon|critical|daemon|plain)-.*/\1/' | uniq | paste -sd ' ')
  note "$order"
  [[ $order == "plain daemon critical critical-daemon" ]] || { wrong "evicted in the order: $order"; return 1; }
  clean_suite
}

scenario_limit_range() { # defaults of a LimitRange count for DaemonSet pods
  kubectl apply -f - >/dev/null <<'YAML'
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high-priority-daemonsets}
value: 10000000
YAML
  local kind
  for kind in default defaultRequest; do
    jq -n "{apiVersion: \"v1\", kind: \"LimitRange\", metadata: {name: \"limits\"},
      spec: {limits: [{type: \"Container\", $kind: {cpu: \"2\", memory: \"1Gi\"}}]}}" | in_namespace apply -f - >/dev/null
    node_pool default '.spec.disruption = {consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: "0s",
      budgets: [{nodes: "100%"}]}'
    daemon_set agent '.priorityClassName = "high-priority-daemonsets" | .containers[0].resources = {limits: {memory: "1Gi"}}'
    workload large 1 1 '.containers[0].resources = {requests: {memory: "4"}}'
    within 180 "pod and DaemonSet pod run on the only node" nodes,pods '(of("Node") | ours | map(.metadata.name)) as $nodes
      | ($nodes | length) == 1 and (of("Pod") | map(select(.status.phase == "Running")) | length) == 2
        and (of("Pod") | all(.spec.nodeName == $nodes[0]))'
    during 10 "there is still one node" nodes '(.items | ours | length) == 1'
    clean_suite
    clean
  done
  kubectl delete priorityclass high-priority-daemonsets >/dev/null
}

scenario_host_ports() { # host ports of DaemonSet pods that do not run yet are reserved on their nodes
  node_pool default
  daemon_set of-amd64 '.nodeSelector["kubernetes.io/arch"] = "amd64" | .containers[0].ports = [{containerPort: 80, hostPort: 8000}]'
  daemon_set of-arm64 '.nodeSelector["kubernetes.io/arch"] = "arm64" | .containers[0].ports = [{containerPort: 80, hostPort: 9000}]'
  sleep 2
  workload wants-8000 1 100m '.containers[0].ports = [{containerPort: 80, hostPort: 8000}]'
  workload wants-9000 1 100m '.containers[0].ports = [{containerPort: 80, hostPort: 9000}]'
  within 60 "pods and DaemonSet pods run" pods '(running | length) == 4'
  now "each on the other architecture" nodes,pods '
    (of("Node") | map({key: .metadata.name, value: .metadata.labels["kubernetes.io/arch"]}) | from_entries) as $arch
    | [of("Pod")[] | select(.metadata.labels.app | startswith("wants")) | {(.metadata.labels.app): $arch[.spec.nodeName]}] | add
    == {"wants-8000": "arm64", "wants-9000": "amd64"}'
  now "two nodes" nodeclaims '(.items | length) == 2'
  now "no FailedScheduling event for them" events '.items | map(select(.involvedObject.name | startswith("wants")))
    | length > 0 and all(.reason != "FailedScheduling" or .reportingComponent != "karpenter")'
  clean_suite
}

scenario_garbage_collection() { # claims without an instance and instances without a claim are deleted
  kubectl apply -f - >/dev/null <<'YAML'
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: lost}
spec:
  requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
YAML
  within 60 "the claim is ready" nodeclaims '.items[0] | condition("Ready") == "True"'
  kubectl patch nodeclaim lost --subresource status --type merge --patch '{"status":{"providerID":"kwok://nowhere"}}' >/dev/null
  local since=$SECONDS
  within 300 "claim and node are deleted" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
  note "after $((SECONDS - since)) s"
}

# has_event KIND REASON WORDS: an event of Karpenter with a message that begins with WORDS.
has_event() {
  within 30 "event $2 for a $1: $3" events ".items | any(.involvedObject.kind == \"$1\" and .reason == \"$2\"
    and .reportingComponent == \"karpenter\" and (.message | startswith(\"$3\")))"
}

scenario_events() { # events have upstream's messages
  local namespace=live
  # Events of cluster-scoped objects are in the namespace default.
  kubectl delete events --all --namespace default >/dev/null
  in_namespace apply -f - >/dev/null <<'YAML'
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: devices.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "devices.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: device}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: devices.example.com}}]}}
YAML
  bare_pod devices '.spec.resourceClaims = [{name: "device", resourceClaimName: "device"}]
    | .spec.containers[0].resources.claims = [{name: "device"}]'
  node_pool default
  workload fits 1 500m
  workload huge 1 5000
  within 60 "a pod runs" pods '(running | length) == 1'
  has_event Pod Nominated "Pod should schedule on:"
  has_event Pod FailedScheduling "Failed to schedule pod,"
  has_event Pod FailedScheduling "Failed to schedule pod, pod has Dynamic Resource Allocation requirements"
  namespace=default
  has_event NodePool Ready "Status condition transitioned, Type: Ready, Status: Unknown -> True, Reason: Ready"
  local condition
  for condition in Launched Registered Initialized Ready; do
    has_event NodeClaim "$condition" "Status condition transitioned, Type: $condition, Status: Unknown -> True, Reason: $condition"
  done
  kubectl delete nodeclaims --all --wait=false >/dev/null
  has_event Node Finalized "Finalized karpenter.sh/termination"
  has_event NodeClaim Finalized "Finalized karpenter.sh/termination"
  namespace=live
  in_namespace delete resourceclaims --all --wait=false >/dev/null
  kubectl delete deviceclass devices.example.com >/dev/null
  note "$(kubectl get events --all-namespaces -o json | jq -r '[.items[] | select(.reportingComponent == "karpenter") | .reason] | unique | join(" ")')"
}

scenario_features() { # all feature gates, with the documented permissions
  stop_controller
  kubectl create clusterrolebinding karpenter-features --clusterrole karpenter-features \
    --serviceaccount kube-system:karpenter >/dev/null
  start_controller FEATURE_GATES=NodeRepair=true,NodeOverlay=true,StaticCapacity=true,CapacityBuffer=true,PodDeletionCostManagement=true,SpotToSpotConsolidation=true \
    SCHEDULER_CONFIG='{"podTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}}'
  kubectl apply -f - >/dev/null <<'YAML'
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: cheaper}
spec:
  requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]
  priceAdjustment: "-10%"
YAML
  within 30 "the overlay is valid" nodeoverlays '.items[0] | condition("ValidationSucceeded") == "True"'
  # A static NodePool.
  node_pool fixed '.spec += {replicas: 3, limits: {nodes: "5"}}'
  within 60 "three nodes" nodeclaims '(.items | length) == 3 and (.items | all(condition("Ready") == "True"))'
  kubectl scale nodepool fixed --replicas 10 >/dev/null
  within 60 "five nodes, the limit" nodeclaims '(.items | length) == 5 and (.items | all(condition("Ready") == "True"))'
  during 8 "never more" nodeclaims '(.items | length) <= 5'
  kubectl scale nodepool fixed --replicas 1 >/dev/null
  within 90 "one node" nodeclaims '(.items | length) == 1'
  kubectl delete nodepool fixed --wait=false >/dev/null
  within 60 "none" nodeclaims '(.items | length) == 0'
  # A CapacityBuffer without pods.
  node_pool default '.spec.disruption += {consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: "0s"}
    | .spec.template.spec.requirements += [{key: "karpenter.kwok.sh/instance-cpu", operator: "Lt", values: ["3"]}]'
  in_namespace apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: PodTemplate
metadata: {name: shape}
template:
  spec: {containers: [{name: main, image: pause, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare}
spec: {podTemplateRef: {name: shape}, replicas: 3}
YAML
  within 60 "capacity for three" nodeclaims '(.items | length) >= 2 and (.items | all(condition("Ready") == "True"))'
  within 60 "the buffer is ready" capacitybuffers '.items[0] | condition("ReadyForProvisioning") == "True"'
  in_namespace delete capacitybuffers --all >/dev/null
  within 90 "nodes of the deleted buffer are deleted" nodeclaims '(.items | length) == 0'
  # Default topology spread for pods of a Deployment, and pod deletion costs.
  workload spread 3 100m
  within 60 "a node in each of three zones" nodeclaims '(.items | length) == 3
    and (.items | map(.metadata.labels["topology.kubernetes.io/zone"]) | unique | length) == 3'
  within 60 "pods run" pods '(running | length) == 3'
  within 150 "pods have a deletion cost" pods '.items | any(.metadata.annotations["controller.kubernetes.io/pod-deletion-cost"] != null)'
  # An unhealthy node is rebooted.
  local node boot
  node=$(objects pods | jq -r '.items[0].spec.nodeName')
  boot=$(kubectl get node "$node" -o jsonpath='{.status.nodeInfo.bootID}')
  kubectl patch node "$node" --subresource status --type strategic --patch "{\"status\":{\"conditions\":[{\"type\":\"KWOKRebootRequired\",
    \"status\":\"True\",\"reason\":\"Test\",\"lastTransitionTime\":\"$(date -u +%FT%TZ)\",\"lastHeartbeatTime\":\"$(date -u +%FT%TZ)\"}]}}" >/dev/null
  within 180 "$node was rebooted" nodes ".items[] | select(.metadata.name == \"$node\") | .status.nodeInfo.bootID != \"$boot\""
  kubectl delete nodeoverlays --all >/dev/null
  kubectl delete clusterrolebinding karpenter-features >/dev/null
  clean_suite
}
