# shellcheck shell=bash
# The cases of e2e/compare-upstream. Each starts with an empty cluster and a running controller ($subject: upstream or ours) and
# reports figures with "result". Sourced, never run.

# shellcheck disable=SC2034  # used by e2e/compare-upstream
cases=(plain spread protected drift nominations)
# shellcheck disable=SC2034
declare -A case_titles=(
  [plain]="1,000 pods of two sizes, then scale-in to 700"
  [spread]="as plain, small pods with topology spread over hosts (maxSkew 1)"
  [protected]="as plain, every tenth pod with do-not-disrupt"
  [drift]="600 pods, then a change of the NodePool's template"
  [nominations]="1,000 pods at once, ours with and without nominations"
)
# Ours only, if upstream has no such feature or was not selected.
declare -A case_subjects=([plain]="upstream ours" [spread]="upstream ours" [protected]=ours [drift]=ours [nominations]=ours)

# pool CONSOLIDATE_AFTER: at most 32 vCPU, on-demand, amd64, Linux.
pool() {
  jq -n --arg after "$1" --arg budget "$budget" '{apiVersion: "karpenter.sh/v1", kind: "NodePool", metadata: {name: "default"}, spec: {
      disruption: {consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: $after, budgets: [{nodes: $budget}]},
      template: {spec: {
        expireAfter: "Never",
        requirements: [
          {key: "kubernetes.io/os", operator: "In", values: ["linux"]},
          {key: "kubernetes.io/arch", operator: "In", values: ["amd64"]},
          {key: "karpenter.sh/capacity-type", operator: "In", values: ["on-demand"]},
          {key: "karpenter.kwok.sh/instance-cpu", operator: "Lt", values: ["33"]}],
        nodeClassRef: {group: "karpenter.kwok.sh", kind: "KWOKNodeClass", name: "default"}}}}}' |
    kubectl apply -f - >/dev/null
}

# pods NAME COUNT CPU MEMORY [JQ_FILTER]: a Deployment; the filter changes its template.
pods() {
  jq -n --arg name "$1" --argjson count "$2" --arg cpu "$3" --arg memory "$4" '{apiVersion: "apps/v1", kind: "Deployment",
      metadata: {name: $name}, spec: {replicas: $count, selector: {matchLabels: {app: $name}},
        # Recreate, so that a changed template causes no rolling update.
        strategy: {type: "Recreate"},
        template: {metadata: {labels: {app: $name}}, spec: {terminationGracePeriodSeconds: 1, containers: [
          {name: "main", image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: $cpu, memory: $memory}}}]}}}}
      | .spec.template |= ('"${5:-.}"')' | in_namespace apply -f - >/dev/null
}

spread_filter='.spec.topologySpreadConstraints = [{maxSkew: 1, topologyKey: "kubernetes.io/hostname",
  whenUnsatisfiable: "DoNotSchedule", labelSelector: {matchLabels: {app: "small"}}}]'
protected_filter='.metadata.annotations = {"karpenter.sh/do-not-disrupt": "true"}'

# phase NAME FROM_MS TO_MS FROM_AUDIT_LINE [EXTRA_JSON]: reports all figures of a phase.
phase() {
  local process fleet bound requests extra=${5:-}
  [[ -n $extra ]] || extra='{}'
  process=$(process_figures "$2" "$3")
  fleet=$(fleet_figures)
  bound=$(bound_figures)
  requests=$(request_figures "$4")
  result "$(jq -cn --arg phase "$1" --argjson seconds "$(awk -v ms="$(($3 - $2))" 'BEGIN { print ms / 1000 }')" \
    --argjson pods "$(read -r asked _ < <(ready_pods) && printf '%s' "$asked")" \
    --argjson process "$process" --argjson fleet "$fleet" --argjson bound "$bound" --argjson requests "$requests" \
    --argjson extra "$extra" '{phase: $phase, pods: $pods, seconds: $seconds} + $process + $fleet + $bound + $requests + $extra
      | .overBoundPercent = (if .pricePerHour and .lowerBoundPerHour > 0
          then (.pricePerHour / .lowerBoundPerHour - 1) * 100 else null end)')"
}

# out_and_in SMALL_FILTER LARGE_FILTER [COUNT_PROTECTED]: scale-out and scale-in of the two deployments.
out_and_in() {
  local half=$((pod_count / 2)) fewer=$((pod_count * 35 / 100)) from audit protected=${3:-0} complete=true
  pool Never
  audit=$(audit_lines)
  from=$(now_ms)
  pods small $((half - protected / 2)) 900m 3100Mi "$1"
  pods large $((half - protected / 2)) 3500m 28Gi "$2"
  if ((protected > 0)); then
    pods small-protected $((protected / 2)) 900m 3100Mi "$protected_filter"
    pods large-protected $((protected / 2)) 3500m 28Gi "$protected_filter"
  fi
  all_ready "$limit_seconds" || complete=false
  phase "scale-out" "$from" "$(now_ms)" "$audit" "{\"complete\": $complete}"
  $complete || return 0

  # Nodes of earlier batches may be empty already; only scale-in is counted.
  sleep 5
  audit=$(audit_lines)
  from=$(now_ms)
  pool "$consolidate_after"
  in_namespace scale deployment small large --replicas $((fewer - protected / 2)) >/dev/null
  fix_point "$quiet_seconds" "$limit_seconds" || complete=false
  phase "scale-in" "$from" "$fix_point_ms" "$audit" "{\"complete\": $complete}"
}

case_plain() { out_and_in . .; }
case_spread() { out_and_in "$spread_filter" .; }
case_protected() { out_and_in . . $((pod_count / 10)); }

case_drift() {
  local from audit complete=true
  pool Never
  audit=$(audit_lines)
  from=$(now_ms)
  pods small $((pod_count * 3 / 10)) 900m 3100Mi
  pods large $((pod_count * 3 / 10)) 3500m 28Gi
  all_ready "$limit_seconds" || complete=false
  phase "scale-out" "$from" "$(now_ms)" "$audit" "{\"complete\": $complete}"
  $complete || return 0
  sleep 5
  audit=$(audit_lines)
  from=$(now_ms)
  kubectl patch nodepool default --type merge --patch \
    '{"spec":{"template":{"metadata":{"labels":{"example.com/version":"two"}}}}}' >/dev/null
  fix_point "$quiet_seconds" "$limit_seconds" || complete=false
  local old
  old=$(kubectl get nodes -l 'karpenter.sh/nodepool,example.com/version!=two' --no-headers 2>/dev/null | wc -l)
  phase "drift" "$from" "$fix_point_ms" "$audit" "{\"complete\": $complete, \"nodesOfTheOldTemplate\": $old}"
}

case_nominations() {
  local disabled
  for disabled in false true; do
    if $disabled; then
      stop_subject
      empty_cluster
    fi
    nominations_once "$disabled"
  done
}

# All pods are pending before the controller starts, so that the first batch contains all of them and any later node is not in
# the first plan.
nominations_once() {
  local from audit complete=true phase_name=with
  $1 && phase_name=without
  stop_subject
  pool Never
  pods small $((pod_count / 2)) 900m 3100Mi
  pods large $((pod_count / 2)) 3500m 28Gi
  within 300 "all pods are unschedulable" pods "(.items | length) == $pod_count and (.items | all(condition(\"PodScheduled\") == \"False\"))"
  audit=$(audit_lines)
  start_subject "DISABLE_POD_NOMINATION=$1"
  from=$(now_ms)
  all_ready "$limit_seconds" || complete=false
  local to as_planned elsewhere planned_nodes
  to=$(now_ms)
  as_planned=$(metric karpenter_pods_planned_bound_total 'as_planned="true"')
  elsewhere=$(metric karpenter_pods_planned_bound_total 'as_planned="false"')
  # The log line of the first batch has the number of claims that it created.
  planned_nodes=$(jq -R 'fromjson? | select((.launched // .fields.launched // 0) > 0) | .launched // .fields.launched' \
    "$run_folder/logs/$controller.log" | head -n 1)
  phase "$phase_name" "$from" "$to" "$audit" "$(jq -cn --argjson complete "$complete" --argjson planned "$as_planned" \
    --argjson elsewhere "$elsewhere" --argjson nodes "${planned_nodes:-null}" \
    '{complete: $complete, boundAsPlanned: $planned, boundElsewhere: $elsewhere, nodesOfFirstPlan: $nodes}')"
}
