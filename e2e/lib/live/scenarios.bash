# shellcheck shell=bash
# The scenarios of e2e/live, in the order they run in. Each starts with an empty cluster, a running controller and a
# KWOKNodeClass "default", and ends with the first command that fails. Sourced by e2e/live, never run.

# shellcheck disable=SC2034  # used by e2e/live
scenarios=(inflate anti_affinity limits taints startup_taints standalone_claim node_deleted claim_deleted budget_blocks
  grace_period expiration registration_timeout missing_class others_untouched scale_to_zero drift restart election nominations crashes)

scenario_inflate() { # 100 pods run
  node_pool default
  workload inflate 100 1
  within 90 "100 pods run" pods '(running | length) == 100'
  consistent 30
  note "$(names nodeclaims | wc -l) nodes, all pods after $((SECONDS - scenario_started)) s"
}

scenario_anti_affinity() { # 100 pods with anti-affinity get 100 nodes
  node_pool default
  workload apart 100 100m "$(apart apart)"
  within 150 "100 pods run" pods '(running | length) == 100'
  now "each on its own node" pods '(bound | map(.spec.nodeName) | unique | length) == 100'
  now "exactly 100 claims" nodeclaims '(.items | length) == 100'
  note "all pods after $((SECONDS - scenario_started)) s"
}

scenario_limits() { # limits of a NodePool are respected, and pods run after they are raised
  local capacity='(of("Node") | ours | map(.status.capacity.cpu | tonumber) | add // 0)'
  node_pool default '.spec.limits = {cpu: "8"}'
  workload limited 40 1
  within 60 "some pods run" pods '(running | length) > 0'
  during 15 "nodes have at most 8 CPUs and some pods are pending" nodes,pods "$capacity <= 8 and (of(\"Pod\") | any(.spec.nodeName == null))"
  now "the status of the NodePool has the resources of its nodes" nodes,nodepools "(of(\"NodePool\")[0].status.resources.cpu | tonumber) == $capacity"
  kubectl patch nodepool default --type merge --patch '{"spec":{"limits":{"cpu":"200"}}}' >/dev/null
  within 60 "all pods run" pods '(running | length) == 40'
}

scenario_taints() { # taints of a NodePool keep other pods away
  node_pool default '.spec.template.spec.taints = [{key: "example.com/special", value: "yes", effect: "NoSchedule"}]'
  workload stranger 3 500m
  within 30 "the scheduler marked the pods as unschedulable" pods '(.items | length) == 3 and (.items | all(condition("PodScheduled") == "False"))'
  during 8 "no claim for pods that do not tolerate the taint" nodeclaims '(.items | length) == 0'
  workload friend 3 500m '.tolerations = [{key: "example.com/special", operator: "Exists"}]'
  within 60 "the tolerating pods run" pods '(running | map(select(.metadata.labels.app == "friend")) | length) == 3'
  now "the node has the taint" nodes '(.items | ours) as $nodes | ($nodes | length) > 0
    and ($nodes | all(.spec.taints | any(.key == "example.com/special" and .value == "yes")))'
  now "the others are still pending" pods '(bound | map(select(.metadata.labels.app == "stranger")) | length) == 0'
}

scenario_startup_taints() { # a node is not initialized until another controller removes its startup taint
  node_pool default '.spec.template.spec.startupTaints = [{key: "example.com/agent", effect: "NoSchedule"}]'
  workload waiting 5 500m
  within 60 "the claim is registered" nodeclaims '(.items | length) > 0 and (.items | all(condition("Registered") == "True"))'
  during 6 "one node, not initialized, no pod on it" nodeclaims,pods \
    '(of("NodeClaim") | length) == 1 and (of("NodeClaim")[0] | condition("Initialized")) != "True" and (bound | length) == 0'
  kubectl taint nodes --all example.com/agent:NoSchedule- >/dev/null
  within 60 "the claim is initialized" nodeclaims '.items | all(condition("Initialized") == "True")'
  within 60 "pods run" pods '(running | length) == 5'
  now "the taint was not added again" nodes '.items | ours | all(.spec.taints == null)'
}

scenario_standalone_claim() { # a NodeClaim without a NodePool
  kubectl apply -f - >/dev/null <<'YAML'
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: alone}
spec:
  requirements:
    - {key: kubernetes.io/os, operator: In, values: [linux]}
    - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  resources: {requests: {cpu: "3"}}
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
YAML
  within 60 "the claim is ready" nodeclaims '.items[0] | condition("Ready") == "True"'
  now "its node has the requested resources" nodes,nodeclaims \
    '(of("NodeClaim")[0].status.nodeName) as $name | of("Node")[] | select(.metadata.name == $name)
     | (.status.allocatable.cpu | rtrimstr("m") | tonumber) >= 3 and .metadata.labels["karpenter.sh/capacity-type"] == "on-demand"'
  kubectl delete nodeclaim alone --wait=false >/dev/null
  within 60 "claim and node are deleted" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
}

# Three pods, each on its own node.
three_nodes() {
  node_pool default
  workload apart 3 500m "$(apart apart)"
  within 60 "3 pods run" pods '(running | length) == 3'
  consistent 30
}

# On three nodes again, none of which is $1.
recovered_without() {
  within 120 "3 pods run, none on $1" pods "(running | length) == 3 and (running | all(.spec.nodeName != \"$1\"))"
  within 60 "$1 is gone" nodes ".items | all(.metadata.name != \"$1\")"
  consistent 60
  now "three nodes" nodeclaims '(.items | length) == 3'
}

scenario_node_deleted() { # kubectl delete node: its claim is deleted, its pods are rescheduled
  three_nodes
  local node claim
  claim=$(names nodeclaims | head -n 1)
  node=$(kubectl get nodeclaim "$claim" -o jsonpath='{.status.nodeName}')
  kubectl delete node "$node" --wait=false >/dev/null
  recovered_without "$node"
  now "the claim is deleted" nodeclaims ".items | all(.metadata.name != \"$claim\")"
}

scenario_claim_deleted() { # kubectl delete nodeclaim: its pods are rescheduled, its node is deleted
  three_nodes
  local node claim
  claim=$(names nodeclaims | head -n 1)
  node=$(kubectl get nodeclaim "$claim" -o jsonpath='{.status.nodeName}')
  kubectl delete nodeclaim "$claim" --wait=false >/dev/null
  recovered_without "$node"
}

# A PodDisruptionBudget that allows no eviction of pods of three_nodes.
strict_budget() {
  in_namespace create poddisruptionbudget strict --selector app=apart --max-unavailable 0 >/dev/null
  within 20 "the budget has a status" poddisruptionbudgets '.items | all(.status.observedGeneration == 1)'
}

scenario_budget_blocks() { # a PodDisruptionBudget blocks a drain until it allows the eviction
  three_nodes
  strict_budget
  local node claim
  claim=$(names nodeclaims | head -n 1)
  node=$(kubectl get nodeclaim "$claim" -o jsonpath='{.status.nodeName}')
  kubectl delete nodeclaim "$claim" --wait=false >/dev/null
  within 20 "the node is tainted" nodes \
    ".items[] | select(.metadata.name == \"$node\") | .spec.taints | any(.key == \"karpenter.sh/disrupted\")"
  during 12 "the pod stays" pods "(running | map(select(.spec.nodeName == \"$node\")) | length) == 1"
  in_namespace delete poddisruptionbudget strict >/dev/null
  recovered_without "$node"
}

scenario_grace_period() { # terminationGracePeriod terminates a node regardless of PodDisruptionBudgets
  node_pool default '.spec.template.spec.terminationGracePeriod = "25s"'
  workload apart 3 500m "$(apart apart) | .terminationGracePeriodSeconds = 5"
  within 60 "3 pods run" pods '(running | length) == 3'
  consistent 30
  strict_budget
  local node claim
  claim=$(names nodeclaims | head -n 1)
  node=$(kubectl get nodeclaim "$claim" -o jsonpath='{.status.nodeName}')
  kubectl delete nodeclaim "$claim" --wait=false >/dev/null
  # The pod is deleted early enough for its own grace period, not before.
  during 12 "the pod stays" pods "(running | map(select(.spec.nodeName == \"$node\")) | length) == 1"
  recovered_without "$node"
}

scenario_expiration() { # expireAfter 30s
  node_pool default '.spec.template.spec.expireAfter = "30s"'
  workload old 2 500m "$(apart old)"
  within 60 "2 pods run" pods '(running | length) == 2'
  local first
  first=$(names nodeclaims | jq -Rn '[inputs]')
  during 10 "claims do not expire early" nodeclaims "[.items[].metadata.name] as \$now | $first | all(IN(\$now[]))"
  within 90 "the first claims are deleted and pods run on others" nodeclaims,pods \
    "([of(\"NodeClaim\")[].metadata.name] | all(IN($first[]) | not)) and (of(\"Pod\") | map(select(.status.phase == \"Running\")) | length) == 2"
}

# backdate CLAIM CONDITION WHEN: sets the transition time of the condition.
backdate() {
  local since patch
  since=$(date -u -d "$3" +%FT%TZ)
  patch=$(kubectl get nodeclaim "$1" -o json | jq --arg type "$2" --arg since "$since" '{status: {conditions: (.status.conditions
    | map(if .type == $type then .lastTransitionTime = $since else . end))}}')
  kubectl patch nodeclaim "$1" --subresource status --type merge --patch "$patch" >/dev/null
}

scenario_registration_timeout() { # a claim that is not registered after 15 min is deleted and replaced
  kubectl patch kwoknodeclass default --type merge --patch '{"spec":{"nodeRegistrationDelay":"1h"}}' >/dev/null
  node_pool default
  workload lost 1 500m
  within 60 "a claim is launched" nodeclaims '(.items | length) == 1 and (.items[0] | condition("Launched") == "True")'
  kubectl patch kwoknodeclass default --type merge --patch '{"spec":{"nodeRegistrationDelay":null}}' >/dev/null
  local claim since
  claim=$(names nodeclaims)
  # The pod has a reservation, so no other claim is created for it.
  during 8 "its node is not registered, and there is no other claim" nodes,nodeclaims \
    '(of("NodeClaim") | length) == 1 and (of("Node") | ours | length) == 0'
  backdate "$claim" Registered '-14 minutes -45 seconds'
  since=$SECONDS
  during 5 "the claim is not deleted early" nodeclaims ".items | any(.metadata.name == \"$claim\" and .metadata.deletionTimestamp == null)"
  within 60 "$claim is deleted" nodeclaims ".items | all(.metadata.name != \"$claim\")"
  note "deleted $((SECONDS - since)) s after its age was 885 s"
  [[ $(curl --silent "http://127.0.0.1:$metrics_port/metrics") == *'karpenter_nodeclaims_disrupted_total{'*'reason="registration_timeout"'* ]] ||
    { wrong "the metric counted no registration timeout"; return 1; }
  within 60 "the pod runs on another node" pods '(running | length) == 1'
  consistent 30
  now "one machine" nodeclaims '(.items | length) == 1'
}

scenario_missing_class() { # a NodePool with a missing node class launches nothing until the class exists
  node_pool default '.spec.template.spec.nodeClassRef.name = "later"'
  workload patient 3 500m
  within 30 "the NodePool is not ready" nodepools '.items[0] | condition("Ready") == "False" and condition("NodeClassReady") == "False"'
  during 8 "no claim" nodeclaims '(.items | length) == 0'
  node_class later
  within 60 "pods run" pods '(running | length) == 3'
  now "the NodePool is ready" nodepools '.items[0] | condition("Ready") == "True"'
  clean
  kubectl delete kwoknodeclass later >/dev/null
}

# Resource versions of objects that are not Karpenter's.
versions_of_others() {
  local namespace=others
  objects nodes,nodeclaims,nodepools,pods |
    jq -r '.items[] | select(.metadata.labels.owner == "others") | "\(.kind)/\(.metadata.name) \(.metadata.resourceVersion)"'
}

scenario_others_untouched() { # Karpenter does not write objects that are not its own
  kubectl create namespace others --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  # kwok does not simulate its kubelet: only Karpenter could write to it while it is young.
  kubectl apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Node
metadata: {name: others-node, labels: {owner: others, kubernetes.io/hostname: others-node}}
spec: {providerID: "other://machine"}
---
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: others, labels: {owner: others}}
spec: {nodeName: others-node, tolerations: [{operator: Exists}], containers: [{name: main, image: pause}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gated, namespace: others, labels: {owner: others}}
spec: {schedulingGates: [{name: example.com/later}], containers: [{name: main, image: pause}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other-scheduler, namespace: others, labels: {owner: others}}
spec: {schedulerName: other, containers: [{name: main, image: pause}]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: others-pool, labels: {owner: others}}
spec:
  template:
    spec:
      requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: others-claim, labels: {owner: others}}
spec:
  requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
YAML
  kubectl patch node others-node --subresource status --type merge --patch '{"status":{"conditions":[{"type":"Ready","status":"True",
    "reason":"KubeletReady","message":"ready","lastHeartbeatTime":"2030-01-01T00:00:00Z","lastTransitionTime":"2024-01-01T00:00:00Z"}],
    "capacity":{"cpu":"1","memory":"1Gi","pods":"1"}}}' >/dev/null
  # Waits for the controllers of the control plane.
  local before after deadline=$((SECONDS + 30))
  before=
  after=$(versions_of_others)
  until [[ $before == "$after" ]]; do
    ((SECONDS < deadline)) || { wrong "other objects keep changing"; return 1; }
    before=$after
    sleep 5
    after=$(versions_of_others)
  done
  [[ $(wc -l <<<"$before") == 6 ]] || { wrong "expected 6 other objects, found: $before"; return 1; }
  node_pool default
  workload ours 5 500m "$(apart ours)"
  within 60 "our pods run" pods '(running | length) == 5'
  kubectl delete nodeclaim "$(names nodeclaims | grep -v others | head -n 1)" --wait=false >/dev/null
  within 60 "our pods run again" nodeclaims,pods '(of("NodeClaim") | all(.metadata.deletionTimestamp == null))
    and (of("Pod") | length) == 5 and (of("Pod") | all(.status.phase == "Running"))'
  stop_controller
  start_controller
  sleep 5
  after=$(versions_of_others)
  [[ $before == "$after" ]] || { wrong "other objects changed: $(diff <(printf '%s' "$before") <(printf '%s' "$after") | tr '\n' ' ')"; return 1; }
  note "6 objects, with a restart of the controller"
  kubectl delete nodepools,nodeclaims,nodes --selector owner=others --wait=false >/dev/null
  kubectl delete namespace others --wait=false >/dev/null
}

scenario_scale_to_zero() { # only empty nodes are deleted
  node_pool default '.spec.disruption += {consolidateAfter: "5s", budgets: [{nodes: "100%"}]}'
  workload busy 2 500m "$(apart busy)"
  workload idle 10 500m "$(apart idle)"
  within 90 "12 pods run" pods '(running | length) == 12'
  # The plan decides which pods share a node; nodes with a busy pod stay.
  local kept
  kept=$(objects pods | jq -r "[.items[] | select(.metadata.labels.app == \"busy\") | .spec.nodeName] | sort | unique")
  in_namespace scale deployment idle --replicas 0 >/dev/null
  within 150 "only nodes with pods are left" nodes "(.items | ours | map(.metadata.name) | sort) == $kept"
  consistent 30
  in_namespace scale deployment busy --replicas 0 >/dev/null
  within 150 "no node is left" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
}

scenario_drift() { # a change of the NodePool makes its claims drifted
  node_pool default
  workload stays 2 500m
  within 60 "2 pods run" pods '(running | length) == 2'
  during 5 "not drifted" nodeclaims '.items | all(condition("Drifted") == null)'
  node_pool default '.spec.template.metadata.labels = {"example.com/version": "two"}'
  within 60 "claims are drifted or replaced by newer ones" nodeclaims \
    '(.items | length) > 0 and (.items | all(condition("Drifted") == "True" or .metadata.labels["example.com/version"] == "two"))'
}

scenario_restart() { # a restart writes nothing in a stable cluster
  node_pool default
  workload steady 20 500m "$(apart steady)"
  within 90 "20 pods run" pods '(running | length) == 20'
  consistent 30
  sleep 3
  local before after
  before=$(objects nodes,nodeclaims,nodepools | jq -r '.items[] | "\(.kind)/\(.metadata.name) \(.metadata.resourceVersion)"' | sort)
  stop_controller
  start_controller
  sleep 10
  after=$(objects nodes,nodeclaims,nodepools | jq -r '.items[] | "\(.kind)/\(.metadata.name) \(.metadata.resourceVersion)"' | sort)
  [[ $before == "$after" ]] || { wrong "the restart changed: $(diff <(printf '%s' "$before") <(printf '%s' "$after") | head -n 6 | tr '\n' ' ')"; return 1; }
}

scenario_election() { # the second replica takes over when the leader is killed
  local first=$controller
  start_controller
  local second=$controller
  node_pool default
  workload led 5 500m
  within 60 "5 pods run" pods '(running | length) == 5'
  now "one copy's claims" nodeclaims '(.items | length) == 1'
  controller=$first
  kill_controller
  controller=$second
  local since=$SECONDS
  workload more 5 500m "$(apart more)"
  within 90 "the other replica is the leader" pods '(running | length) == 10'
  consistent 30
  note "5 more pods run $((SECONDS - since)) s after the kill"
}

# $1 pods of three sizes that fit their nodes tightly, created before the NodePool. Prints how many pods were bound to the new node
# of the plan, the number of nodes, and how many of them are not in the first plan.
share_bound_as_planned() {
  local planned elsewhere nodes first
  workload small $(($1 / 2)) 700m >&2
  workload middle $(($1 / 4)) 1900m >&2
  workload large $(($1 / 4)) 3300m >&2
  within 120 "$1 pods wait" pods "(.items | length) == $1 and (.items | all(condition(\"PodScheduled\") == \"False\"))" >&2 || return 1
  node_pool default '.spec.template.spec.requirements += [
    {key: "karpenter.kwok.sh/instance-cpu", operator: "Lt", values: ["17"]}]' >&2
  within 300 "$1 pods run" pods "(running | length) == $1" >&2 || return 1
  planned=$(metric karpenter_pods_planned_bound_total 'as_planned="true"')
  elsewhere=$(metric karpenter_pods_planned_bound_total 'as_planned="false"')
  nodes=$(names nodeclaims | wc -l)
  first=$(jq -Rr 'fromjson? | .launched | select(. != null and . > 0)' "$run_folder/logs/$controller.log" | head -n 1)
  printf '%s of %s as planned, %s nodes, %s beyond the plan' "$planned" "$((planned + elsewhere))" "$nodes" "$((nodes - first))"
}

# pods_bound_as_planned PODS: with nominations, and without.
pods_bound_as_planned() {
  stop_controller
  start_controller
  with=$(share_bound_as_planned "$1")
  clean
  stop_controller
  start_controller DISABLE_POD_NOMINATION=true
  without=$(share_bound_as_planned "$1")
  note "with: $with; without: $without"
  stop_controller
  start_controller
}

scenario_nominations() { # share of pods bound as planned, with and without nominations
  local with without
  pods_bound_as_planned 200
  # The share depends on whether kube-controller-manager removes the last taint of a new node before our controller nominates its
  # pods. Without nominations it is random.
  ((${with%% *} >= 100)) || { wrong "fewer than half of the pods are bound as planned"; return 1; }
  ((${with%% *} > 2 * ${without%% *})) || { wrong "nominations make no difference"; return 1; }
}

scenario_nominations_1000() { # as nominations, with 1,000 pods
  local with without
  pods_bound_as_planned 1000
  ((${with%% *} > 2 * ${without%% *})) || { wrong "nominations make no difference"; return 1; }
}
