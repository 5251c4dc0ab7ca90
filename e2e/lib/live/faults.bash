# shellcheck shell=bash
# The API server falls silent or dies while nodes come up. Sourced by e2e/live, never run; e2e/faults runs these alone.

# shellcheck disable=SC2034  # used by e2e/live
fault_scenarios=(frozen_server killed_server killed_server_elected)

# The command line of the API server, as it was started.
server_command=()
remember_server() {
  local id
  read -r id <"$run_folder/processes/kube-apiserver"
  mapfile -d '' -t server_command <"/proc/$id/cmdline"
}

# Claims that the controller has created since line $1 of the audit log.
claims_created() {
  tail -n "+$(($1 + 1))" "$run_folder/logs/audit.log" 2>/dev/null |
    jq -r 'select(.verb == "create" and .objectRef.resource == "nodeclaims" and (.responseStatus.code // 0) < 300) | .auditID' | wc -l
}

# outage_during_scale_out HOW: 40 pods that keep apart; the server is away for $outage seconds from the moment that the first
# claims exist. Afterwards there must be 40 nodes, 40 claims and 40 running pods, and no claim must have been made twice.
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
      ((SECONDS < deadline)) || { wrong "the API server does not come back"; return 1; }
      sleep 0.2
    done
  fi
  since=$SECONDS
  # A copy that lost its lease has ended, as it must; a Deployment would start it again.
  local restarted=
  sleep 2
  if ! program_runs "$run_folder" "$controller"; then
    [[ -n ${2-} ]] || { wrong "the controller ended: $(tail -n 1 "$run_folder/logs/$controller.log")"; return 1; }
    restarted=", started again after it lost its lease"
    start_controller
  fi
  settled 40
  recovered=$((SECONDS - since))
  sleep 2
  made=$(claims_created "$lines")
  # Claims whose answer was lost are found again by what they are for, not made once more.
  now "no claim too many" nodeclaims '(.items | length) == 40'
  in_namespace scale deployment apart --replicas 0 >/dev/null
  kubectl patch nodepool default --type merge --patch '{"spec":{"disruption":{"consolidateAfter":"1s","budgets":[{"nodes":"100%"}]}}}' >/dev/null
  within 180 "nothing is left" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
  note "$outage s away, at rest $recovered s later, $made claims made for 40 nodes$restarted"
  ((made <= 40)) || { wrong "$made claims were made for 40 nodes"; return 1; }
}

scenario_frozen_server() { # the API server answers nothing for a while
  stop_controller
  start_controller DISABLE_LEADER_ELECTION=true
  outage_during_scale_out freeze
}

scenario_killed_server() { # the API server is killed and started again
  stop_controller
  start_controller DISABLE_LEADER_ELECTION=true
  outage_during_scale_out kill
}

scenario_killed_server_elected() { # the same with an election: a lost lease ends the process
  outage_during_scale_out kill elected
}
