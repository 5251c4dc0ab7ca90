//! The fields of an upstream `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1, Kubernetes 1.36) and their types.
//!
//! Nested objects are known by their type only; their own fields are left to the kubelet.

/// The JSON shape a field must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Bool,
    BoolMap,
    /// Text in Go's duration notation.
    Duration,
    Int32,
    Int32List,
    Int64,
    Number,
    Object,
    ObjectList,
    Text,
    TextList,
    TextListMap,
    TextMap,
}

/// The type of a kubelet field, or `None` if there is no such field.
pub(super) fn field_kind(name: &str) -> Option<FieldKind> {
    FIELDS.binary_search_by_key(&name, |(field, _)| field).ok().map(|index| FIELDS[index].1)
}

use FieldKind::*;

/// Sorted by name.
const FIELDS: [(&str, FieldKind); 127] = [
    ("address", Text),
    ("allowedUnsafeSysctls", TextList),
    ("apiVersion", Text),
    ("authentication", Object),
    ("authorization", Object),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Bool),
    ("clusterDNS", TextList),
    ("clusterDomain", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("containerLogMaxFiles", Int32),
    ("containerLogMaxSize", Text),
    ("containerLogMaxWorkers", Int32),
    ("containerLogMonitorInterval", Duration),
    ("containerRuntimeEndpoint", Text),
    ("contentType", Text),
    ("cpuCFSQuota", Bool),
    ("cpuCFSQuotaPeriod", Duration),
    ("cpuManagerPolicy", Text),
    ("cpuManagerPolicyOptions", TextMap),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Object),
    ("enableContentionProfiling", Bool),
    ("enableControllerAttachDetach", Bool),
    ("enableDebugFlagsHandler", Bool),
    ("enableDebuggingHandlers", Bool),
    ("enableProfilingHandler", Bool),
    ("enableServer", Bool),
    ("enableSystemLogHandler", Bool),
    ("enableSystemLogQuery", Bool),
    ("enforceNodeAllocatable", TextList),
    ("eventBurst", Int32),
    ("eventRecordQPS", Int32),
    ("evictionHard", TextMap),
    ("evictionMaxPodGracePeriod", Int32),
    ("evictionMinimumReclaim", TextMap),
    ("evictionPressureTransitionPeriod", Duration),
    ("evictionSoft", TextMap),
    ("evictionSoftGracePeriod", TextMap),
    ("failCgroupV1", Bool),
    ("failSwapOn", Bool),
    ("featureGates", BoolMap),
    ("fileCheckFrequency", Duration),
    ("hairpinMode", Text),
    ("healthzBindAddress", Text),
    ("healthzPort", Int32),
    ("httpCheckFrequency", Duration),
    ("imageGCHighThresholdPercent", Int32),
    ("imageGCLowThresholdPercent", Int32),
    ("imageMaximumGCAge", Duration),
    ("imageMinimumGCAge", Duration),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("imageServiceEndpoint", Text),
    ("iptablesDropBit", Int32),
    ("iptablesMasqueradeBit", Int32),
    ("kernelMemcgNotification", Bool),
    ("kind", Text),
    ("kubeAPIBurst", Int32),
    ("kubeAPIQPS", Int32),
    ("kubeReserved", TextMap),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Bool),
    ("logging", Object),
    ("makeIPTablesUtilChains", Bool),
    ("maxOpenFiles", Int64),
    ("maxParallelImagePulls", Int32),
    ("maxPods", Int32),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Object),
    ("memoryThrottlingFactor", Number),
    ("mergeDefaultEvictionSettings", Bool),
    ("nodeLeaseDurationSeconds", Int32),
    ("nodeStatusMaxImages", Int32),
    ("nodeStatusReportFrequency", Duration),
    ("nodeStatusUpdateFrequency", Duration),
    ("oomScoreAdj", Int32),
    ("podCIDR", Text),
    ("podLogsDir", Text),
    ("podPidsLimit", Int64),
    ("podsPerCore", Int32),
    ("port", Int32),
    ("preloadedImagesVerificationAllowlist", TextList),
    ("protectKernelDefaults", Bool),
    ("providerID", Text),
    ("qosReserved", TextMap),
    ("readOnlyPort", Int32),
    ("registerNode", Bool),
    ("registerWithTaints", ObjectList),
    ("registryBurst", Int32),
    ("registryPullQPS", Int32),
    ("reservedMemory", ObjectList),
    ("reservedSystemCPUs", Text),
    ("resolvConf", Text),
    ("rotateCertificates", Bool),
    ("runOnce", Bool),
    ("runtimeRequestTimeout", Duration),
    ("seccompDefault", Bool),
    ("serializeImagePulls", Bool),
    ("serverTLSBootstrap", Bool),
    ("showHiddenMetricsForVersion", Text),
    ("shutdownGracePeriod", Duration),
    ("shutdownGracePeriodByPodPriority", ObjectList),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Bool),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", TextListMap),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemReserved", TextMap),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", TextList),
    ("tlsCurvePreferences", Int32List),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", TextMap),
    ("topologyManagerScope", Text),
    ("tracing", Object),
    ("userNamespaces", Object),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_every_field_is_found() {
        assert!(FIELDS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, kind) in FIELDS {
            assert_eq!(field_kind(name), Some(kind));
        }
        assert_eq!(field_kind("noSuchField"), None);
    }
}
