{{/* Small things: how values become text, and pieces of the API that both forms share. */}}

{{/* A number, a boolean or a text as a text. Whole numbers of a values file are floats, and would be written 1e+06. */}}
{{- define "karpenter-config.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* A map with all its values as texts, as JSON. */}}
{{- define "karpenter-config.texts" -}}
{{- $texts := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $texts $key (include "karpenter-config.text" $value) -}}
{{- end -}}
{{- end -}}
{{- toJson $texts -}}
{{- end -}}

{{/* Seconds as v1 writes a duration. */}}
{{- define "karpenter-config.duration" -}}
{{- $seconds := int64 . -}}
{{- if and $seconds (eq (mod $seconds 3600) 0) -}}{{ div $seconds 3600 }}h
{{- else if and $seconds (eq (mod $seconds 60) 0) -}}{{ div $seconds 60 }}m
{{- else -}}{{ $seconds }}s
{{- end -}}
{{- end -}}

{{/* Requirements from rows of (key, operator, values), without those that have no values, as JSON. */}}
{{- define "karpenter-config.requirements" -}}
{{- $requirements := list -}}
{{- range $row := . -}}
{{- $values := list -}}
{{- range index $row 2 -}}{{- $values = append $values (include "karpenter-config.text" .) -}}{{- end -}}
{{- if $values -}}
{{- $requirements = append $requirements (dict "key" (index $row 0) "operator" (index $row 1) "values" $values) -}}
{{- end -}}
{{- end -}}
{{- toJson $requirements -}}
{{- end -}}

{{/* The key that a label of the early days has today. */}}
{{- define "karpenter-config.labelKey" -}}
{{- $renamed := dict "failure-domain.beta.kubernetes.io/zone" "topology.kubernetes.io/zone" "failure-domain.beta.kubernetes.io/region" "topology.kubernetes.io/region" "beta.kubernetes.io/arch" "kubernetes.io/arch" "beta.kubernetes.io/os" "kubernetes.io/os" "beta.kubernetes.io/instance-type" "node.kubernetes.io/instance-type" -}}
{{- get $renamed . | default . -}}
{{- end -}}

{{- define "karpenter-config.clusterName" -}}
{{- required "cluster.name must be set" .Values.cluster.name -}}
{{- end -}}

{{/* Whether the old API is asked for: "true" or nothing. */}}
{{- define "karpenter-config.isOld" -}}
{{- if eq .Values.apiVersion "v1alpha5" -}}true{{- end -}}
{{- end -}}
