# shellcheck shell=bash
# Measures the resource usage of a controller and the state of the cluster. Sourced, never run.
# Uses $run_folder, $samples, $price_list, $binary and kubectl.

now_ms() { date +%s%3N; }

# --- the process ------------------------------------------------------------------------------------------------------

ticks_per_second=$(getconf CLK_TCK)

# CPU time of process $1 so far, in milliseconds.
cpu_ms_of() {
  local stat rest
  stat=$(</proc/"$1"/stat) || return 1
  # The name is in parentheses and may contain spaces.
  read -ra rest <<<"${stat##*) }"
  printf '%s\n' "$(((rest[11] + rest[12]) * 1000 / ticks_per_second))"
}

# Writes "MILLISECONDS CPU_MS RSS_KB" of process $1 to file $2, four times a second, until the process ends.
sample_process() {
  local cpu rss
  while cpu=$(cpu_ms_of "$1" 2>/dev/null) && rss=$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status" 2>/dev/null); do
    printf '%s %s %s\n' "$(now_ms)" "$cpu" "${rss:-0}"
    sleep 0.25
  done >"$2"
}

# process_figures FROM_MS TO_MS: JSON with the resource usage of the sampled process in that time.
process_figures() {
  awk -v from="$1" -v to="$2" '
    $1 >= from && $1 <= to {
      if (first == "") first = $2
      last = $2
      rss[++count] = $3
    }
    END {
      for (i = 2; i <= count; i++) { value = rss[i]; for (j = i - 1; j > 0 && rss[j] > value; j--) rss[j + 1] = rss[j]; rss[j + 1] = value }
      rank = int(count * 0.95 + 0.999999)
      printf "{\"cpuSeconds\": %.2f, \"memoryP95MB\": %.1f, \"memoryMaxMB\": %.1f, \"samples\": %d}\n",
        (last - first) / 1000, rss[rank] * 1.024 / 1000, rss[count] * 1.024 / 1000, count
    }' "$samples"
}

# --- the cluster ------------------------------------------------------------------------------------------------------

# The numbers of desired, ready and existing pods of all Deployments.
ready_pods() {
  in_namespace get deployments -o jsonpath='{range .items[*]}{.spec.replicas} {.status.readyReplicas} {.status.replicas}{"\n"}{end}' |
    awk '{ asked += $1; ready += $2; there += $3 } END { print asked + 0, ready + 0, there + 0 }'
}

# all_ready LIMIT_SECONDS: waits until all pods are ready and there are no others; fails after that time.
all_ready() {
  local deadline=$((SECONDS + $1)) asked ready there
  while true; do
    read -r asked ready there < <(ready_pods) || true
    ((asked == ready && asked == there)) && return
    if ((SECONDS >= deadline)); then
      say "only $ready of $asked pods are ready after $1 s"
      return 1
    fi
    sleep 0.25
  done
}

# Nodes and claims with the fields that disruption changes: names, deletion, taints.
shape_of_fleet() {
  kubectl get nodes,nodeclaims --no-headers \
    -o custom-columns=KIND:.kind,NAME:.metadata.name,LEAVES:.metadata.deletionTimestamp,TAINTS:.spec.taints[*].key |
    sort | sha256sum
}

# fix_point QUIET_SECONDS LIMIT_SECONDS: waits until the fleet has not changed for QUIET_SECONDS and all pods are ready. Sets
# $fix_point_ms to the time of the last change; fails after LIMIT_SECONDS.
fix_point() {
  local quiet_ms=$(($1 * 1000)) deadline=$((SECONDS + $2)) shape last= asked ready there
  fix_point_ms=$(now_ms)
  while true; do
    shape=$(shape_of_fleet)
    read -r asked ready there < <(ready_pods) || true
    if [[ $shape != "$last" ]] || ((asked != ready || asked != there)); then
      last=$shape
      fix_point_ms=$(now_ms)
    elif (($(now_ms) - fix_point_ms >= quiet_ms)); then
      return
    fi
    if ((SECONDS >= deadline)); then
      say "the fleet still changes after $2 s"
      return 1
    fi
    sleep 1
  done
}

# Prices by type, zone and capacity type, from instance types in kwok's format on standard input.
price_list_of() {
  jq -c '[.[] | .name as $type | .offerings[]
    | (.Requirements | map({(.key): .values[0]}) | add) as $labels
    | {("\($type)/\($labels["topology.kubernetes.io/zone"])/\($labels["karpenter.sh/capacity-type"])"): .Price}] | add'
}

# JSON with the number of nodes and their price. If a node has no price, the total is null.
fleet_figures() {
  kubectl get nodes -l karpenter.sh/nodepool -o json | jq -c --slurpfile prices "$price_list" '
    [.items[].metadata.labels | {type: .["node.kubernetes.io/instance-type"],
      price: $prices[0]["\(.["node.kubernetes.io/instance-type"])/\(.["topology.kubernetes.io/zone"])/\(.["karpenter.sh/capacity-type"])"]}]
    | {nodes: length, pricePerHour: (if all(.price != null) then (map(.price) | add // 0) else null end),
       types: (group_by(.type) | map({(.[0].type): length}) | add // {})}'
}

# The lower bound of the price of the Deployments on the NodePool, from our planner, and the nodes of the plan.
bound_figures() {
  {
    kubectl get nodepools,kwoknodeclasses -o json | jq -c '.items[] | del(.status, .metadata.managedFields)'
    in_namespace get deployments -o json | jq -c '.items[] | del(.status, .metadata.managedFields, .metadata.annotations)'
  } | sed 's/^/---\n/' >"$run_folder/bound.yaml"
  "$binary" plan -f "$run_folder/bound.yaml" -o json |
    jq -c '{lowerBoundPerHour: .cost.lowerBound, planNodes: .stats.nodes, planPricePerHour: .cost.hourly}'
}

# --- requests ---------------------------------------------------------------------------------------------------------

audit_lines() { wc -l <"$run_folder/logs/audit.log" 2>/dev/null || printf '0\n'; }

# request_figures FROM_LINE: JSON with the controller's requests to the API server since that line of the audit log.
request_figures() {
  # The server writes the log with a delay.
  sleep 1
  tail -n "+$(($1 + 1))" "$run_folder/logs/audit.log" | jq -cn '
    reduce (inputs | select(.stage == "ResponseComplete" and .objectRef != null)) as $one
      ({requests: 0, evictions: 0, evictionsRefused: 0, claimsCreated: 0, claimsDeleted: 0, refused: 0};
        ([$one.verb, $one.objectRef.resource, $one.objectRef.subresource // ""] | join(" ")) as $what
        | ($one.responseStatus.code // 0) as $code
        | .requests += 1
        | if $what == "create pods eviction" then (if $code < 300 then .evictions += 1 else .evictionsRefused += 1 end) else . end
        | if $what == "create nodeclaims " and $code < 300 then .claimsCreated += 1 else . end
        | if $what == "delete nodeclaims " and $code < 300 then .claimsDeleted += 1 else . end
        | if $code == 403 then .refused += 1 else . end)'
}
