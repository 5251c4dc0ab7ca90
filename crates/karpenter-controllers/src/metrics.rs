//! Every number that this process tells about itself, declared in one place, with upstream's names and labels.
//!
//! Most of them follow from the objects and are counted by watching the mirrors ([`follow`]) or when somebody asks
//! ([`refresh`]), so controllers need not know about them. What only a controller knows, it counts itself. Nothing is
//! ever decided from a metric.

pub mod cloud;
pub mod disruption;
mod follow;
mod refresh;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

/// Upstream's buckets of durations, in seconds.
const DURATION_BUCKETS: &[f64] = &[
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

/// What every series about a node says of it.
pub(crate) const NODE_LABELS: [&str; 10] = [
    "node_name",
    "phase",
    "managed",
    "nodepool",
    "zone",
    "region",
    "instance_type",
    "arch",
    "os",
    "capacity_type",
];

/// Clones count into the same series.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,

    pub nodeclaims_created: IntCounterVec,
    pub nodeclaims_terminated: IntCounterVec,
    pub nodeclaims_disrupted: IntCounterVec,
    pub nodeclaims_unhealthy_disrupted: IntCounterVec,
    pub nodeclaims_termination_duration: HistogramVec,
    pub nodeclaims_instance_termination_duration: HistogramVec,
    pub nodeclaim_condition_transitions: IntCounterVec,
    pub nodeclaim_condition_transition_duration: HistogramVec,
    nodeclaim_condition_count: IntGaugeVec,

    pub disruption: disruption::DisruptionMetrics,

    pub nodes_created: IntCounterVec,
    pub nodes_terminated: IntCounterVec,
    pub nodes_drained: IntCounterVec,
    pub nodes_lifetime_duration: HistogramVec,
    pub nodes_reboots: IntCounterVec,
    pub nodes_reboot_duration: HistogramVec,
    pub nodes_reboot_recovery_duration: HistogramVec,
    nodes_allocatable: GaugeVec,
    nodes_total_pod_requests: GaugeVec,
    nodes_total_daemon_requests: GaugeVec,
    nodes_current_lifetime: GaugeVec,
    cluster_utilization_percent: GaugeVec,

    nodepools_usage: GaugeVec,
    nodepools_limit: GaugeVec,

    pub pods_bound_duration: HistogramVec,
    pods_planned_bound: IntCounterVec,
    pub pods_drained: IntCounterVec,
    pub pods_eviction_requests: IntCounterVec,
    pub pod_deletion_cost_pending: IntGaugeVec,
    pub pod_deletion_cost_writes: IntCounterVec,

    pub scheduling_duration: HistogramVec,
    pub scheduler_queue_depth: IntGaugeVec,
    pub scheduler_ignored_pods: IntGauge,
    pub scheduler_unschedulable_pods: IntGaugeVec,

    cluster_state_node_count: IntGauge,
    cluster_state_synced: IntGauge,

    pub cloud_duration: HistogramVec,
    pub cloud_errors: IntCounterVec,

    pub reconcile_total: IntCounterVec,
    pub reconcile_errors: IntCounterVec,
    pub reconcile_duration: HistogramVec,
    pub reconcile_workers: IntGaugeVec,
    pub reconcile_workers_max: IntGaugeVec,
    workqueue_depth: IntGaugeVec,
    pub leader_election_status: IntGaugeVec,
    heap_live: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let declare = Declare { registry: Registry::new() };
        let node_and_resource: Vec<&str> = ["resource_type"].into_iter().chain(NODE_LABELS).collect();
        let doubling = |count: i32| -> Vec<f64> { (0..count).map(|power| 2f64.powi(power)).collect() };
        let halves: Vec<f64> = (0..15).map(|power| 0.5 * 2f64.powi(power)).collect();
        let reboots: Vec<f64> = (0..8).map(|power| 10.0 * 2f64.powi(power)).collect();
        declare.process();
        let metrics = Self {
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
                &doubling(12),
                &["nodepool"],
            ),
            nodeclaims_instance_termination_duration: declare.histogram(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "From the first request to end an instance until it is gone.",
                &doubling(11),
                &["nodepool"],
            ),
            nodeclaim_condition_transitions: declare.counter(
                "operator_nodeclaim_status_condition_transitions_total",
                "Number of changes of a nodeclaim's condition, by its type and new status.",
                &["type", "status", "reason", "nodepool", "nodeclass"],
            ),
            nodeclaim_condition_transition_duration: declare.histogram(
                "operator_nodeclaim_status_condition_transition_seconds",
                "How long a nodeclaim's condition had a status before it changed.",
                &halves,
                &["type", "status", "to_status", "nodepool", "nodeclass"],
            ),
            nodeclaim_condition_count: declare.gauge_int(
                "operator_nodeclaim_status_condition_count",
                "Number of nodeclaims with a condition of this type, status and reason.",
                &["type", "status", "reason", "nodepool", "nodeclass"],
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
            nodes_allocatable: declare.gauge(
                "karpenter_nodes_allocatable",
                "What nodes can hold.",
                &node_and_resource,
            ),
            nodes_total_pod_requests: declare.gauge(
                "karpenter_nodes_total_pod_requests",
                "What the pods of nodes ask for, those of daemonsets left out.",
                &node_and_resource,
            ),
            nodes_total_daemon_requests: declare.gauge(
                "karpenter_nodes_total_daemon_requests",
                "What the pods of daemonsets on nodes ask for.",
                &node_and_resource,
            ),
            nodes_current_lifetime: declare.gauge(
                "karpenter_nodes_current_lifetime_seconds",
                "Age of nodes.",
                &NODE_LABELS,
            ),
            cluster_utilization_percent: declare.gauge(
                "karpenter_cluster_utilization_percent",
                "What pods ask for as a share of what nodes can hold.",
                &["resource_type"],
            ),
            nodepools_usage: declare.gauge(
                "karpenter_nodepools_usage",
                "What the nodes of a nodepool add up to.",
                &["resource_type", "nodepool"],
            ),
            nodepools_limit: declare.gauge(
                "karpenter_nodepools_limit",
                "What the nodes of a nodepool may add up to.",
                &["resource_type", "nodepool"],
            ),
            pods_bound_duration: declare.histogram(
                "karpenter_pods_bound_duration_seconds",
                "From the creation of a pod until it is bound.",
                DURATION_BUCKETS,
                &["dynamic_resources"],
            ),
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
            scheduler_queue_depth: declare.gauge_int(
                "karpenter_scheduler_queue_depth",
                "Number of pods that wait for a plan.",
                &["controller"],
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
            reconcile_total: declare.counter(
                "controller_runtime_reconcile_total",
                "Number of passes, by controller and result.",
                &["controller", "result"],
            ),
            reconcile_errors: declare.counter(
                "controller_runtime_reconcile_errors_total",
                "Number of passes that failed, by controller.",
                &["controller"],
            ),
            reconcile_duration: declare.histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long passes took, by controller.",
                DURATION_BUCKETS,
                &["controller"],
            ),
            reconcile_workers: declare.gauge_int(
                "controller_runtime_active_workers",
                "Number of passes under way, by controller.",
                &["controller"],
            ),
            reconcile_workers_max: declare.gauge_int(
                "controller_runtime_max_concurrent_reconciles",
                "Number of passes that may be under way at once, by controller.",
                &["controller"],
            ),
            workqueue_depth: declare.gauge_int(
                "workqueue_depth",
                "Number of keys that wait for a worker, by controller.",
                &["name", "controller"],
            ),
            leader_election_status: declare.gauge_int(
                "leader_election_master_status",
                "Whether this process holds the lease.",
                &["name"],
            ),
            heap_live: declare.gauge_float(
                "go_gc_heap_live_bytes",
                "Resident memory: there is no collector here that could say which part of it is live.",
            ),
            registry: Arc::new(declare.registry),
        };
        metrics.scheduler_ignored_pods.set(0);
        metrics
    }

    /// Everything in Prometheus' text format.
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

/// Names and labels are constants of this file, so declaring them cannot fail.
struct Declare {
    registry: Registry,
}

impl Declare {
    const VALID: &'static str = "a metric of this file has a valid name of its own";

    fn add<C: prometheus::core::Collector + Clone + 'static>(&self, collector: C) -> C {
        self.registry.register(Box::new(collector.clone())).expect(Self::VALID);
        collector
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    fn gauge_int(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    fn gauge_single(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help).expect(Self::VALID))
    }

    fn gauge_float(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help).expect(Self::VALID))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, labels).expect(Self::VALID))
    }

    /// Facts about the process itself.
    fn process(&self) {
        let build = self.gauge_int(
            "karpenter_build_info",
            "Which build this is; always 1.",
            &["version", "goversion", "goarch", "commit"],
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), "", std::env::consts::ARCH, ""]).set(1);
        #[cfg(target_os = "linux")]
        self.registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect(Self::VALID);
    }
}
