# shellcheck shell=bash
# The cases of e2e/swap. Each starts and ends with upstream's controller stopped and a stable fleet. Sourced, never run.

# shellcheck disable=SC2034  # used by e2e/swap
cases=(compat cost midway kills)
# shellcheck disable=SC2034
declare -A case_titles=(
  [compat]="upstream, ours in mode compat, upstream: only scaling changes nodes"
  [cost]="upstream, ours in mode cost, upstream: consolidation is explained by the decision journal"
  [midway]="each is killed right after it tainted a node for disruption; the other one continues"
  [short]="as compat, with one scaling; only if named"
  [kills]="both are killed at random times during scaling; no claim is lost, duplicated or gets a new hash"
)

# Longest wait for a stable fleet, in seconds.
settle_limit=300

# check WHAT ARGUMENT...: runs check.py and prints one line; findings are printed below a failure.
check() {
  local what=$1 output
  shift
  if output=$(python3 "$e2e_folder/lib/swap/check.py" "$@"); then
    printf 'PASS  %-18s %s: %s\n' "$scenario" "$what" "$(tail -n 1 <<<"$output")"
  else
    failures=$((failures + 1))
    printf 'FAIL  %-18s %s: %s\n' "$scenario" "$what" "$(tail -n 1 <<<"$output")"
    head -n -1 <<<"$output" | head -n 20 | sed 's/^/        /'
  fi
}

# record NAME: records every change of claims until "recorded"; sets $recording.
record() {
  recording=$run_folder/logs/recorder-$1.log
  recorder=recorder-$1
  start_program "$run_folder" "$recorder" "$binaries/kubectl" --kubeconfig "$kubeconfig" get nodeclaims --watch \
    --output-watch-events -o json
}
recorded() { stop_program "$run_folder" "$recorder"; }

consolidation_policy() {
  kubectl patch nodepool general --type merge --patch "{\"spec\":{\"disruption\":{\"consolidationPolicy\":\"$1\"}}}" >/dev/null
}

# Scales in after upstream launched nodes, so that consolidation can save something.
leave_savings() {
  scale plain 24
  at_rest "$settle_limit" 10 || return 1
  consolidation_policy WhenEmpty
  scale plain 9
}

# swap_and_back MODE PODS...: upstream, ours in this mode with these numbers of plain pods one after the other, upstream.
swap_and_back() {
  local mode=$1 pods dumps=$run_folder/logs/$1
  shift
  start_karpenter upstream
  if [[ $mode == cost ]]; then leave_savings || return 1; fi
  at_rest "$settle_limit" "$quiet" || return 1
  dump "$dumps-1-upstream.json"
  stop_karpenter
  consolidation_policy WhenEmptyOrUnderutilized

  record "$mode-taken-over"
  start_karpenter "$mode"
  at_rest "$settle_limit" "$quiet" || return 1
  dump "$dumps-2-taken-over.json"
  decisions "$dumps-decisions.json"
  recorded
  if [[ $mode == compat ]]; then
    check "ours takes over" unchanged "$dumps-1-upstream.json" "$dumps-2-taken-over.json" --without-pool expiring
    check "ours at rest" watched "$recording"
  else
    check "ours takes over" stamps "$dumps-1-upstream.json" "$dumps-2-taken-over.json"
    check "ours at rest" watched "$recording" --reasons Underutilized,Empty --explained "$dumps-decisions.json" --at-least 1
  fi

  record "$mode-scaled"
  for pods in "$@"; do
    scale plain "$pods"
    at_rest "$settle_limit" "$quiet" || return 1
  done
  dump "$dumps-3-scaled.json"
  recorded
  check "ours scales out and in" watched "$recording" --reasons Underutilized,Empty
  check "ours keeps stamps" stamps "$dumps-2-taken-over.json" "$dumps-3-scaled.json"
  stop_karpenter

  record "$mode-handed-back"
  start_karpenter upstream
  at_rest "$settle_limit" "$quiet" || return 1
  dump "$dumps-4-handed-back.json"
  recorded
  if [[ $mode == compat ]]; then
    check "upstream takes over" unchanged "$dumps-3-scaled.json" "$dumps-4-handed-back.json" --without-pool expiring \
      --restart-of-upstream
    check "upstream at rest" watched "$recording"
  else
    check "upstream takes over" stamps "$dumps-3-scaled.json" "$dumps-4-handed-back.json"
    check "upstream at rest" watched "$recording" --reasons Underutilized,Empty
  fi
  stop_karpenter
}

case_compat() { swap_and_back compat 20 7; }
case_cost() { swap_and_back cost 20 7; }
case_short() { swap_and_back compat 16; }

# Kills the controller as soon as a node has the disruption taint.
kill_midway() {
  within 120 "a node is being disrupted" nodes \
    '.items | any(.spec.taints // [] | any(.key == "karpenter.sh/disrupted"))' || return 1
  kill_karpenter
}

case_midway() {
  local turn first second dumps=$run_folder/logs/midway
  for turn in "upstream compat" "compat upstream" "upstream cost" "cost upstream"; do
    read -r first second <<<"$turn"
    start_karpenter "$first"
    scale plain 20
    at_rest "$settle_limit" "$quiet" || return 1
    dump "$dumps-1.json"
    record "midway-$first-$second"
    scale plain 7
    kill_midway || return 1
    start_karpenter "$second"
    at_rest "$settle_limit" "$quiet" || return 1
    dump "$dumps-2.json"
    recorded
    stop_karpenter
    check "$first, then $second" watched "$recording" --reasons Underutilized,Empty
    check "$first, then $second" stamps "$dumps-1.json" "$dumps-2.json"
  done
}

# A random pause of up to $1 ms.
random_pause() {
  local pause
  below "$1" pause
  sleep "$((pause / 1000)).$(printf '%03d' "$((pause % 1000))")"
  paused=$pause
}

# A random scaling of a Deployment.
random_scale() {
  local replicas
  below 18 replicas
  scale plain "$((replicas + 4))"
  scaled=$((replicas + 4))
}

case_kills() {
  local round mode first second story dumps=$run_folder/logs/kills
  random_state=$seed
  start_karpenter upstream
  at_rest "$settle_limit" "$quiet" || return 1
  dump "$dumps-0.json"
  stop_karpenter
  for ((round = 1; round <= rounds; round++)); do
    if ((round % 2)); then mode=compat; else mode=cost; fi
    # Both are killed in turn, and each continues from the state that the other left.
    if ((round / 2 % 2)); then first=$mode second=upstream; else first=upstream second=$mode; fi
    record "kills-$round"
    # Every third time it is killed during its start, with or without the lease.
    if ((round % 3 == 0)); then launch_karpenter "$first"; else start_karpenter "$first"; fi
    random_scale
    random_pause 8000
    kill_karpenter
    story="$scaled pods, $first killed after $paused ms"
    start_karpenter "$second"
    random_scale
    random_pause 8000
    kill_karpenter
    story+=", $scaled pods, $second killed after $paused ms"
    say "kills: round $round of $rounds, seed $seed: $story"
    start_karpenter "$first"
    at_rest "$settle_limit" "$quiet" || return 1
    dump "$dumps-$round.json"
    recorded
    stop_karpenter
    check "round $round" watched "$recording" --reasons Underutilized,Empty
    check "round $round" stamps "$dumps-$((round - 1)).json" "$dumps-$round.json"
  done
  nothing_left
}

# Everything is deleted; no claim, node or finalizer stays.
nothing_left() {
  start_karpenter upstream
  in_namespace delete deployments,poddisruptionbudgets --all --wait=false >/dev/null
  kubectl delete nodepools --all --wait=false >/dev/null
  within 300 "nothing is left" nodes,nodeclaims,nodepools,pods \
    '(.items | map(select(.kind != "Node")) | length) == 0 and (of("Node") | ours | length) == 0' || return 1
  stop_karpenter
  printf 'PASS  %-18s no claim, node or pool is left\n' "$scenario"
}

# Requests that the API server denied. Upstream's role lacks one permission that our controller does not require.
permissions() {
  local refused requests
  requests='select(.objectRef != null)
    | "\(.verb) \([.objectRef.apiGroup, .objectRef.resource, .objectRef.subresource] | map(select(. != null)) | join("/"))"'
  refused=$(jq -r "select(.responseStatus.code == 403) | $requests" "$run_folder/logs/audit.log" | grep -vx 'patch pods/status' |
    sort | uniq -c || true)
  if [[ -n $refused ]]; then
    failures=$((failures + 1))
    printf 'FAIL  %-18s refused: %s\n' permissions "$(paste -sd ';' <<<"$refused")"
  else
    printf 'PASS  %-18s of %s requests none was refused but %s patches of pods/status\n' permissions "$(wc -l <"$run_folder/logs/audit.log")" \
      "$(jq -r "select(.responseStatus.code == 403) | $requests" "$run_folder/logs/audit.log" | wc -l)"
  fi
  printf 'NOTE  %-18s %s\n' events "$(kubectl get events --all-namespaces -o json |
    jq -r '[.items[] | select(.source.component == "karpenter") | .reason] | group_by(.) | map("\(length) \(.[0])") | join(", ")')"
}
