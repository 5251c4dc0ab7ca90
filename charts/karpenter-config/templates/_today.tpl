{{/*
Pools with the names of TrueFoundry's current chart. A key that is set creates its pool, unless it has enabled: false (or
create: false); missing fields get the defaults below.
*/}}

{{- define "karpenter-config.todaysDefaults" -}}
{{- $sizes := "nano, micro, small, medium, large, metal, metal-16xl, metal-24xl, metal-48xl" -}}
{{- $accelerated := "t3, t2, t3a, p2, p3, p4d, p4de, p5, p5e, p5en, g4dn, g4ad, g5, g6, gr6, g6e, inf1, inf2, trn1, trn1n, c1, cc1, cc2, cg1, cg2, cr1, g1, g2, hi1, hs1, m1, m2, m3" -}}
{{- $budgets := "[{nodes: 10%}, {nodes: '1', reasons: [Drifted]}]" -}}
common:
  weight: 10
  zones: []
  architectures: [amd64]
  instanceCategories: {}
  labels: {}
  taints: []
  limits: {}
  additionalRequirements: []
defaultNodePool:
  enabled: true
  name: default-nodepool
  template: defaultNodeTemplate
  modern: true
  capacityTypes: [spot, on-demand]
  instanceFamilies: {allowed: [], notAllowed: [{{ $accelerated }}, m5a, m5ad, r5a, r5ad]}
  instanceSizes: {allowed: [], notAllowed: [{{ $sizes }}]}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 15m, budgets: {{ $budgets }}}
gpuNodePool:
  enabled: true
  name: gpu-nodepool
  template: gpuDefaultNodeTemplate
  taint: nvidia.com/gpu
  capacityTypes: [spot, on-demand]
  instanceFamilies: {allowed: [p2, p3, p4d, p4de, p5, p5e, p5en, g4dn, g5, g6, gr6, g6e], notAllowed: []}
  instanceSizes: {allowed: [], notAllowed: [{{ $sizes }}]}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 5m, budgets: {{ $budgets }}}
inferentiaNodePool:
  enabled: true
  name: inferentia-nodepool
  template: inferentiaDefaultNodeTemplate
  taint: aws.amazon.com/neuron
  capacityTypes: [spot, on-demand]
  instanceFamilies: {allowed: [inf1, inf2], notAllowed: []}
  instanceSizes: {allowed: [], notAllowed: [{{ $sizes }}, 48xlarge]}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 5m, budgets: {{ $budgets }}}
controlPlaneNodePool:
  enabled: true
  name: control-plane-nodepool
  template: controlPlaneNodeTemplate
  modern: true
  role: control-plane
  capacityTypes: [on-demand]
  instanceFamilies: {allowed: [], notAllowed: [{{ $accelerated }}]}
  instanceSizes: {allowed: [], notAllowed: [{{ $sizes }}, 12xlarge, 16xlarge, 24xlarge, 32xlarge]}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 15m, budgets: {{ $budgets }}}
critical:
  enabled: true
  name: critical-nodepool
  weight: 100
  modern: true
  role: critical
  capacityTypes: [on-demand]
  instanceFamilies: {allowed: [], notAllowed: [{{ $accelerated }}]}
  instanceSizes: {allowed: [], notAllowed: [nano, micro, small, medium, 12xlarge, 16xlarge, 24xlarge, 32xlarge, metal, metal-16xl, metal-24xl, metal-48xl]}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1h, budgets: {{ $budgets }}}
  nodeclass: {create: true, name: critical-node-template, rootVolumeSize: 100Gi, extraTags: {}, amiFamily: "", userData: ""}
{{- end -}}

{{/* One pool with its defaults, as JSON. Helm's own merge would treat `false` as missing. */}}
{{- define "karpenter-config.todaysValues" -}}
{{- $defaults := include "karpenter-config.todaysDefaults" . | fromYaml -}}
{{- $values := merge (index $defaults .key) $defaults.common -}}
{{- range $key, $given := index .root.Values.karpenter .key -}}
{{- if and (kindIs "map" $given) (has $key (list "instanceFamilies" "instanceSizes" "nodeclass" "disruption")) -}}
{{- range $inner, $value := $given }}{{ $_ := set (index $values $key) $inner $value }}{{ end -}}
{{- else if not (kindIs "invalid" $given) -}}
{{- $_ := set $values $key $given -}}
{{- end -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{/* A list of one pool or none, as JSON: (dict "root" $ "key" "gpuNodePool") */}}
{{- define "karpenter-config.todaysPool" -}}
{{- $values := include "karpenter-config.todaysValues" . | fromJson -}}
{{- $karpenter := .root.Values.karpenter -}}
{{- if and $values.enabled (ne (toString $values.create) "false") -}}
{{- $families := $values.instanceFamilies -}}
{{- $sizes := $values.instanceSizes -}}
{{- $categories := kindIs "map" $values.instanceCategories | ternary (dict) (dict "allowed" $values.instanceCategories) -}}
{{- /* The map of allowed categories applies in Auto Mode only; TrueFoundry's chart ignores it otherwise. */ -}}
{{- if and (kindIs "map" $values.instanceCategories) (include "karpenter-config.isAutoMode" .root) -}}
{{- $categories = $values.instanceCategories -}}
{{- if $categories.allowed }}{{ $families = omit $families "allowed" }}{{ end -}}
{{- if hasKey $categories "notAllowed" }}{{ $families = omit $families "notAllowed" }}{{ end -}}
{{- end -}}
{{- $rows := list (list "karpenter.sh/capacity-type" "In" $values.capacityTypes) (list "topology.kubernetes.io/zone" "In" $values.zones) (list "kubernetes.io/arch" "In" $values.architectures) -}}
{{- if $values.modern -}}
{{- $rows = append $rows (list "kubernetes.io/os" "In" (list "linux")) -}}
{{- end -}}
{{- $rows = concat $rows (list (list "karpenter.k8s.aws/instance-category" "In" $categories.allowed) (list "karpenter.k8s.aws/instance-category" "NotIn" $categories.notAllowed) (list "karpenter.k8s.aws/instance-family" "In" $families.allowed) (list "karpenter.k8s.aws/instance-family" "NotIn" $families.notAllowed) (list "karpenter.k8s.aws/instance-size" "In" $sizes.allowed) (list "karpenter.k8s.aws/instance-size" "NotIn" $sizes.notAllowed)) -}}
{{- if $values.modern -}}
{{- $rows = append $rows (list "karpenter.k8s.aws/instance-generation" "Gt" (list "4")) -}}
{{- end -}}
{{- $requirements := concat (include "karpenter-config.requirements" $rows | fromJsonArray) ($values.additionalRequirements | default list) -}}
{{- $class := "" -}}
{{- if eq .key "critical" -}}
{{- $class = $values.nodeclass.name -}}
{{- else -}}
{{- $class = include "karpenter-config.className" (dict "key" $values.template "values" (index $karpenter $values.template)) -}}
{{- if and (eq .key "controlPlaneNodePool") (not $karpenter.controlPlaneNodeTemplate.enabled) -}}
{{- $class = include "karpenter-config.className" (dict "key" "defaultNodeTemplate" "values" $karpenter.defaultNodeTemplate) -}}
{{- end -}}
{{- end -}}
{{- $labels := include "karpenter-config.texts" $values.labels | fromJson -}}
{{- $taints := include "karpenter-config.taints" $values.taints | fromJsonArray -}}
{{- if $values.taint -}}
{{- $taints = prepend $taints (dict "key" $values.taint "effect" "NoSchedule") -}}
{{- end -}}
{{- if eq .key "gpuNodePool" -}}
{{- $labels = merge (dict) $labels (include "karpenter-config.gpuOperatorLabels" $karpenter.gpuDefaultNodeTemplate | fromYaml) -}}
{{- end -}}
{{- if $values.role -}}
{{- $key := $karpenter.controlPlaneProvisioner.labelKey -}}
{{- if not $labels }}{{ $labels = dict $key $values.role }}{{ end -}}
{{- if not $taints }}{{ $taints = list (dict "key" $key "value" $values.role "effect" "NoSchedule") }}{{ end -}}
{{- end -}}
{{- $spec := dict "requirements" $requirements "providerRef" (dict "name" $class) "weight" (int $values.weight) -}}
{{- /* TrueFoundry's chart leaves the field out, so v1's default of 30 days applies. This chart renders a missing value as Never, so the 30 days are set explicitly. */ -}}
{{- if not (include "karpenter-config.isAutoMode" .root) }}{{ $_ := set $spec "ttlSecondsUntilExpired" 2592000 }}{{ end -}}
{{- with $labels }}{{ $_ := set $spec "labels" . }}{{ end -}}
{{- with $taints }}{{ $_ := set $spec "taints" . }}{{ end -}}
{{- with $values.limits }}{{ $_ := set $spec "limits" (dict "resources" .) }}{{ end -}}
{{- if include "karpenter-config.isOld" .root -}}
{{- if ne $values.disruption.consolidationPolicy "WhenEmpty" -}}
{{- $_ := set $spec "consolidation" (dict "enabled" true) -}}
{{- end -}}
{{- end -}}
{{- list (dict "name" $values.name "spec" $spec "disruption" $values.disruption) | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/* The components that NVIDIA's GPU operator installs: not those that the AMI has already. */}}
{{- define "karpenter-config.gpuOperatorLabels" -}}
{{- if eq (include "karpenter-config.family" (dict "values" . "default" "al2023")) "bottlerocket" -}}
nvidia.com/gpu.deploy.container-toolkit: "false"
nvidia.com/gpu.deploy.dcgm: "true"
nvidia.com/gpu.deploy.dcgm-exporter: "true"
nvidia.com/gpu.deploy.device-plugin: "false"
nvidia.com/gpu.deploy.driver: pre-installed
nvidia.com/gpu.deploy.gpu-feature-discovery: "true"
nvidia.com/gpu.deploy.node-status-exporter: "true"
nvidia.com/gpu.deploy.operator-validator: "false"
{{- else -}}
nvidia.com/gpu.deploy.operands: "true"
{{- end -}}
{{- end -}}
