{{/* v1alpha5 objects, from the results of _pools.tpl and _classes.tpl. */}}

{{- define "karpenter-config.awsNodeTemplate" -}}
{{- $values := .class.values -}}
{{- $family := include "karpenter-config.family" (dict "values" $values "default" "al2") -}}
{{- if $values.amiSelectorTerms -}}
{{- fail (printf "%s.amiSelectorTerms: not in the v1alpha5 API; use amiFamily, or apiVersion v1" .class.key) -}}
{{- end -}}
{{- $context := dict "root" .root "values" $values "key" .class.key "family" $family "isGpu" .class.isGpu -}}
{{- $spec := dict "amiFamily" ($values.amiFamily | default "AL2") -}}
{{- with $values.instanceProfile | default .root.Values.karpenter.instanceProfile }}{{ $_ := set $spec "instanceProfile" . }}{{ end -}}
{{- $_ := set $spec "subnetSelector" (include "karpenter-config.subnetTags" $context | fromJson) -}}
{{- $_ := set $spec "securityGroupSelector" (include "karpenter-config.securityGroupTags" $context | fromJson) -}}
{{- $_ := set $spec "tags" (include "karpenter-config.tags" $context | fromJson) -}}
{{- $_ := set $spec "blockDeviceMappings" (include "karpenter-config.blockDeviceMappings" (merge (dict "encrypted" $values.encrypted) $context) | fromJsonArray) -}}
{{- with $values.metadataOptions }}{{ $_ := set $spec "metadataOptions" . }}{{ end -}}
{{- if $values.detailedMonitoring }}{{ $_ := set $spec "detailedMonitoring" true }}{{ end -}}
{{- with include "karpenter-config.userData" $context }}{{ $_ := set $spec "userData" . }}{{ end -}}
{{- dict "apiVersion" "karpenter.k8s.aws/v1alpha1" "kind" "AWSNodeTemplate" "metadata" (dict "name" .class.name) "spec" $spec | toYaml -}}
{{- end -}}

{{- define "karpenter-config.provisioner" -}}
{{- dict "apiVersion" "karpenter.sh/v1alpha5" "kind" "Provisioner" "metadata" (dict "name" .name) "spec" .spec | toYaml -}}
{{- end -}}
