//! All fields of the kubelet configuration (kubelet.config.k8s.io/v1beta1, Kubernetes 1.36), including nested ones.
//!
//! The module is a data table; a newer Kubernetes version adds lines. It states types only, not the valid values.

use Kind::*;

/// The type that a kubelet setting must have.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Number,
    Text,
    /// A string in Go's duration format, such as `30s`.
    Duration,
    /// A string in Go's duration format, or a number of nanoseconds.
    DurationOrNumber,
    Quantity,
    /// A string in RFC 3339 format.
    Time,
    List(&'static Kind),
    Map(&'static Kind),
    Record(&'static [Field]),
}

pub type Field = (&'static str, Kind);

/// The type of a top-level field; `None` if the kubelet has no such field.
pub(super) fn field_kind(name: &str) -> Option<&'static Kind> {
    KUBELET.binary_search_by_key(&name, |(field, _)| field).ok().map(|index| &KUBELET[index].1)
}

/// Sorted by name.
pub const KUBELET: &[Field] = &[
    ("address", Text),
    ("allowedUnsafeSysctls", List(&Text)),
    ("apiVersion", Text),
    ("authentication", Record(AUTHENTICATION)),
    ("authorization", Record(AUTHORIZATION)),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Bool),
    ("clusterDNS", List(&Text)),
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
    ("cpuManagerPolicyOptions", Map(&Text)),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Record(CRASH_LOOP_BACK_OFF)),
    ("enableContentionProfiling", Bool),
    ("enableControllerAttachDetach", Bool),
    ("enableDebugFlagsHandler", Bool),
    ("enableDebuggingHandlers", Bool),
    ("enableProfilingHandler", Bool),
    ("enableServer", Bool),
    ("enableSystemLogHandler", Bool),
    ("enableSystemLogQuery", Bool),
    ("enforceNodeAllocatable", List(&Text)),
    ("eventBurst", Int32),
    ("eventRecordQPS", Int32),
    ("evictionHard", Map(&Text)),
    ("evictionMaxPodGracePeriod", Int32),
    ("evictionMinimumReclaim", Map(&Text)),
    ("evictionPressureTransitionPeriod", Duration),
    ("evictionSoft", Map(&Text)),
    ("evictionSoftGracePeriod", Map(&Text)),
    ("failCgroupV1", Bool),
    ("failSwapOn", Bool),
    ("featureGates", Map(&Bool)),
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
    ("kubeReserved", Map(&Text)),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Bool),
    ("logging", Record(LOGGING)),
    ("makeIPTablesUtilChains", Bool),
    ("maxOpenFiles", Int64),
    ("maxParallelImagePulls", Int32),
    ("maxPods", Int32),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Record(MEMORY_SWAP)),
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
    ("preloadedImagesVerificationAllowlist", List(&Text)),
    ("protectKernelDefaults", Bool),
    ("providerID", Text),
    ("qosReserved", Map(&Text)),
    ("readOnlyPort", Int32),
    ("registerNode", Bool),
    ("registerWithTaints", List(&Record(TAINT))),
    ("registryBurst", Int32),
    ("registryPullQPS", Int32),
    ("reservedMemory", List(&Record(RESERVED_MEMORY))),
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
    ("shutdownGracePeriodByPodPriority", List(&Record(SHUTDOWN_BY_PRIORITY))),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Bool),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", Map(&List(&Text))),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemReserved", Map(&Text)),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", List(&Text)),
    ("tlsCurvePreferences", List(&Int32)),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", Map(&Text)),
    ("topologyManagerScope", Text),
    ("tracing", Record(TRACING)),
    ("userNamespaces", Record(USER_NAMESPACES)),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

const AUTHENTICATION: &[Field] =
    &[("anonymous", Record(ANONYMOUS)), ("webhook", Record(AUTHENTICATION_WEBHOOK)), ("x509", Record(X509))];

const ANONYMOUS: &[Field] = &[("enabled", Bool)];

const AUTHENTICATION_WEBHOOK: &[Field] = &[("cacheTTL", Duration), ("enabled", Bool)];

const X509: &[Field] = &[("clientCAFile", Text)];

const AUTHORIZATION: &[Field] = &[("mode", Text), ("webhook", Record(AUTHORIZATION_WEBHOOK))];

const AUTHORIZATION_WEBHOOK: &[Field] =
    &[("cacheAuthorizedTTL", Duration), ("cacheUnauthorizedTTL", Duration)];

const CRASH_LOOP_BACK_OFF: &[Field] = &[("maxContainerRestartPeriod", Duration)];

const LOGGING: &[Field] = &[
    ("flushFrequency", DurationOrNumber),
    ("format", Text),
    ("options", Record(LOGGING_OPTIONS)),
    ("verbosity", Uint32),
    ("vmodule", List(&Record(VMODULE))),
];

const LOGGING_OPTIONS: &[Field] = &[("json", Record(OUTPUT)), ("text", Record(OUTPUT))];

const OUTPUT: &[Field] = &[("infoBufferSize", Quantity), ("splitStream", Bool)];

const VMODULE: &[Field] = &[("filePattern", Text), ("verbosity", Uint32)];

const MEMORY_SWAP: &[Field] = &[("swapBehavior", Text)];

const TAINT: &[Field] = &[("effect", Text), ("key", Text), ("timeAdded", Time), ("value", Text)];

const RESERVED_MEMORY: &[Field] = &[("limits", Map(&Quantity)), ("numaNode", Int32)];

const SHUTDOWN_BY_PRIORITY: &[Field] = &[("priority", Int32), ("shutdownGracePeriodSeconds", Int64)];

const TRACING: &[Field] = &[("endpoint", Text), ("samplingRatePerMillion", Int32)];

const USER_NAMESPACES: &[Field] = &[("idsPerPod", Int64)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_for_binary_search() {
        assert!(KUBELET.is_sorted_by(|a, b| a.0 < b.0));
        for (name, kind) in KUBELET {
            assert_eq!(field_kind(name), Some(kind));
        }
        assert_eq!(field_kind("noSuchField"), None);
    }
}
