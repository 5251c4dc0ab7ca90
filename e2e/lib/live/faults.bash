# shellcheck shell=bash
# The API server hangs or dies while nodes are launched. Sourced by e2e/live, never run; e2e/faults runs only these scenarios.

# shellcheck disable=SC2034  # used by e2e/live
fault_scenarios=(frozen_server killed_server killed_server_elected)

# The command line with which the API server was started.
server_command=()
remember_server() {
  local id
  read -r id <"$run_folder/processes/kube-apiserver"
  mapfile -d '' -t server_command <"/proc/$id/cmdline"
}

# The number of NodeClaims that the controller created since line $1 of the audit log.
claims_created() {
  tail -n "+$(($1 + 1))" "$run_folder/logs/audit.log" 2>/dev/null |
    jq -r 'select(.verb == "create" and .objectRef.resource == "nodeclaims" and (.responseStatus.code // 0) < 300) | .auditID' | wc -l
}

# outage_during_scale_out HOW: 40 pods with anti-affinity; the server is unavailable for $outage seconds after the first claims
# exist. Afterwards there must be 40 nodes, 40 claims and 40 running pods, and no claim must have been created twice.
outage_during_scale_out() {
  local id lines since recovered made
  node_pool default
  lines=$(wc -l <"$run_folder/logs/audit.log")
  workload apart 40 500m "$(apart apart)"
  within 60 "the first claims" nodeclaims '(.items | length) > 0'
  read -r id <"$run_folder/processes/kube-apiserver"
  if [[ $1 == freeze ]]; then
    kill -STOP "$id"
    sleep "$outage"
    kill -CONT "$id"
  else
    remember_server
    disown "$id" 2>/dev/null || true
    kill -KILL "$id"
    sleep "$outage"
    start_program "$run_folder" kube-apiserver "${server_command[@]}"
    local deadline=$((SECONDS + 60))
    until kubectl get --raw /readyz >/dev/null 2>&1; do
      ((SECONDS < deadline)) || { wrong "the API server does not become ready again"; return 1; }
      sleep 0.2
    done
  fi
  since=$SECONDS
  # A replica that loses its lease exits; a Deployment would restart it.
  local restarted=
  sleep 2
  if ! program_runs "$run_folder" "$controller"; then
    [[ -n ${2-} ]] || { wrong "the controller exited: $(tail -n 1 "$run_folder/logs/$controller.log")"; return 1; }
    restarted=", restarted after it lost its lease"
    start_controller
  fi
  settled 40
  recovered=$((SECONDS - since))
  sleep 2
  made=$(claims_created "$lines")
  # The controller finds claims whose creation was not confirmed and does not create them again.
  now "exactly 40 claims" nodeclaims '(.items | length) == 40'
  in_namespace scale deployment apart --replicas 0 >/dev/null
  kubectl patch nodepool default --type merge --patch '{"spec":{"disruption":{"consolidateAfter":"1s","budgets":[{"nodes":"100%"}]}}}' >/dev/null
  within 180 "all nodes and claims are gone" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
  note "$outage s outage, stable after $recovered s, $made claims created for 40 nodes$restarted"
  ((made <= 40)) || { wrong "$made claims were created for 40 nodes"; return 1; }
}

scenario_frozen_server() { # the API server does not respond for some time
  stop_controller
  start_controller DISABLE_LEADER_ELECTION=true
  outage_during_scale_out freeze
}

scenario_killed_server() { # the API server is killed and restarted
  stop_controller
  start_controller DISABLE_LEADER_ELECTION=true
  outage_during_scale_out kill
}

scenario_killed_server_elected() { # as killed_server, with leader election: the process exits when it loses the lease
  outage_during_scale_out kill elected
}
