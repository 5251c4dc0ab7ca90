{{/* The node templates, and what they have in common in both API versions. */}}

{{/* The name of a template: (dict "key" "gpuDefaultNodeTemplate" "values" its values) */}}
{{- define "karpenter-config.className" -}}
{{- $names := dict "defaultNodeTemplate" "default" "gpuDefaultNodeTemplate" "gpu-default" "inferentiaDefaultNodeTemplate" "inferentia-default" "controlPlaneNodeTemplate" "controlplane-node-template" -}}
{{- .values.name | default (get $names .key) -}}
{{- end -}}

{{/* The AMI family in lower case: (dict "values" a template's values "default" "al2") */}}
{{- define "karpenter-config.family" -}}
{{- $family := .values.amiFamily | default "" -}}
{{- if not $family -}}
{{- range .values.amiSelectorTerms -}}
{{- if and .alias (not $family) }}{{ $family = index (splitList "@" .alias) 0 }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $family | default .default | lower -}}
{{- end -}}

{{/* All templates, as a JSON list of {key, name, values, isGpu}. */}}
{{- define "karpenter-config.classes" -}}
{{- $classes := list -}}
{{- range $key := list "defaultNodeTemplate" "gpuDefaultNodeTemplate" "inferentiaDefaultNodeTemplate" "controlPlaneNodeTemplate" -}}
{{- $values := index $.Values.karpenter $key -}}
{{- if and (ne (toString $values.enabled) "false") (ne (toString $values.create) "false") -}}
{{- $name := include "karpenter-config.className" (dict "key" $key "values" $values) -}}
{{- $classes = append $classes (dict "key" (printf "karpenter.%s" $key) "name" $name "values" $values "isGpu" (eq $key "gpuDefaultNodeTemplate")) -}}
{{- end -}}
{{- end -}}
{{- if .Values.karpenter.critical -}}
{{- $critical := include "karpenter-config.todaysValues" (dict "root" $ "key" "critical") | fromJson -}}
{{- if and $critical.enabled $critical.nodeclass.create -}}
{{- $classes = append $classes (dict "key" "karpenter.critical.nodeclass" "name" $critical.nodeclass.name "values" $critical.nodeclass "isGpu" false) -}}
{{- end -}}
{{- end -}}
{{- toJson $classes -}}
{{- end -}}

{{- define "karpenter-config.subnetTags" -}}
{{- $name := include "karpenter-config.clusterName" .root -}}
{{- $own := dict (printf "kubernetes.io/cluster/%s" $name) "shared" "subnet" "private" -}}
{{- merge (dict) (include "karpenter-config.texts" (.values.extraSubnetTags | default dict) | fromJson) $own | toJson -}}
{{- end -}}

{{- define "karpenter-config.securityGroupTags" -}}
{{- $own := dict "karpenter.sh/discovery" (include "karpenter-config.clusterName" .root) -}}
{{- merge (dict) (include "karpenter-config.texts" (.values.extraSecurityGroupTags | default dict) | fromJson) $own | toJson -}}
{{- end -}}

{{- define "karpenter-config.tags" -}}
{{- $own := dict "karpenter.sh/discovery" (include "karpenter-config.clusterName" .root) -}}
{{- merge (dict) (include "karpenter-config.texts" (.values.extraTags | default dict) | fromJson) $own | toJson -}}
{{- end -}}

{{/* The root volume, as a JSON list: (dict "root" $ "values" a template's values "family" f "encrypted" bool or nil) */}}
{{- define "karpenter-config.blockDeviceMappings" -}}
{{- $ebs := dict "volumeSize" (include "karpenter-config.text" .values.rootVolumeSize) "volumeType" "gp3" "deleteOnTermination" true -}}
{{- if not (kindIs "invalid" .encrypted) }}{{ $_ := set $ebs "encrypted" .encrypted }}{{ end -}}
{{- with .values.kmsKeyID }}{{ $_ := set $ebs "kmsKeyID" . }}{{ end -}}
{{- $isParallel := ne .root.Values.soci.mode "lazy" -}}
{{- if and $isParallel (include "karpenter-config.hasSoci" .) -}}
{{- $_ := set $ebs "throughput" (int .root.Values.soci.parallel.throughput) -}}
{{- $_ := set $ebs "iops" (int .root.Values.soci.parallel.iops) -}}
{{- end -}}
{{- $device := eq .family "bottlerocket" | ternary "/dev/xvdb" "/dev/xvda" -}}
{{- list (dict "deviceName" $device "ebs" $ebs) | toJson -}}
{{- end -}}
