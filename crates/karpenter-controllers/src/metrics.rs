//! Every number that this process tells about itself, declared in one place, with upstream's names and labels.
//!
//! Most of them follow from the objects and are counted by watching the stores ([`follow`]) or worked out when somebody
//! asks ([`page`]), so controllers need not know about them. What only a controller knows, it counts itself. Nothing is
//! ever decided from a metric. Prices and availability of single offerings are the provider's to tell, and only with
//! `--offering-metrics`: they are tens of thousands of series that depend on nothing in the cluster.

pub mod client;
pub mod cloud;
mod conditions;
pub mod cost;
mod declare;
pub mod disruption;
mod exposition;
mod follow;
mod nodes;
mod page;
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

/// So many bounds, each twice the one before.
fn powers(first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * 2f64.powi(power)).collect()
}

/// Since when the stores have not been filled, as far as anybody asked.
#[derive(Debug, Default)]
struct Unsynced {
    began: Mutex<Option<Timestamp>>,
}

/// Clones count into the same series.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    declared: Arc<[Declared]>,
    /// Whether this copy works: only then does it tell about objects.
    is_following: Arc<AtomicBool>,
    /// Group and kind of the node classes of pools that are ours; empty where there is no provider.
    class_kinds: Arc<[(&'static str, &'static str)]>,
    node_labels: Arc<NodeLabels>,
    conditions: ConditionMetrics,
    unsynced: Arc<Unsynced>,

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
    pods_planned_bound: IntCounterVec,
    pub pods_drained: IntCounterVec,
    pub pods_eviction_requests: IntCounterVec,
    pub pod_deletion_cost_pending: IntGaugeVec,
    pub pod_deletion_cost_writes: IntCounterVec,

    pub scheduling_duration: HistogramVec,
    pub plans: scheduler::Plans,
    pub planner_faults: IntCounterVec,
    pub scheduler_ignored_pods: IntGauge,
    pub scheduler_unschedulable_pods: IntGaugeVec,

    cluster_state_node_count: IntGauge,
    cluster_state_synced: IntGauge,
    cluster_state_unsynced: Gauge,

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
    /// Metrics whose labels are those that the provider's objects have.
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
                "Number of nodeclaims that are gone.",
                &["nodepool", "capacity_type", "zone"],
            ),
            nodeclaims_disrupted: declare.counter(
                "karpenter_nodeclaims_disrupted_total",
                "Number of nodeclaims ended by Karpenter, by reason.",
                &["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
            ),
            nodeclaims_unhealthy_disrupted: declare.counter(
                "karpenter_nodeclaims_unhealthy_disrupted_total",
                "Number of nodeclaims ended because their nodes were sick, by condition.",
                &["condition", "nodepool", "capacity_type", "image_id", "termination_mode"],
            ),
            nodeclaims_termination_duration: declare.histogram(
                "karpenter_nodeclaims_termination_duration_seconds",
                "From the deletion of a nodeclaim until it is gone.",
                &powers(1.0, 12),
                &["nodepool"],
            ),
            nodeclaims_instance_termination_duration: declare.histogram(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "From the first request to end an instance until it is gone.",
                &powers(1.0, 11),
                &["nodepool"],
            ),
            disruption: disruption::DisruptionMetrics::new(&declare),
            nodes_created: declare.counter(
                "karpenter_nodes_created_total",
                "Number of nodes that registered for a nodeclaim.",
                &["nodepool", "zone"],
            ),
            nodes_terminated: declare.counter(
                "karpenter_nodes_terminated_total",
                "Number of nodes of nodeclaims that are gone.",
                &["nodepool", "zone"],
            ),
            nodes_drained: declare.counter(
                "karpenter_nodes_drained_total",
                "Number of nodes whose pods were all gone before they were.",
                &["nodepool"],
            ),
            nodes_lifetime_duration: declare.histogram(
                "karpenter_nodes_lifetime_duration_seconds",
                "How long nodes lived.",
                LIFETIME_BUCKETS,
                &["nodepool"],
            ),
            nodes_termination_duration: SummaryVec::new(
                "karpenter_nodes_termination_duration_seconds",
                "From the deletion of a node until it is gone.",
                &["nodepool"],
            ),
            nodes_reboots: declare.counter(
                "karpenter_nodes_reboots_total",
                "Number of restarts of nodes in place, by how they ended.",
                &["result"],
            ),
            nodes_reboot_duration: declare.histogram(
                "karpenter_nodes_reboot_duration_seconds",
                "From the request for a restart until it ended, by how.",
                &reboots,
                &["result"],
            ),
            nodes_reboot_recovery_duration: declare.histogram(
                "karpenter_nodes_reboot_recovery_duration_seconds",
                "From the restart of a node until it was back.",
                &reboots,
                &[],
            ),
            nodepools_cost: declare.gauge(
                "karpenter_nodepools_cost_total",
                "What the nodes of a nodepool cost an hour, at the prices that plans reckon with.",
                &["nodepool"],
            ),
            nodepools_cost_errors: declare.counter(
                "karpenter_nodepools_cost_tracker_errors_total",
                "Number of times that the prices for a nodepool could not be had.",
                &["nodepool"],
            ),
            pods: pods::PodMetrics::new(&declare),
            pods_planned_bound: declare.counter(
                "karpenter_pods_planned_bound_total",
                "Number of bound pods that had been planned for a new node, by whether they are on it.",
                &["as_planned"],
            ),
            pods_drained: declare.counter(
                "karpenter_pods_drained_total",
                "Number of pods that left nodes because Karpenter ended them, by reason.",
                &["reason"],
            ),
            pods_eviction_requests: declare.counter(
                "karpenter_pods_eviction_requests_total",
                "Number of evictions asked for, by the server's answer.",
                &["code"],
            ),
            pod_deletion_cost_pending: declare.gauge_int(
                "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes",
                "Number of nodes whose pods are to get another deletion cost.",
                &["nodepool"],
            ),
            pod_deletion_cost_writes: declare.counter(
                "karpenter_pod_deletion_cost_pod_annotation_writes_total",
                "Number of pods that were to get another deletion cost, by outcome.",
                &["result"],
            ),
            scheduling_duration: declare.histogram(
                "karpenter_scheduler_scheduling_duration_seconds",
                "How long plans took.",
                DURATION_BUCKETS,
                &["controller"],
            ),
            plans: scheduler::Plans::default(),
            planner_faults: declare.counter(
                "karpenter_planner_faults_total",
                "Number of plans that broke a rule or ended early, by planner mode and cause.",
                &["mode", "cause"],
            ),
            scheduler_ignored_pods: declare.gauge_single(
                "karpenter_scheduler_ignored_pods_count",
                "Number of pods that are not planned for because of what they ask for.",
            ),
            scheduler_unschedulable_pods: declare.gauge_int(
                "karpenter_scheduler_unschedulable_pods_count",
                "Number of pods for which the last plan had no place.",
                &["controller"],
            ),
            cluster_state_node_count: declare
                .gauge_single("karpenter_cluster_state_node_count", "Number of nodes known."),
            cluster_state_synced: declare.gauge_single(
                "karpenter_cluster_state_synced",
                "Whether everything that is watched has been listed once.",
            ),
            cluster_state_unsynced: declare.gauge_float(
                "karpenter_cluster_state_unsynced_time_seconds",
                "How long not everything that is watched has been listed.",
            ),
            cloud_duration: declare.histogram(
                "karpenter_cloudprovider_duration_seconds",
                "How long calls to the cloud took.",
                prometheus::DEFAULT_BUCKETS,
                &["controller", "method", "provider"],
            ),
            cloud_errors: declare.counter(
                "karpenter_cloudprovider_errors_total",
                "Number of calls to the cloud that failed.",
                &["controller", "method", "provider", "error", "nodepool"],
            ),
            runtime: runtime::RuntimeMetrics::new(&declare),
            leader_election_status: declare.gauge_int(
                "leader_election_master_status",
                "Whether this process holds the lease.",
                &["name"],
            ),
            leader_election_slow_path: declare.counter(
                "leader_election_slowpath_total",
                "Number of renewals of the lease that failed and were tried again.",
                &["name"],
            ),
            heap_live: declare.gauge_float(
                "go_gc_heap_live_bytes",
                "Resident memory: there is no collector here that could say which part of it is live.",
            ),
            declared: declare.declared.into_inner().unwrap_or_else(PoisonError::into_inner).into(),
            registry: Arc::new(declare.registry),
        };
        metrics.scheduler_ignored_pods.set(0);
        metrics
    }

    /// Where a provider declares what it tells about itself, next to everything here.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What is kept here, whether or not it has a series yet. What a provider registers is not among it.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// What is kept, in Prometheus' text format.
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
