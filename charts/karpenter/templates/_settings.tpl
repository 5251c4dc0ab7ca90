{{/*
Values of older charts. Each row has the old path, the current path (empty: no replacement) and, without a replacement, the
reason. Rows with legacy apply if the v1alpha5 API is served (globalsettings.yaml). An old value is used only if the current
value has its default, so that in a file with both the current value wins.
*/}}
{{- define "karpenter.oldValues" -}}
- {old: settings.aws.clusterName, new: settings.clusterName}
- {old: clusterName, new: settings.clusterName}
- {old: settings.aws.clusterEndpoint, new: settings.clusterEndpoint}
- {old: clusterEndpoint, new: settings.clusterEndpoint}
- {old: settings.aws.clusterCABundle, new: settings.clusterCABundle}
- {old: settings.aws.isolatedVPC, new: settings.isolatedVPC}
- {old: settings.aws.vmMemoryOverheadPercent, new: settings.vmMemoryOverheadPercent}
- {old: settings.aws.reservedENIs, new: settings.reservedENIs}
- {old: settings.aws.interruptionQueueName, new: settings.interruptionQueue}
- {old: settings.aws.defaultInstanceProfile, new: settings.defaultInstanceProfile}
- {old: aws.defaultInstanceProfile, new: settings.defaultInstanceProfile}
- {old: controller.batchMaxDuration, new: settings.batchMaxDuration}
- {old: controller.batchIdleDuration, new: settings.batchIdleDuration}
- {old: controller.logLevel, new: logLevel}
- {old: controller.outputPaths, new: logOutputPaths}
- {old: controller.errorOutputPaths, new: logErrorOutputPaths}
- {old: controller.logEncoding, new: logFormat}
- {old: logEncoding, new: logFormat}
- {old: logConfig.logLevel.controller, new: logLevel}
- {old: logConfig.logLevel.global, new: logLevel}
- {old: logConfig.logEncoding, new: logFormat}
- {old: logConfig.outputPaths, new: logOutputPaths}
- {old: logConfig.errorOutputPaths, new: logErrorOutputPaths}
- {old: settings.aws.tags, legacy: true, why: "put tags into spec.tags of each EC2NodeClass"}
- {old: settings.aws.enablePodENI, why: "pod ENIs are always reported"}
- {old: settings.aws.enableENILimitedPodDensity, legacy: true, why: "set spec.kubelet.maxPods of the EC2NodeClass"}
- {old: settings.aws.nodeNameConvention, why: "nodes have the name that EC2 assigns"}
- {old: settings.aws.assumeRoleARN, why: "give the role to the service account"}
- {old: settings.aws.assumeRoleDuration, why: "give the role to the service account"}
- {old: settings.assumeRoleARN, why: "give the role to the service account"}
- {old: settings.assumeRoleDuration, why: "give the role to the service account"}
- {old: settings.featureGates.driftEnabled, legacy: true, why: "drift of NodePools is always on, a disruption budget can limit it"}
- {old: settings.featureGates.drift, legacy: true, why: "drift of NodePools is always on, a disruption budget can limit it"}
- {old: webhook, why: "there is no webhook: the CRDs contain the rules"}
{{- end -}}

{{/* The value at a path, as JSON; empty if there is none: (dict "values" $.Values "path" "a.b") */}}
{{- define "karpenter.valueAt" -}}
{{- $at := .values -}}
{{- $found := true -}}
{{- range $part := splitList "." .path -}}
{{- if and $found (kindIs "map" $at) (hasKey $at $part) -}}
{{- $at = index $at $part -}}
{{- else -}}
{{- $found = false -}}
{{- end -}}
{{- end -}}
{{- if and $found (not (kindIs "invalid" $at)) -}}
{{- dict "value" $at | toJson -}}
{{- end -}}
{{- end -}}

{{/* Old values that are set, with their rows, as a JSON list. */}}
{{- define "karpenter.oldValuesSeen" -}}
{{- $values := .Values -}}
{{- $seen := list -}}
{{- range $row := include "karpenter.oldValues" . | fromYamlArray -}}
{{- with include "karpenter.valueAt" (dict "values" $values "path" $row.old) -}}
{{- $value := (fromJson .).value -}}
{{- if or $value (kindIs "bool" $value) -}}
{{- $seen = append $seen (merge (dict "value" $value) $row) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $seen -}}
{{- end -}}

{{/* The defaults of the current values that an old value may replace. */}}
{{- define "karpenter.replaceable" -}}
settings: {clusterName: "", clusterEndpoint: "", clusterCABundle: "", isolatedVPC: false, vmMemoryOverheadPercent: 0.075,
  reservedENIs: "0", interruptionQueue: "", defaultInstanceProfile: "", batchMaxDuration: 10s, batchIdleDuration: 1s}
logLevel: info
logFormat: json
logOutputPaths: [stdout]
logErrorOutputPaths: [stderr]
{{- end -}}

{{/* Settings and logging with old values at their current paths, as JSON. */}}
{{- define "karpenter.effective" -}}
{{- $effective := dict "settings" (deepCopy .Values.settings) -}}
{{- range $key := list "logLevel" "logFormat" "logOutputPaths" "logErrorOutputPaths" -}}
{{- $_ := set $effective $key (index $.Values $key) -}}
{{- end -}}
{{- $defaults := include "karpenter.replaceable" . | fromYaml -}}
{{- range $row := include "karpenter.oldValuesSeen" . | fromJsonArray -}}
{{- if $row.new -}}
{{- $parts := splitList "." $row.new -}}
{{- $key := last $parts -}}
{{- $target := $effective -}}
{{- $default := index $defaults $key -}}
{{- if gt (len $parts) 1 -}}
{{- $target = $effective.settings -}}
{{- $default = index $defaults.settings $key -}}
{{- end -}}
{{- if eq (index $target $key | default $default | toJson) ($default | toJson) -}}
{{- $_ := set $target $key $row.value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $effective -}}
{{- end -}}
