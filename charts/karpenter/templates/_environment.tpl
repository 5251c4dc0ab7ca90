{{/*
Whether a boolean is true. Helm's --set-string and Argo CD's forceString turn booleans into strings, and every non-empty string
is true in a template: {{ if include "karpenter.isOn" value }}
*/}}
{{- define "karpenter.isOn" -}}
{{- if has (toString .) (list "1" "t" "T" "TRUE" "true" "True") -}}true{{- end -}}
{{- end -}}

{{/* One environment variable; nothing if the value is not set: (list $ "NAME" value) */}}
{{- define "karpenter.variable" -}}
{{- $value := index . 2 -}}
{{- if and (not (kindIs "invalid" $value)) (ne (toString $value) "") }}
- name: {{ index . 1 }}
  value: {{ tpl (toString $value) (index . 0) | quote }}
{{- end }}
{{- end -}}

{{/* Feature gates by the names of the controller option; the argument is a map with the keys of values.yaml. */}}
{{- define "karpenter.gates" -}}
{{- $texts := list -}}
{{- range $name, $on := . -}}
{{- if not (or (kindIs "invalid" $on) (has $name (list "drift" "driftEnabled"))) -}}
{{- $texts = append $texts (printf "%s%s=%v" (substr 0 1 $name | upper) (substr 1 (len $name) $name) $on) -}}
{{- end -}}
{{- end -}}
{{- join "," $texts -}}
{{- end -}}

{{- define "karpenter.environment" -}}
{{- $effective := include "karpenter.effective" . | fromJson -}}
{{- $settings := $effective.settings -}}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName | default "controller" }}
      resource: requests.cpu
      divisor: 1m
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName | default "controller" }}
      resource: limits.memory
      divisor: "0"
- name: KUBERNETES_MIN_VERSION
  value: "1.19.0-0"
{{- include "karpenter.variable" (list $ "KARPENTER_SERVICE" (include "karpenter.fullname" .)) }}
{{- include "karpenter.variable" (list $ "METRICS_PORT" (int .Values.controller.metrics.port)) }}
{{- include "karpenter.variable" (list $ "HEALTH_PROBE_PORT" (int .Values.controller.healthProbe.port)) }}
{{- include "karpenter.variable" (list $ "LOG_LEVEL" $effective.logLevel) }}
{{- include "karpenter.variable" (list $ "LOG_FORMAT" $effective.logFormat) }}
{{- include "karpenter.variable" (list $ "LOG_OUTPUT_PATHS" (join "," $effective.logOutputPaths)) }}
{{- include "karpenter.variable" (list $ "LOG_ERROR_OUTPUT_PATHS" (join "," $effective.logErrorOutputPaths)) }}
{{- include "karpenter.variable" (list $ "FEATURE_GATES" (include "karpenter.gates" $settings.featureGates)) }}
{{- include "karpenter.variable" (list $ "BATCH_MAX_DURATION" $settings.batchMaxDuration) }}
{{- include "karpenter.variable" (list $ "BATCH_IDLE_DURATION" $settings.batchIdleDuration) }}
{{- include "karpenter.variable" (list $ "PREFERENCE_POLICY" $settings.preferencePolicy) }}
{{- include "karpenter.variable" (list $ "MIN_VALUES_POLICY" $settings.minValuesPolicy) }}
{{- include "karpenter.variable" (list $ "IGNORE_DRA_REQUESTS" $settings.ignoreDRARequests) }}
{{- include "karpenter.variable" (list $ "DISABLE_CLUSTER_STATE_OBSERVABILITY" $settings.disableClusterStateObservability) }}
{{- include "karpenter.variable" (list $ "PLANNER_MODE" $settings.plannerMode) }}
{{- include "karpenter.variable" (list $ "HOSTNAME_SPREAD_SHARE" $settings.hostnameSpreadShare) }}
{{- include "karpenter.variable" (list $ "NODE_COUNT_TOLERANCE" $settings.nodeCountTolerance) }}
{{- include "karpenter.variable" (list $ "CONSOLIDATION_SAVING_RATIO" $settings.consolidationSavingRatio) }}
{{- include "karpenter.variable" (list $ "DISABLE_POD_NOMINATION" $settings.disablePodNomination) }}
{{- include "karpenter.variable" (list $ "ENABLE_DECISION_JOURNAL" $settings.enableDecisionJournal) }}
{{- include "karpenter.variable" (list $ "ENABLE_PROFILING" $settings.enableProfiling) }}
{{- include "karpenter.variable" (list $ "OFFERING_METRICS" $settings.offeringMetrics) }}
{{- include "karpenter.variable" (list $ "KUBE_CLIENT_QPS" $settings.kubeClientQPS) }}
{{- include "karpenter.variable" (list $ "KUBE_CLIENT_BURST" $settings.kubeClientBurst) }}
{{- with $settings.schedulerConfig }}
{{- include "karpenter.variable" (list $ "SCHEDULER_CONFIG" (kindIs "string" . | ternary . (toJson .))) }}
{{- end }}
{{- if eq .Values.provider "aws" }}
{{- $name := tpl (toString ($settings.clusterName | default "")) $ }}
{{- include "karpenter.variable" (list $ "CLUSTER_NAME" (required "settings.clusterName must be set: the name of the EKS cluster" $name)) }}
{{- include "karpenter.variable" (list $ "CLUSTER_ENDPOINT" $settings.clusterEndpoint) }}
{{- include "karpenter.variable" (list $ "CLUSTER_CA_BUNDLE" $settings.clusterCABundle) }}
{{- include "karpenter.variable" (list $ "ISOLATED_VPC" $settings.isolatedVPC) }}
{{- include "karpenter.variable" (list $ "EKS_CONTROL_PLANE" $settings.eksControlPlane) }}
{{- include "karpenter.variable" (list $ "VM_MEMORY_OVERHEAD_PERCENT" $settings.vmMemoryOverheadPercent) }}
{{- include "karpenter.variable" (list $ "INTERRUPTION_QUEUE" $settings.interruptionQueue) }}
{{- include "karpenter.variable" (list $ "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift) }}
{{- include "karpenter.variable" (list $ "RESERVED_ENIS" $settings.reservedENIs) }}
{{- include "karpenter.variable" (list $ "DISABLE_DRY_RUN" $settings.disableDryRun) }}
{{- include "karpenter.variable" (list $ "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval) }}
{{- include "karpenter.variable" (list $ "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval) }}
{{- include "karpenter.variable" (list $ "AWS_FEATURE_GATES" (include "karpenter.gates" ($settings.awsFeatureGates | default dict))) }}
{{- end }}
{{- if include "karpenter.isOn" .Values.legacyApi.enabled }}
{{- include "karpenter.variable" (list $ "LEGACY_API" true) }}
{{- include "karpenter.variable" (list $ "LEGACY_DEFAULT_INSTANCE_PROFILE" $settings.defaultInstanceProfile) }}
{{- if or (include "karpenter.isOn" $settings.featureGates.driftEnabled) (include "karpenter.isOn" $settings.featureGates.drift) }}
{{- include "karpenter.variable" (list $ "LEGACY_DRIFT_ENABLED" true) }}
{{- end }}
{{- end }}
{{- with .Values.controller.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
