# shellcheck shell=bash
# Upstream's Karpenter and ours, one after the other, as upstream's chart runs them: its roles, its environment, no arguments,
# leader election. Sourced by e2e/swap, never run.
# Uses $run_folder, $controller_kubeconfig, $upstream, $binary, $our_environment, $feature_gates and the helpers of e2e/live.

lease() { kubectl --namespace kube-system get lease karpenter-leader-election -o jsonpath='{.spec.holderIdentity}' 2>/dev/null || true; }

# render_template FILE: a template of upstream's chart rendered for a release "karpenter" in kube-system with default values.
# Supports only what the templates of roles use, and fails for anything else.
render_template() {
  awk '
    /\{\{-? *(with|if|range) / { depth++; next }
    /\{\{-? *end/ { depth--; next }
    depth > 0 || /\{\{-? *include "karpenter\.labels"/ { next }
    {
      gsub(/\{\{ *include "karpenter\.fullname" \. *\}\}/, "karpenter")
      gsub(/\{\{ *(include|template) "karpenter\.serviceAccountName" \. *\}\}/, "karpenter")
      gsub(/\{\{ *\.Release\.Namespace *\}\}/, "kube-system")
      if (/\{\{/) { print FILENAME ": cannot render: " $0 >"/dev/stderr"; exit 1 }
      print
    }
    END { print "\n---" }' "$1"
}

# Creates the service account of upstream's chart with its permissions, and a kubeconfig for it.
use_upstream_roles() {
  local file token
  kubectl --namespace kube-system create serviceaccount karpenter >/dev/null
  for file in clusterrole clusterrole-kwok role rolebinding; do
    render_template "$upstream/roles/$file.yaml" || fail "upstream's chart has a role that this script cannot render"
  done | kubectl apply -f - >/dev/null
  token=$(kubectl --namespace kube-system create token karpenter --duration 12h)
  (
    umask 077
    kubectl config view --raw -o json | jq --arg token "$token" '.users[0].user = {token: $token}' >"$controller_kubeconfig"
  )
}

controller=
controller_count=0

# launch_karpenter upstream|compat|cost: starts it without waiting. Sets $controller, $metrics_port and $health_port.
launch_karpenter() {
  local who=$1 command=()
  metrics_port=$(free_port)
  taken_ports+=("$metrics_port")
  health_port=$(free_port)
  taken_ports+=("$health_port")
  controller_count=$((controller_count + 1))
  controller=karpenter-$(printf '%03d' "$controller_count")-$who
  case $who in
    upstream) command=("$upstream/karpenter-kwok") ;;
    *) command=("${our_environment[@]}" PLANNER_MODE="$who" ENABLE_DECISION_JOURNAL=true "$binary") ;;
  esac
  lease_before=$(lease)
  # The first two replace files that a pod has.
  start_program "$run_folder" "$controller" env KUBECONFIG="$controller_kubeconfig" LEADER_ELECTION_NAMESPACE=kube-system \
    KUBERNETES_MIN_VERSION=1.19.0-0 \
    KARPENTER_SERVICE=karpenter LOG_LEVEL=debug METRICS_PORT="$metrics_port" HEALTH_PROBE_PORT="$health_port" \
    SYSTEM_NAMESPACE=kube-system MEMORY_LIMIT=1073741824 CPU_REQUESTS=1000 FEATURE_GATES="$feature_gates" \
    BATCH_MAX_DURATION=3s BATCH_IDLE_DURATION=1s PREFERENCE_POLICY=Respect MIN_VALUES_POLICY=Strict "${command[@]}"
}

# start_karpenter upstream|compat|cost: starts it and waits until it holds the lease; 15 s longer after a kill.
start_karpenter() {
  local who=$1 deadline=$((SECONDS + 120))
  launch_karpenter "$who"
  until [[ -n $(lease) && $(lease) != "$lease_before" ]] && curl --silent --fail "http://127.0.0.1:$health_port/readyz" >/dev/null; do
    program_runs "$run_folder" "$controller" || fail "$who exited: $(tail -n 1 "$run_folder/logs/$controller.log")"
    ((SECONDS < deadline)) || fail "$who does not hold the lease after 120 s"
    sleep 0.2
  done
}

# As the kubelet: SIGTERM, and 30 s to release the lease.
stop_karpenter() {
  [[ -n $controller ]] || return 0
  local id deadline=$((SECONDS + 30))
  read -r id <"$run_folder/processes/$controller"
  kill "$id" 2>/dev/null || true
  while program_runs "$run_folder" "$controller" && ((SECONDS < deadline)); do sleep 0.1; done
  stop_program "$run_folder" "$controller"
  controller=
}

# As the kernel when a process exceeds its memory limit.
kill_karpenter() {
  local id
  read -r id <"$run_folder/processes/$controller"
  disown "$id" 2>/dev/null || true
  kill -KILL "$id"
  rm -f "$run_folder/processes/$controller"
  controller=
}

# decisions FILE: our decision journal so far, with reasons.
decisions() { curl --silent --fail "http://127.0.0.1:$metrics_port/debug/decisions" >"$1"; }
