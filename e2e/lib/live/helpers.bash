# shellcheck shell=bash
# Functions for the scenarios of e2e/live: objects, conditions, and the controller. Sourced by e2e/live, never run. Uses
# $run_folder, $kubeconfig, $binaries, $binary and $as_administrator.

namespace=live
kubectl() { "$binaries/kubectl" --kubeconfig "$kubeconfig" "$@"; }
# Cluster-scoped kinds ignore the namespace.
in_namespace() { kubectl --namespace "$namespace" "$@"; }

# --- conditions -------------------------------------------------------------------------------------------------------

# JSON of all objects of these kinds (pods: those of the scenarios).
objects() { in_namespace get "$1" -o json; }

# is KINDS JQ_FILTER: whether the filter is true for the list of objects.
is() { objects "$1" 2>/dev/null | jq -e "$definitions $2" >/dev/null; }

# Definitions for the filters.
definitions='
def running: .items | map(select(.status.phase == "Running" and .metadata.deletionTimestamp == null));
def bound: .items | map(select(.spec.nodeName != null));
def of(k): [.items[] | select(.kind == k)];
def condition(t): .status.conditions // [] | map(select(.type == t)) | first | .status;
def ours: map(select(.metadata.labels["kwok.x-k8s.io/node"] == "fake" and (.spec.providerID // "" | startswith("kwok://"))));
'

# within SECONDS WHAT KINDS JQ_FILTER: waits until the filter is true; otherwise the scenario fails.
within() {
  local seconds=$1 what=$2 kinds=$3 filter=$4 deadline=$((SECONDS + $1))
  until is "$kinds" "$filter"; do
    if ((SECONDS >= deadline)); then
      wrong "not within $seconds s: $what" "$kinds"
      return 1
    fi
    sleep 0.3
  done
}

# during SECONDS WHAT KINDS JQ_FILTER: the filter must be true for the whole time.
during() {
  local what=$2 kinds=$3 filter=$4 deadline=$((SECONDS + $1))
  while ((SECONDS < deadline)); do
    if ! is "$kinds" "$filter"; then
      wrong "no longer true: $what" "$kinds"
      return 1
    fi
    sleep 0.5
  done
}

# now WHAT KINDS JQ_FILTER: the filter must be true.
now() { within 0 "$@"; }

# Records a failure with the objects.
wrong() {
  printf '%s' "$1" >"$run_folder/reason"
  { in_namespace get "${2:-nodes,nodeclaims,nodepools,pods}" -o wide && objects "${2:-nodes,nodeclaims,nodepools,pods}"; } \
    >"$run_folder/logs/$scenario-objects.txt" 2>&1 || true
}

# A remark that is printed with the result of the scenario.
note() { printf '%s' "$*" >"$run_folder/note"; }

# --- objects ----------------------------------------------------------------------------------------------------------

# node_class NAME
node_class() {
  kubectl apply -f - >/dev/null <<YAML
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: $1}
YAML
}

# node_pool NAME [JQ_FILTER]: a NodePool without restrictions except Linux; the filter changes it.
node_pool() {
  jq -n "{apiVersion: \"karpenter.sh/v1\", kind: \"NodePool\", metadata: {name: \"$1\"}, spec: {
      disruption: {consolidationPolicy: \"WhenEmpty\", consolidateAfter: \"Never\"},
      template: {spec: {
        expireAfter: \"Never\",
        requirements: [{key: \"kubernetes.io/os\", operator: \"In\", values: [\"linux\"]}],
        nodeClassRef: {group: \"karpenter.kwok.sh\", kind: \"KWOKNodeClass\", name: \"default\"}}}}} | ${2:-.}" |
    kubectl apply -f - >/dev/null
}

# workload NAME REPLICAS CPU [JQ_FILTER]: a Deployment; the filter changes the pod spec.
workload() {
  jq -n "{apiVersion: \"apps/v1\", kind: \"Deployment\", metadata: {name: \"$1\"}, spec: {
      replicas: $2, selector: {matchLabels: {app: \"$1\"}},
      template: {metadata: {labels: {app: \"$1\"}}, spec: {containers: [
        {name: \"main\", image: \"registry.k8s.io/pause:3.10\", resources: {requests: {cpu: \"$3\", memory: \"256Mi\"}}}]}}}}
    | .spec.template.spec |= (${4:-.})" |
    in_namespace apply -f - >/dev/null
}

# A filter that gives pods with the label app=$1 anti-affinity over hosts.
apart() {
  printf '.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution =
    [{topologyKey: "kubernetes.io/hostname", labelSelector: {matchLabels: {app: "%s"}}}]' "$1"
}

# names KIND: names of all objects, sorted, one per line.
names() { in_namespace get "$1" -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}' | sort; }

# Deletes the objects of scenarios and waits until they no longer exist.
clean() {
  in_namespace delete deployments,poddisruptionbudgets --all --wait=false >/dev/null
  kubectl delete nodepools --all --wait=false >/dev/null
  in_namespace delete pods --all --wait=false >/dev/null
  kubectl delete nodeclaims --all --wait=false >/dev/null
  within 120 "all objects of the scenario are gone" nodes,nodeclaims,nodepools,pods \
    '(.items | map(select(.kind != "Node")) | length) == 0 and (of("Node") | ours | length) == 0'
}

# Every node of Karpenter has a claim, every claim a node, none is terminating, and every pod runs.
consistent() {
  within "$1" "every node has its claim, every claim its node, every pod runs" nodes,nodeclaims,pods '
    (of("Node") | ours | map(.spec.providerID) | sort) as $nodes
    | (of("NodeClaim") | map(.status.providerID) | sort) as $claims
    | $nodes == $claims
      and (.items | all(.metadata.deletionTimestamp == null))
      and (of("NodeClaim") | all(condition("Ready") == "True"))
      and (of("Pod") | all(.status.phase == "Running"))'
}

# --- the controller ---------------------------------------------------------------------------------------------------

controller_count=0

# start_controller [NAME=VALUE...]: with these variables and the permissions of deploy/rbac.yaml. Sets $metrics_port.
start_controller() {
  local health_port deadline=$((SECONDS + 60))
  metrics_port=$(free_port)
  taken_ports+=("$metrics_port")
  health_port=$(free_port)
  taken_ports+=("$health_port")
  controller_count=$((controller_count + 1))
  controller=karpenter-$(printf '%03d' "$controller_count")
  start_program "$run_folder" "$controller" env KUBECONFIG="$controller_kubeconfig" METRICS_PORT="$metrics_port" \
    HEALTH_PROBE_PORT="$health_port" LOG_LEVEL=debug "$@" "$binary" controller --provider kwok
  until curl --silent --fail "http://127.0.0.1:$health_port/readyz" >/dev/null; do
    program_runs "$run_folder" "$controller" || { wrong "the controller exited: $(tail -n 1 "$run_folder/logs/$controller.log")"; return 1; }
    ((SECONDS < deadline)) || { wrong "the controller is not ready after 60 s"; return 1; }
    sleep 0.1
  done
}

stop_controller() {
  [[ -n ${controller-} ]] || return 0
  stop_program "$run_folder" "$controller"
}

# As the kernel when a process exceeds its memory limit: no cleanup.
kill_controller() {
  local id
  read -r id <"$run_folder/processes/$controller"
  # Suppresses the shell's message about the kill.
  disown "$id" 2>/dev/null || true
  kill -KILL "$id"
  rm -f "$run_folder/processes/$controller"
}

# metric NAME LABEL="VALUE": the value of a metric; 0 if it does not exist.
metric() {
  curl --silent "http://127.0.0.1:$metrics_port/metrics" | awk -v want="$1{$2}" '$1 == want { found = $2 } END { print found + 0 }'
}

# requests JQ_FILTER: the controller's requests to the API server so far that match the filter: number, verb and kind.
requests() {
  jq -r "$1"' | select(.objectRef != null)
    | [.verb, .objectRef.apiGroup, .objectRef.resource, .objectRef.subresource] | map(select(. != null)) | join(" ")' \
    "$run_folder/logs/audit.log" | sort | uniq -c | sed -E 's/^ +//'
}

# A kubeconfig of the service account in deploy/rbac.yaml.
write_controller_kubeconfig() {
  kubectl apply -f "$e2e_folder/../deploy/rbac.yaml" >/dev/null
  local token
  token=$(kubectl --namespace kube-system create token karpenter --duration 12h)
  (
    umask 077
    kubectl config view --raw -o json | jq --arg token "$token" '.users[0].user = {token: $token}' >"$controller_kubeconfig"
  )
}

# After a failure: deletes everything, removing finalizers.
force_clean() {
  in_namespace delete deployments,daemonsets,limitranges,poddisruptionbudgets --all --wait=false >/dev/null 2>&1 || true
  local kind name
  for kind in nodepools nodeclaims nodes pods; do
    in_namespace delete "$kind" --all --wait=false --force --grace-period 0 >/dev/null 2>&1 || true
    for name in $(names "$kind"); do
      in_namespace patch "$kind" "$name" --type merge --patch '{"metadata":{"finalizers":null}}' >/dev/null 2>&1 || true
    done
  done
}
