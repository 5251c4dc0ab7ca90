# shellcheck shell=bash
# Kills the controller with SIGKILL at random times while nodes are launched and terminated. Sourced by e2e/live, never run.

# A random number below $1; the same seed gives the same sequence.
below() {
  random_state=$(((random_state * 1103515245 + 12345) % 2147483648))
  printf -v "$2" '%d' "$((random_state / 65536 % $1))"
}

scenario_crashes() { # SIGKILL at random times of scale-out and scale-in leaks nothing
  random_state=$seed
  local round replicas victims victim pause lines
  lines=$(wc -l <"$run_folder/logs/audit.log")
  stop_controller
  node_pool default '.spec.disruption += {consolidateAfter: "3s", budgets: [{nodes: "100%"}]}'
  workload churn 0 1500m "$(apart churn)"
  for ((round = 1; round <= rounds; round++)); do
    # Without leader election: the scenario "election" tests the lease.
    start_controller DISABLE_LEADER_ELECTION=true
    # Every second round scales in, by deleting pods and NodeClaims.
    if ((round % 2)); then
      below 12 replicas
      replicas=$((replicas + 8))
    else
      below 6 replicas
    fi
    in_namespace scale deployment churn --replicas "$replicas" >/dev/null
    if ((round % 3 == 0)); then
      mapfile -t victims < <(names nodeclaims | head -n 3)
      for victim in "${victims[@]}"; do kubectl delete nodeclaim "$victim" --wait=false >/dev/null; done
    fi
    below 5000 pause
    sleep "$((pause / 1000)).$(printf '%03d' "$((pause % 1000))")"
    kill_controller
    say "crashes: round $round of $rounds, $replicas pods, killed after $pause ms, $(names nodeclaims | wc -l) claims"
    # Every third time the cluster must be stable before the next kill; otherwise the kill happens in between.
    if ((round % 3 == 0)); then
      start_controller DISABLE_LEADER_ELECTION=true
      settled "$replicas"
      kill_controller
    fi
  done
  start_controller
  settled "$replicas"
  in_namespace scale deployment churn --replicas 0 >/dev/null
  within 180 "all nodes and claims are gone" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
  sleep 2
  local claims machines doubled
  claims=$(asked_for "$lines" nodeclaims | wc -l)
  machines=$(asked_for "$lines" nodes | wc -l)
  # An instance is a Node that the provider creates; its name contains the name of its claim.
  doubled=$(asked_for "$lines" nodes | sed -E 's/^kwok-(.*)-[^-]+-[^-]+$/\1/' | sort | uniq -d | wc -l)
  note "$rounds rounds, seed $seed: $claims claims created, $machines instances launched, no duplicates, no leaks, no stuck finalizers"
  ((machines > 0)) || { wrong "no instance was launched"; return 1; }
  ((doubled == 0)) || { wrong "$doubled claims have more than one instance"; return 1; }
  ((machines <= claims)) || { wrong "$machines instances were launched for $claims claims"; return 1; }
}

# Names of the objects of kind $2 that the controller created since line $1 of the audit log. A request whose client was killed
# has status 504 there, whether or not it was executed.
asked_for() {
  tail -n "+$(($1 + 1))" "$run_folder/logs/audit.log" 2>/dev/null |
    jq -r --arg kind "$2" 'select(.verb == "create" and .objectRef.resource == $kind)
      | select((.responseStatus.code // 0) as $code | $code < 300 or $code == 504) | .objectRef.name' | sort -u
}

# The requested number of pods run, each on its own node, and there is no other node.
settled() {
  within 180 "$1 pods run" pods "(.items | length) == $1 and (running | length) == $1"
  within 180 "as many nodes as pods" nodes,nodeclaims \
    "(of(\"Node\") | ours | length) == $1 and (of(\"NodeClaim\") | length) == $1"
  consistent 60
}
