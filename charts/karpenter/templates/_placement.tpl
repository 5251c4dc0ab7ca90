{{/* Affinity and spreading of values.yaml; terms that select no pods get the selector of these pods. */}}

{{- define "karpenter.selected" -}}
{{- $term := deepCopy .term -}}
{{- if not (hasKey $term "labelSelector") -}}
{{- $_ := set $term "labelSelector" (dict "matchLabels" (include "karpenter.selectorLabels" .root | fromYaml)) -}}
{{- end -}}
{{- toJson $term -}}
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
