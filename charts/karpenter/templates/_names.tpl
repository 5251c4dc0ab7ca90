{{/* Names, labels and annotations of all objects. */}}

{{- define "karpenter.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* If the release name contains "karpenter", the chart name is not appended. */}}
{{- define "karpenter.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "karpenter.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "karpenter.isOn" .Values.serviceAccount.create | empty | ternary "default" (include "karpenter.fullname" .)) -}}
{{- end -}}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "karpenter.labels" -}}
{{ include "karpenter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of an object: (dict "root" $ "annotations" extra "labels" extra) */}}
{{- define "karpenter.metadata" -}}
labels:
  {{- include "karpenter.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.additionalAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Charts before 0.26 had the image as one string. */}}
{{- define "karpenter.image" -}}
{{- $image := .Values.controller.image -}}
{{- if kindIs "string" $image -}}
{{- $image -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion | toString) -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}
