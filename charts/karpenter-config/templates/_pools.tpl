{{/*
The pools: each is {name, spec, disruption}, with the spec in the form of the v1alpha5 API; _v1.tpl converts it to v1. Values
with current names (defaultNodePool, gpuNodePool, ...) replace the pool with the older name.
*/}}

{{/* consolidation has priority over ttlSecondsAfterEmpty, as JSON. */}}
{{- define "karpenter-config.emptying" -}}
{{- if (.consolidation | default dict).enabled -}}
{{- dict "consolidation" (dict "enabled" true) | toJson -}}
{{- else if kindIs "invalid" .ttlSecondsAfterEmpty -}}
{}
{{- else -}}
{{- dict "ttlSecondsAfterEmpty" (int64 .ttlSecondsAfterEmpty) | toJson -}}
{{- end -}}
{{- end -}}

{{/* Lists of taints; {} is none. */}}
{{- define "karpenter-config.taints" -}}
{{- if kindIs "slice" . -}}{{ toJson . }}{{- else if . -}}
{{- fail "taints: must be a list of {key, value, effect}" -}}
{{- else -}}[]{{- end -}}
{{- end -}}

{{- define "karpenter-config.acceleratorPool" -}}
{{- $values := .values -}}
{{- $families := $values.instanceFamilies -}}
{{- if kindIs "map" $families }}{{ $families = $families.allowed }}{{ end -}}
{{- $rows := list (list "karpenter.sh/capacity-type" "In" $values.capacityTypes) (list "topology.kubernetes.io/zone" "In" $values.zones) (list "kubernetes.io/arch" "In" (list "amd64")) (list "karpenter.k8s.aws/instance-family" "In" $families) (list "karpenter.k8s.aws/instance-size" "NotIn" ($values.instanceSizes | default dict).notAllowed) -}}
{{- $spec := include "karpenter-config.emptying" $values | fromJson -}}
{{- $_ := set $spec "weight" 10 -}}
{{- with $values.labels }}{{ $_ := set $spec "labels" (include "karpenter-config.texts" . | fromJson) }}{{ end -}}
{{- $_ := set $spec "taints" (list (dict "key" .taint "effect" "NoSchedule")) -}}
{{- $_ := set $spec "requirements" (include "karpenter-config.requirements" $rows | fromJsonArray) -}}
{{- $_ := set $spec "providerRef" (dict "name" $values.providerRefName) -}}
{{- dict "name" .name "spec" $spec "disruption" $values.disruption | toJson -}}
{{- end -}}

{{- define "karpenter-config.controlPlanePool" -}}
{{- $families := .instanceFamilies | default dict -}}
{{- $sizes := .instanceSizes | default dict -}}
{{- $rows := list (list "karpenter.sh/capacity-type" "In" .capacityTypes) (list "topology.kubernetes.io/zone" "In" .zones) (list "kubernetes.io/arch" "In" (list "amd64")) (list "kubernetes.io/os" "In" (list "linux")) (list "karpenter.k8s.aws/instance-family" "In" $families.allowed) (list "karpenter.k8s.aws/instance-family" "NotIn" $families.notAllowed) (list "karpenter.k8s.aws/instance-size" "In" $sizes.allowed) (list "karpenter.k8s.aws/instance-size" "NotIn" $sizes.notAllowed) -}}
{{- $spec := include "karpenter-config.emptying" . | fromJson -}}
{{- $own := dict .labelKey "control-plane" -}}
{{- $_ := set $spec "labels" (merge (dict) $own (include "karpenter-config.texts" (.labels | default dict) | fromJson)) -}}
{{- $taints := list (dict "key" .taintKey "effect" "NoSchedule") -}}
{{- $_ := set $spec "taints" (concat $taints (include "karpenter-config.taints" .taints | fromJsonArray)) -}}
{{- $_ := set $spec "requirements" (include "karpenter-config.requirements" $rows | fromJsonArray) -}}
{{- $_ := set $spec "providerRef" (dict "name" .providerRefName) -}}
{{- dict "name" "control-plane-provisioner" "spec" $spec "disruption" .disruption | toJson -}}
{{- end -}}

{{- define "karpenter-config.defaultPool" -}}
{{- $spec := .Values.karpenter.defaultProvisionerSpec -}}
{{- if and ($spec.consolidation | default dict).enabled (not (kindIs "invalid" $spec.ttlSecondsAfterEmpty)) -}}
{{- fail "karpenter.defaultProvisionerSpec: use either consolidation.enabled or ttlSecondsAfterEmpty, not both" -}}
{{- end -}}
{{- dict "name" "default" "spec" $spec | toJson -}}
{{- end -}}

{{/* All pools, as a JSON list. */}}
{{- define "karpenter-config.pools" -}}
{{- $values := .Values.karpenter -}}
{{- $pools := list -}}
{{- if $values.defaultNodePool -}}
{{- $pools = concat $pools (include "karpenter-config.todaysPool" (dict "root" $ "key" "defaultNodePool") | fromJsonArray) -}}
{{- else -}}
{{- $pools = append $pools (include "karpenter-config.defaultPool" . | fromJson) -}}
{{- end -}}
{{- if $values.gpuNodePool -}}
{{- $pools = concat $pools (include "karpenter-config.todaysPool" (dict "root" $ "key" "gpuNodePool") | fromJsonArray) -}}
{{- else if $values.gpuProvisionerSpec.enabled -}}
{{- $pools = append $pools (include "karpenter-config.acceleratorPool" (dict "name" "gpu-provisioner" "taint" "nvidia.com/gpu" "values" $values.gpuProvisionerSpec) | fromJson) -}}
{{- end -}}
{{- if $values.inferentiaNodePool -}}
{{- $pools = concat $pools (include "karpenter-config.todaysPool" (dict "root" $ "key" "inferentiaNodePool") | fromJsonArray) -}}
{{- else if $values.inferentiaProvisionerSpec.enabled -}}
{{- $pools = append $pools (include "karpenter-config.acceleratorPool" (dict "name" "inferentia-provisioner" "taint" "aws.amazon.com/neuron" "values" $values.inferentiaProvisionerSpec) | fromJson) -}}
{{- end -}}
{{- if $values.controlPlaneNodePool -}}
{{- $pools = concat $pools (include "karpenter-config.todaysPool" (dict "root" $ "key" "controlPlaneNodePool") | fromJsonArray) -}}
{{- else if $values.controlPlaneProvisioner.enabled -}}
{{- $pools = append $pools (include "karpenter-config.controlPlanePool" $values.controlPlaneProvisioner | fromJson) -}}
{{- end -}}
{{- if $values.critical -}}
{{- $pools = concat $pools (include "karpenter-config.todaysPool" (dict "root" $ "key" "critical") | fromJsonArray) -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}
