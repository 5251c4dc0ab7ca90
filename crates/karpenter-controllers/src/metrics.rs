//! All metrics of the controllers, declared in one place with upstream's names and labels.
//!
//! Most metrics are derived from objects: [`crate::metrics_export`] counts changes of the stores, and computes series for
//! each scrape. Controllers only count what objects do not show. No decision depends on a metric. The provider
//! publishes price and availability of single offerings only with `--offering-metrics`, because there are tens of
//! thousands of series.

pub mod client;
pub mod cloud;
pub(crate) mod conditions;
mod declare;
pub mod disruption;
pub(crate) mod exposition;
pub(crate) mod nodes;
pub mod pods;
pub mod runtime;
pub mod scheduler;
mod summary;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use karpenter_cloud::CloudProvider;
use karpenter_runtime::clock::since;
use prometheus::{
    Gauge, GaugeVec, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};

use self::conditions::ConditionMetrics;
use self::declare::Declare;
pub use self::declare::Declared;
use self::nodes::NodeLabels;
pub use self::summary::SummaryVec;

/// Upstream's buckets of durations, in seconds.
pub const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
const LIFETIME_BUCKETS: &[f64] = &[
    15.0 * MINUTE,
    30.0 * MINUTE,
    45.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    4.0 * HOUR,
    6.0 * HOUR,
    8.0 * HOUR,
    10.0 * HOUR,
    12.0 * HOUR,
    16.0 * HOUR,
    20.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    5.0 * DAY,
    10.0 * DAY,
    15.0 * DAY,
    20.0 * DAY,
    25.0 * DAY,
    30.0 * DAY,
];

/// `count` bucket bounds: the first one is `first`, and each further one is twice the previous one.
fn powers(first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * 2f64.powi(power)).collect()
}

/// Since when the stores are not synced. The time counts from the first scrape that found them not synced.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    began: Mutex<Option<Timestamp>>,
}

impl Unsynced {
    /// For how long the stores have not been synced, counted from the first scrape that found them not synced.
    pub(crate) fn seconds(&self, is_synced: bool, now: Timestamp) -> f64 {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        if is_synced {
            *began = None;
            return 0.0;
        }
        since(now, *began.get_or_insert(now)).as_secs_f64()
    }
}

/// Clones share the series.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    declared: Arc<[Declared]>,
    /// Whether this replica is the leader. Only the leader publishes metrics of objects.
    pub(crate) is_following: Arc<AtomicBool>,
    /// Group and kind of the provider's node classes; empty without a provider.
    pub(crate) class_kinds: Arc<[(&'static str, &'static str)]>,
    pub(crate) node_labels: Arc<NodeLabels>,
    pub(crate) conditions: ConditionMetrics,
    pub(crate) unsynced: Arc<Unsynced>,

    pub nodeclaims_created: IntCounterVec,
    pub nodeclaims_terminated: IntCounterVec,
    pub nodeclaims_disrupted: IntCounterVec,
    pub nodeclaims_unhealthy_disrupted: IntCounterVec,
    pub nodeclaims_termination_duration: HistogramVec,
    pub nodeclaims_instance_termination_duration: HistogramVec,

    pub disruption: disruption::DisruptionMetrics,

    pub nodes_created: IntCounterVec,
    pub nodes_terminated: IntCounterVec,
    pub nodes_drained: IntCounterVec,
    pub nodes_lifetime_duration: HistogramVec,
    pub nodes_termination_duration: SummaryVec,
    pub nodes_reboots: IntCounterVec,
    pub nodes_reboot_duration: HistogramVec,
    pub nodes_reboot_recovery_duration: HistogramVec,

    pub nodepools_cost: GaugeVec,
    pub nodepools_cost_errors: IntCounterVec,

    pub pods: pods::PodMetrics,
    pub(crate) pods_planned_bound: IntCounterVec,
    pub pods_drained: IntCounterVec,
    pub pods_eviction_requests: IntCounterVec,
    pub pod_deletion_cost_pending: IntGaugeVec,
    pub pod_deletion_cost_writes: IntCounterVec,

    pub scheduling_duration: HistogramVec,
    pub plans: scheduler::Plans,
    pub planner_faults: IntCounterVec,
    pub scheduler_ignored_pods: IntGauge,
    pub scheduler_unschedulable_pods: IntGaugeVec,

    pub(crate) cluster_state_node_count: IntGauge,
    pub(crate) cluster_state_synced: IntGauge,
    pub(crate) cluster_state_unsynced: Gauge,

    pub cloud_duration: HistogramVec,
    pub cloud_errors: IntCounterVec,

    pub runtime: runtime::RuntimeMetrics,
    pub leader_election_status: IntGaugeVec,
    pub leader_election_slow_path: IntCounterVec,
    heap_live: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Metrics {
    /// The metrics of the controllers. Some have labels that depend on the provider: its node class kinds and its
    /// well-known labels.
    pub fn of(cloud: &dyn CloudProvider) -> Self {
        Self::new(Some(cloud))
    }

    fn new(cloud: Option<&dyn CloudProvider>) -> Self {
        let declare = Declare::default();
        let reboots = powers(10.0, 8);
        let class_kinds = cloud.map(CloudProvider::node_class_kinds).unwrap_or_default();
        let class_kinds: Vec<(&'static str, &'static str)> =
            class_kinds.iter().map(|kind| (kind.group, kind.kind)).collect();
        let of_provider = cloud.map(CloudProvider::well_known_labels).unwrap_or_default();
        let well_known = karpenter_model::labels::WELL_KNOWN;
        let well_known = well_known.into_iter().chain(of_provider.iter().map(|key| &**key));
        declare.process();
        let metrics = Self {
            is_following: Arc::default(),
            class_kinds: class_kinds.as_slice().into(),
            node_labels: Arc::new(NodeLabels::new(well_known)),
            conditions: ConditionMetrics::new(&declare, &class_kinds),
            unsynced: Arc::default(),
            nodeclaims_created: declare.counter(
                "karpenter_nodeclaims_created_total",
                "Number of nodeclaims created, by reason.",
                &["reason", "nodepool", "min_values_relaxed"],
            ),
            nodeclaims_terminated: declare.counter(
                "karpenter_nodeclaims_terminated_total",
                "Number of nodeclaims terminated.",
                &["nodepool", "capacity_type", "zone"],
            ),
            nodeclaims_disrupted: declare.counter(
                "karpenter_nodeclaims_disrupted_total",
                "Number of nodeclaims disrupted, by reason.",
                &["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
            ),
            nodeclaims_unhealthy_disrupted: declare.counter(
                "karpenter_nodeclaims_unhealthy_disrupted_total",
                "Number of nodeclaims disrupted by node repair, by unhealthy condition.",
                &["condition", "nodepool", "capacity_type", "image_id", "termination_mode"],
            ),
            nodeclaims_termination_duration: declare.histogram(
                "karpenter_nodeclaims_termination_duration_seconds",
                "Duration from the deletion of a nodeclaim until it is removed.",
                &powers(1.0, 12),
                &["nodepool"],
            ),
            nodeclaims_instance_termination_duration: declare.histogram(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "Duration from the first request to terminate an instance until it is terminated.",
                &powers(1.0, 11),
                &["nodepool"],
            ),
            disruption: disruption::DisruptionMetrics::new(&declare),
            nodes_created: declare.counter(
                "karpenter_nodes_created_total",
                "Number of nodes created: nodes that registered for a nodeclaim.",
                &["nodepool", "zone"],
            ),
            nodes_terminated: declare.counter(
                "karpenter_nodes_terminated_total",
                "Number of nodes terminated.",
                &["nodepool", "zone"],
            ),
            nodes_drained: declare.counter(
                "karpenter_nodes_drained_total",
                "Number of nodes drained.",
                &["nodepool"],
            ),
            nodes_lifetime_duration: declare.histogram(
                "karpenter_nodes_lifetime_duration_seconds",
                "Lifetime of nodes, from creation to deletion.",
                LIFETIME_BUCKETS,
                &["nodepool"],
            ),
            nodes_termination_duration: SummaryVec::new(
                "karpenter_nodes_termination_duration_seconds",
                "Duration from the deletion of a node until it is removed.",
                &["nodepool"],
            ),
            nodes_reboots: declare.counter(
                "karpenter_nodes_reboots_total",
                "Number of reboots of nodes, by result.",
                &["result"],
            ),
            nodes_reboot_duration: declare.histogram(
                "karpenter_nodes_reboot_duration_seconds",
                "Duration from the request of a reboot until it ended, by result.",
                &reboots,
                &["result"],
            ),
            nodes_reboot_recovery_duration: declare.histogram(
                "karpenter_nodes_reboot_recovery_duration_seconds",
                "Duration from the reboot of a node until it was ready.",
                &reboots,
                &[],
            ),
            nodepools_cost: declare.gauge(
                "karpenter_nodepools_cost_total",
                "Price per hour of the nodes of a nodepool, with the prices that the planner uses.",
                &["nodepool"],
            ),
            nodepools_cost_errors: declare.counter(
                "karpenter_nodepools_cost_tracker_errors_total",
                "Number of times that the prices of a nodepool could not be resolved.",
                &["nodepool"],
            ),
            pods: pods::PodMetrics::new(&declare),
            pods_planned_bound: declare.counter(
                "karpenter_pods_planned_bound_total",
                "Number of bound pods with a reservation, by whether they were bound to the planned node.",
                &["as_planned"],
            ),
            pods_drained: declare.counter(
                "karpenter_pods_drained_total",
                "Number of pods drained from nodes, by reason.",
                &["reason"],
            ),
            pods_eviction_requests: declare.counter(
                "karpenter_pods_eviction_requests_total",
                "Number of eviction requests, by status code of the response.",
                &["code"],
            ),
            pod_deletion_cost_pending: declare.gauge_int(
                "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes",
                "Number of nodes with pending writes of the annotation pod-deletion-cost.",
                &["nodepool"],
            ),
            pod_deletion_cost_writes: declare.counter(
                "karpenter_pod_deletion_cost_pod_annotation_writes_total",
                "Number of writes of the annotation pod-deletion-cost, by result.",
                &["result"],
            ),
            scheduling_duration: declare.histogram(
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of planning.",
                DURATION_BUCKETS,
                &["controller"],
            ),
            plans: scheduler::Plans::default(),
            planner_faults: declare.counter(
                "karpenter_planner_faults_total",
                "Number of planner faults: invalid plans and panics, by planner mode and cause.",
                &["mode", "cause"],
            ),
            scheduler_ignored_pods: declare.gauge_single(
                "karpenter_scheduler_ignored_pods_count",
                "Number of pods that provisioning ignores because their spec is not supported.",
            ),
            scheduler_unschedulable_pods: declare.gauge_int(
                "karpenter_scheduler_unschedulable_pods_count",
                "Number of unschedulable pods in the last plan.",
                &["controller"],
            ),
            cluster_state_node_count: declare
                .gauge_single("karpenter_cluster_state_node_count", "Number of nodes in cluster state."),
            cluster_state_synced: declare.gauge_single(
                "karpenter_cluster_state_synced",
                "Whether cluster state is synced: every watched kind has been listed.",
            ),
            cluster_state_unsynced: declare.gauge_float(
                "karpenter_cluster_state_unsynced_time_seconds",
                "How long cluster state has not been synced.",
            ),
            cloud_duration: declare.histogram(
                "karpenter_cloudprovider_duration_seconds",
                "Duration of calls to the cloud provider.",
                prometheus::DEFAULT_BUCKETS,
                &["controller", "method", "provider"],
            ),
            cloud_errors: declare.counter(
                "karpenter_cloudprovider_errors_total",
                "Number of failed calls to the cloud provider.",
                &["controller", "method", "provider", "error", "nodepool"],
            ),
            runtime: runtime::RuntimeMetrics::new(&declare),
            leader_election_status: declare.gauge_int(
                "leader_election_master_status",
                "Whether this process holds the leader election lease.",
                &["name"],
            ),
            leader_election_slow_path: declare.counter(
                "leader_election_slowpath_total",
                "Number of failed lease renewals that were retried.",
                &["name"],
            ),
            heap_live: declare.gauge_float(
                "go_gc_heap_live_bytes",
                "Resident memory of the process, as there is no garbage collector.",
            ),
            declared: declare.declared.into_inner().unwrap_or_else(PoisonError::into_inner).into(),
            registry: Arc::new(declare.registry),
        };
        metrics.scheduler_ignored_pods.set(0);
        metrics
    }

    /// The registry of the metrics. The cloud provider registers its own metrics in it.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The metrics declared by this crate, with or without series.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// The registered metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        #[cfg(target_os = "linux")]
        self.heap_live.set(resident_bytes());
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

#[cfg(target_os = "linux")]
fn resident_bytes() -> f64 {
    use prometheus::core::Collector;
    let families = prometheus::process_collector::ProcessCollector::for_self().collect();
    let resident = families.iter().find(|family| family.name() == "process_resident_memory_bytes");
    resident
        .and_then(|family| family.get_metric().first())
        .map_or(0.0, |series| series.get_gauge().get_value())
}
