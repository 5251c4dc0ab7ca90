{{/* Affinity and spreading of values.yaml; terms that select no pods get the selector of these pods. */}}

{{- define "karpenter.selected" -}}
{{- $term := deepCopy .term -}}
{{- if not (hasKey $term "labelSelector") -}}
{{- $_ := set $term "labelSelector" (dict "matchLabels" (include "karpenter.selectorLabels" .root | fromYaml)) -}}
{{- end -}}
{{- toJson $term -}}
{{- end -}}

{{/*
Says "no" unless every way to place the pods keeps them off nodes of Karpenter's. Terms are alternatives, and a list of one's own
takes the place of the chart's.
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
