# shellcheck shell=bash
# The controller is killed without warning at random moments while nodes come and go. Sourced by e2e/live, never run.

# A number below $1, from the seed: the same seed kills at the same moments, as far as a busy machine has such.
below() {
  random_state=$(((random_state * 1103515245 + 12345) % 2147483648))
  printf -v "$2" '%d' "$((random_state / 65536 % $1))"
}

scenario_crashes() { # kill -9 at random moments of growing and shrinking leaves nothing behind
  random_state=$seed
  local round replicas victims victim pause lines
  lines=$(wc -l <"$run_folder/logs/audit.log")
  stop_controller
  node_pool default '.spec.disruption += {consolidateAfter: "3s", budgets: [{nodes: "100%"}]}'
  workload churn 0 1500m "$(apart churn)"
  for ((round = 1; round <= rounds; round++)); do
    # Waiting for the lease of the dead would only take time; the scenario "election" does it.
    start_controller DISABLE_LEADER_ELECTION=true
    # Every second round shrinks, by pods that go and by claims that somebody deletes.
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
    # Every third time everything must have come to rest before the next blow; otherwise it comes in the middle.
    if ((round % 3 == 0)); then
      start_controller DISABLE_LEADER_ELECTION=true
      settled "$replicas"
      kill_controller
    fi
  done
  start_controller
  settled "$replicas"
  in_namespace scale deployment churn --replicas 0 >/dev/null
  within 180 "nothing is left" nodes,nodeclaims '(of("NodeClaim") | length) == 0 and (of("Node") | ours | length) == 0'
  sleep 2
  local claims machines doubled
  claims=$(asked_for "$lines" nodeclaims | wc -l)
  machines=$(asked_for "$lines" nodes | wc -l)
  # A machine is a Node that the provider creates, and its name says which claim it is for.
  doubled=$(asked_for "$lines" nodes | sed -E 's/^kwok-(.*)-[^-]+-[^-]+$/\1/' | sort | uniq -d | wc -l)
  note "$rounds rounds, seed $seed: $claims claims made, $machines machines bought, none twice, nothing leaked, no finalizer stuck"
  ((machines > 0)) || { wrong "no machine was bought"; return 1; }
  ((doubled == 0)) || { wrong "$doubled claims got more than one machine"; return 1; }
  ((machines <= claims)) || { wrong "$machines machines were bought for $claims claims"; return 1; }
}

# Names of what the controller has created of kind $2 since line $1 of the audit log. A request whose sender was killed counts
# as 504 there, whether or not it was carried out.
asked_for() {
  tail -n "+$(($1 + 1))" "$run_folder/logs/audit.log" 2>/dev/null |
    jq -r --arg kind "$2" 'select(.verb == "create" and .objectRef.resource == $kind)
      | select((.responseStatus.code // 0) as $code | $code < 300 or $code == 504) | .objectRef.name' | sort -u
}

# As many pods as were asked for, each on a node of its own, and no node besides.
settled() {
  within 180 "$1 pods run" pods "(.items | length) == $1 and (running | length) == $1"
  within 180 "as many nodes as pods" nodes,nodeclaims \
    "(of(\"Node\") | ours | length) == $1 and (of(\"NodeClaim\") | length) == $1"
  consistent 60
}
