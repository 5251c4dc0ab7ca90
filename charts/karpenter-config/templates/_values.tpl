{{/* Helpers: conversion of values into strings, and parts that both API versions share. */}}

{{/* Converts a number, boolean or string into a string. Integers of a values file are floats, which would be rendered as 1e+06. */}}
{{- define "karpenter-config.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* A map with all values as strings, as JSON. */}}
{{- define "karpenter-config.texts" -}}
{{- $texts := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $texts $key (include "karpenter-config.text" $value) -}}
{{- end -}}
{{- end -}}
{{- toJson $texts -}}
{{- end -}}

{{/* Converts seconds into a duration as in v1. */}}
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

{{/* The current key of a deprecated label. */}}
{{- define "karpenter-config.labelKey" -}}
{{- $renamed := dict "failure-domain.beta.kubernetes.io/zone" "topology.kubernetes.io/zone" "failure-domain.beta.kubernetes.io/region" "topology.kubernetes.io/region" "beta.kubernetes.io/arch" "kubernetes.io/arch" "beta.kubernetes.io/os" "kubernetes.io/os" "beta.kubernetes.io/instance-type" "node.kubernetes.io/instance-type" -}}
{{- range list "family" "size" "cpu" "memory" "gpu.name" "gpu.manufacturer" "gpu.count" "gpu.memory" -}}
{{- $_ := set $renamed (printf "karpenter.k8s.aws/instance.%s" .) (printf "karpenter.k8s.aws/instance-%s" (replace "." "-" .)) -}}
{{- end -}}
{{- get $renamed . | default . -}}
{{- end -}}

{{/* "true" for a label (by its current key) that v1 rejects. */}}
{{- define "karpenter-config.isGone" -}}
{{- if has . (list "karpenter.k8s.aws/instance-pods" "karpenter.k8s.aws/instance-accelerator-memory" "karpenter.k8s.aws/instance-ami-id") -}}true{{- end -}}
{{- end -}}

{{/* "true" for a tag that v1 rejects because Karpenter sets it. */}}
{{- define "karpenter-config.isReservedTag" -}}
{{- if or (hasPrefix "kubernetes.io/cluster" .) (has . (list "eks:eks-cluster-name" "karpenter.sh/nodepool" "karpenter.sh/nodeclaim" "karpenter.k8s.aws/ec2nodeclass")) -}}true{{- end -}}
{{- end -}}

{{/* The values that are omitted because v1 rejects them, as a JSON list of strings. */}}
{{- define "karpenter-config.leftOut" -}}
{{- $found := list -}}
{{- $spec := .Values.karpenter.defaultProvisionerSpec -}}
{{- if not .Values.karpenter.defaultNodePool -}}
{{- range $spec.requirements -}}
{{- if include "karpenter-config.isGone" (include "karpenter-config.labelKey" .key) }}{{ $found = append $found (printf "the requirement %s of karpenter.defaultProvisionerSpec: nodes no longer have this label" .key) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := $spec.labels -}}
{{- if include "karpenter-config.isGone" (include "karpenter-config.labelKey" $key) }}{{ $found = append $found (printf "the label %s of karpenter.defaultProvisionerSpec: v1 does not have it" $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $class := include "karpenter-config.classes" . | fromJsonArray -}}
{{- range $key, $_ := $class.values.extraTags -}}
{{- if include "karpenter-config.isReservedTag" $key }}{{ $found = append $found (printf "the tag %s of %s: Karpenter sets it itself" $key $class.key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "karpenter-config.clusterName" -}}
{{- required "cluster.name must be set" .Values.cluster.name -}}
{{- end -}}

{{/* Whether the objects are for EKS Auto Mode, which has its own node class kind and labels: "true" or empty. */}}
{{- define "karpenter-config.isAutoMode" -}}
{{- if (.Values.karpenter.eksAutoMode | default dict).enabled -}}true{{- end -}}
{{- end -}}

{{/* Whether apiVersion is v1alpha5: "true" or empty. */}}
{{- define "karpenter-config.isOld" -}}
{{- if eq .Values.apiVersion "v1alpha5" -}}true{{- end -}}
{{- end -}}
