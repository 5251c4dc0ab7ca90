{{/*
v1 objects, from the results of _pools.tpl and _classes.tpl: as `karpenter convert` of the v1alpha5 objects, except for the AMI
family (AL2023 by default) and encrypted volumes. Defaults of the v1alpha5 API are explicit, because those of v1 differ: nodes
would expire after 30 days, and containers could not reach the metadata service.
*/}}

{{/* The node classes of EKS Auto Mode have no AMIs, user data, volumes and metadata options. */}}
{{- define "karpenter-config.nodeClass" -}}
{{- $values := .class.values -}}
{{- $karpenter := .root.Values.karpenter -}}
{{- $family := include "karpenter-config.family" (dict "values" $values "default" "al2023") -}}
{{- $context := dict "root" .root "values" $values "key" .class.key "family" $family "isGpu" .class.isGpu -}}
{{- $spec := dict -}}
{{- $profile := $values.instanceProfile | default $karpenter.instanceProfile -}}
{{- $role := $values.role | default $karpenter.role -}}
{{- if $values.instanceProfile }}{{ $role = $values.role }}{{ else if $values.role }}{{ $profile = "" }}{{ end -}}
{{- if or (and $profile $role) (not (or $profile $role)) -}}
{{- fail "set karpenter.instanceProfile or karpenter.role (exactly one)" -}}
{{- end -}}
{{- with $profile }}{{ $_ := set $spec "instanceProfile" . }}{{ end -}}
{{- with $role }}{{ $_ := set $spec "role" . }}{{ end -}}
{{- $_ := set $spec "subnetSelectorTerms" (list (dict "tags" (include "karpenter-config.subnetTags" $context | fromJson))) -}}
{{- $_ := set $spec "securityGroupSelectorTerms" (list (dict "tags" (include "karpenter-config.securityGroupTags" $context | fromJson))) -}}
{{- $tags := dict -}}
{{- range $key, $value := include "karpenter-config.tags" $context | fromJson -}}
{{- if not (include "karpenter-config.isReservedTag" $key) }}{{ $_ := set $tags $key $value }}{{ end -}}
{{- end -}}
{{- $_ := set $spec "tags" $tags -}}
{{- if include "karpenter-config.isAutoMode" .root -}}
{{- $storage := dict "size" (include "karpenter-config.text" $values.rootVolumeSize) -}}
{{- with $values.kmsKeyID }}{{ $_ := set $storage "kmsKeyID" . }}{{ end -}}
{{- $_ := set $spec "ephemeralStorage" $storage -}}
{{- dict "apiVersion" "eks.amazonaws.com/v1" "kind" "NodeClass" "metadata" (dict "name" .class.name) "spec" $spec | toYaml -}}
{{- else -}}
{{- if $values.amiSelectorTerms -}}
{{- $_ := set $spec "amiSelectorTerms" $values.amiSelectorTerms -}}
{{- with $values.amiFamily }}{{ $_ := set $spec "amiFamily" . }}{{ end -}}
{{- else if has $family (list "ubuntu" "custom") -}}
{{- fail (printf "%s.amiFamily: %s has no AMI alias in v1; set %s.amiSelectorTerms" .class.key $values.amiFamily .class.key) -}}
{{- else -}}
{{- $_ := set $spec "amiSelectorTerms" (list (dict "alias" (printf "%s@latest" $family))) -}}
{{- end -}}
{{- $encrypted := kindIs "invalid" $values.encrypted | ternary true $values.encrypted -}}
{{- $_ := set $spec "blockDeviceMappings" (include "karpenter-config.blockDeviceMappings" (merge (dict "encrypted" $encrypted) $context) | fromJsonArray) -}}
{{- $isIpv6 := contains ":" (first ((.kubelet | default dict).clusterDNS | default (list "")) | toString) -}}
{{- $_ := set $spec "metadataOptions" ($values.metadataOptions | default (dict "httpEndpoint" "enabled" "httpProtocolIPv6" ($isIpv6 | ternary "enabled" "disabled") "httpPutResponseHopLimit" 2 "httpTokens" "required")) -}}
{{- if $values.detailedMonitoring }}{{ $_ := set $spec "detailedMonitoring" true }}{{ end -}}
{{- with .kubelet | default $values.kubelet }}{{ $_ := set $spec "kubelet" . }}{{ end -}}
{{- with include "karpenter-config.userData" $context }}{{ $_ := set $spec "userData" . }}{{ end -}}
{{- dict "apiVersion" "karpenter.k8s.aws/v1" "kind" "EC2NodeClass" "metadata" (dict "name" (.name | default .class.name)) "spec" $spec | toYaml -}}
{{- end -}}
{{- end -}}

{{/* The defaults that the v1alpha5 webhook would have added. A label counts as a requirement. */}}
{{- define "karpenter-config.defaultedRequirements" -}}
{{- $requirements := list -}}
{{- $said := list -}}
{{- range .requirements -}}
{{- $key := include "karpenter-config.labelKey" .key -}}
{{- $said = append $said $key -}}
{{- if not (include "karpenter-config.isGone" $key) }}{{ $requirements = append $requirements (set (deepCopy .) "key" $key) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := .labels }}{{ $said = append $said $key }}{{ end -}}
{{- range $row := list (list "kubernetes.io/os" "linux") (list "kubernetes.io/arch" "amd64") (list "karpenter.sh/capacity-type" "on-demand") -}}
{{- if not (has (index $row 0) $said) -}}
{{- $requirements = append $requirements (dict "key" (index $row 0) "operator" "In" "values" (list (index $row 1))) -}}
{{- end -}}
{{- end -}}
{{- $narrowed := false -}}
{{- range list "node.kubernetes.io/instance-type" "karpenter.k8s.aws/instance-family" "karpenter.k8s.aws/instance-category" "karpenter.k8s.aws/instance-generation" -}}
{{- if has . $said }}{{ $narrowed = true }}{{ end -}}
{{- end -}}
{{- if not $narrowed -}}
{{- $requirements = append $requirements (dict "key" "karpenter.k8s.aws/instance-category" "operator" "In" "values" (list "c" "m" "r")) -}}
{{- $requirements = append $requirements (dict "key" "karpenter.k8s.aws/instance-generation" "operator" "Gt" "values" (list "2")) -}}
{{- end -}}
{{- toJson $requirements -}}
{{- end -}}

{{/* spec.disruption: (dict "root" $ "pool" pool) */}}
{{- define "karpenter-config.disruption" -}}
{{- $spec := .pool.spec -}}
{{- $disruption := dict "consolidationPolicy" "WhenEmpty" "consolidateAfter" "Never" -}}
{{- if ($spec.consolidation | default dict).enabled -}}
{{- $disruption = dict "consolidationPolicy" "WhenEmptyOrUnderutilized" "consolidateAfter" "0s" -}}
{{- else if not (kindIs "invalid" $spec.ttlSecondsAfterEmpty) -}}
{{- $_ := set $disruption "consolidateAfter" (include "karpenter-config.duration" $spec.ttlSecondsAfterEmpty) -}}
{{- end -}}
{{- $given := .pool.disruption | default .root.Values.disruption -}}
{{- if $given -}}
{{- $disruption = merge (dict) (omit $given "expireAfter") $disruption -}}
{{- /* v1beta1's name, which TrueFoundry's chart had for half a year. */ -}}
{{- if eq $disruption.consolidationPolicy "WhenUnderutilized" }}{{ $_ := set $disruption "consolidationPolicy" "WhenEmptyOrUnderutilized" }}{{ end -}}
{{- else -}}
{{- $_ := set $disruption "budgets" (list (dict "nodes" "100%" "reasons" (list "Empty" "Underutilized")) (dict "nodes" "0" "reasons" (list "Drifted"))) -}}
{{- end -}}
{{- toJson $disruption -}}
{{- end -}}

{{- define "karpenter-config.nodePool" -}}
{{- $spec := .pool.spec -}}
{{- $known := list "annotations" "consolidation" "kubeletConfiguration" "labels" "limits" "provider" "providerRef" "requirements" "startupTaints" "taints" "ttlSecondsAfterEmpty" "ttlSecondsUntilExpired" "weight" -}}
{{- range $key, $_ := $spec -}}
{{- if not (has $key $known) -}}
{{- fail (printf "karpenter.defaultProvisionerSpec.%s: unknown field; known: %s" $key (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- if $spec.provider -}}
{{- fail "karpenter.defaultProvisionerSpec.provider: v1 has no such field; put the settings into karpenter.defaultNodeTemplate and refer to it in providerRef" -}}
{{- end -}}
{{- $class := required "karpenter.defaultProvisionerSpec.providerRef.name must be set" ($spec.providerRef | default dict).name -}}
{{- if $spec.kubeletConfiguration }}{{ $class = printf "%s-%s" $class .pool.name }}{{ end -}}
{{- $labels := dict -}}
{{- range $key, $value := $spec.labels -}}
{{- $today := include "karpenter-config.labelKey" $key -}}
{{- if not (include "karpenter-config.isGone" $today) }}{{ $_ := set $labels $today (include "karpenter-config.text" $value) }}{{ end -}}
{{- end -}}
{{- $requirements := include "karpenter-config.defaultedRequirements" (dict "requirements" $spec.requirements "labels" $labels) | fromJsonArray -}}
{{- $expire := "Never" -}}
{{- if not (kindIs "invalid" $spec.ttlSecondsUntilExpired) }}{{ $expire = include "karpenter-config.duration" $spec.ttlSecondsUntilExpired }}{{ end -}}
{{- /* As in v1beta1. */ -}}
{{- with (.pool.disruption | default .root.Values.disruption | default dict).expireAfter }}{{ $expire = . }}{{ end -}}
{{- $machine := dict "nodeClassRef" (dict "group" "karpenter.k8s.aws" "kind" "EC2NodeClass" "name" $class) "expireAfter" $expire "requirements" $requirements -}}
{{- if include "karpenter-config.isAutoMode" .root -}}
{{- range $requirements }}{{ $_ := set . "key" (replace "karpenter.k8s.aws/instance-" "eks.amazonaws.com/instance-" .key) }}{{ end -}}
{{- $_ := set $machine "nodeClassRef" (dict "group" "eks.amazonaws.com" "kind" "NodeClass" "name" $class) -}}
{{- /* Nodes of EKS Auto Mode always expire. */ -}}
{{- if eq $expire "Never" }}{{ $_ := unset $machine "expireAfter" }}{{ end -}}
{{- end -}}
{{- range $list := list "taints" "startupTaints" -}}
{{- $taints := list -}}
{{- range $taint := index $spec $list }}{{ $taints = append $taints (empty $taint.value | ternary (omit $taint "value") $taint) }}{{ end -}}
{{- with $taints }}{{ $_ := set $machine $list . }}{{ end -}}
{{- end -}}
{{- $template := dict "spec" $machine -}}
{{- $metadata := dict -}}
{{- with $labels }}{{ $_ := set $metadata "labels" . }}{{ end -}}
{{- $annotations := include "karpenter-config.texts" ($spec.annotations | default dict) | fromJson -}}
{{- /* Any other value than true never protected a node. */ -}}
{{- if eq (get $annotations "karpenter.sh/do-not-consolidate") "true" }}{{ $_ := set $annotations "karpenter.sh/do-not-disrupt" "true" }}{{ end -}}
{{- with omit $annotations "karpenter.sh/do-not-consolidate" }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- with $metadata }}{{ $_ := set $template "metadata" . }}{{ end -}}
{{- $result := dict "template" $template "disruption" (include "karpenter-config.disruption" . | fromJson) -}}
{{- with ($spec.limits | default dict).resources }}{{ $_ := set $result "limits" . }}{{ end -}}
{{- with $spec.weight }}{{ $_ := set $result "weight" (int .) }}{{ end -}}
{{- dict "apiVersion" "karpenter.sh/v1" "kind" "NodePool" "metadata" (dict "name" .pool.name) "spec" $result | toYaml -}}
{{- end -}}
