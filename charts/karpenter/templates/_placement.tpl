{{/* Affinity and topology spread from values.yaml; terms without a selector get the selector of the controller's pods. */}}

{{- define "karpenter.selected" -}}
{{- $term := deepCopy .term -}}
{{- if not (hasKey $term "labelSelector") -}}
{{- $_ := set $term "labelSelector" (dict "matchLabels" (include "karpenter.selectorLabels" .root | fromYaml)) -}}
{{- end -}}
{{- toJson $term -}}
{{- end -}}

{{/*
Returns "no" unless every node selector term excludes nodes that Karpenter manages. Terms are alternatives, and a list in the
values replaces the chart's.
*/}}
{{- define "karpenter.staysOffItsNodes" -}}
{{- $node := (.Values.affinity | default dict).nodeAffinity | default dict -}}
{{- $terms := ($node.requiredDuringSchedulingIgnoredDuringExecution | default dict).nodeSelectorTerms | default list -}}
{{- $guarded := 0 -}}
{{- range $term := $terms -}}
{{- $guards := false -}}
{{- range $expression := $term.matchExpressions | default list -}}
{{- if and (eq $expression.key "karpenter.sh/nodepool") (eq $expression.operator "DoesNotExist") -}}
{{- $guards = true -}}
{{- end -}}
{{- end -}}
{{- if $guards -}}{{- $guarded = add1 $guarded -}}{{- end -}}
{{- end -}}
{{- if or (not $terms) (lt (int $guarded) (len $terms)) -}}no{{- end -}}
{{- end -}}

{{- define "karpenter.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $rules := index $affinity $kind | default dict -}}
{{- with $rules.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- $terms := list -}}
{{- range $term := . -}}
{{- $terms = append $terms (include "karpenter.selected" (dict "root" $ "term" $term) | fromJson) -}}
{{- end -}}
{{- $_ := set $rules "requiredDuringSchedulingIgnoredDuringExecution" $terms -}}
{{- end -}}
{{- with $rules.preferredDuringSchedulingIgnoredDuringExecution -}}
{{- $terms := list -}}
{{- range $weighted := . -}}
{{- $term := include "karpenter.selected" (dict "root" $ "term" $weighted.podAffinityTerm) | fromJson -}}
{{- $terms = append $terms (dict "weight" (int $weighted.weight) "podAffinityTerm" $term) -}}
{{- end -}}
{{- $_ := set $rules "preferredDuringSchedulingIgnoredDuringExecution" $terms -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{- define "karpenter.topologySpreadConstraints" -}}
{{- $constraints := list -}}
{{- range $constraint := .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (include "karpenter.selected" (dict "root" $ "term" $constraint) | fromJson) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}
