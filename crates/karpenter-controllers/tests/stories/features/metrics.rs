//! Tests that names, types and labels of the metrics are upstream's, so that dashboards and alerts keep working.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, PodTemplate};
use karpenter_api::types::{CapacityBuffer, NodeClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use prometheus::core::Collector;
use serde_json::json;

use crate::features::world::{World, create, pod_spec, typed, with_gates};

/// The labels of all series of a node: upstream's, and the well-known labels of the kwok provider.
const NODE: &str = "node_name phase managed arch capacity_type instance_type nodepool os region windows_build zone \
    instance_cpu instance_family instance_memory instance_size";
const NODE_RESOURCE: &str = "resource_type node_name phase managed arch capacity_type instance_type nodepool os region \
    windows_build zone instance_cpu instance_family instance_memory instance_size";
const POD_STATE: &str = "name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready \
    managed";
const CONDITION: &str = "namespace name type status reason";
const CLASS_AND_POOL: &str = "karpenter_kwok_sh_kwoknodeclass karpenter_sh_nodepool";
const OF_NODE: &str = "karpenter_kwok_sh_kwoknodeclass karpenter_sh_nodepool karpenter_sh_initialized";
const DISRUPTED: &str = "reason nodepool capacity_type consolidation_policy termination_mode";

/// Metrics that must exist after pods were created and deleted: name, type, labels that every series has, and labels
/// that some series have.
const TOLD: &[(&str, &str, &str, &str)] = &[
    ("karpenter_build_info", "gauge", "version goversion goarch commit", ""),
    ("karpenter_nodeclaims_created_total", "counter", "reason nodepool min_values_relaxed", ""),
    ("karpenter_nodeclaims_terminated_total", "counter", "nodepool capacity_type zone", ""),
    ("karpenter_nodeclaims_disrupted_total", "counter", DISRUPTED, ""),
    ("karpenter_nodeclaims_termination_duration_seconds", "histogram", "nodepool", ""),
    ("karpenter_nodeclaims_instance_termination_duration_seconds", "histogram", "nodepool", ""),
    ("karpenter_nodes_created_total", "counter", "nodepool zone", ""),
    ("karpenter_nodes_terminated_total", "counter", "nodepool zone", ""),
    ("karpenter_nodes_drained_total", "counter", "nodepool", ""),
    ("karpenter_nodes_termination_duration_seconds", "summary", "nodepool", ""),
    ("karpenter_nodes_lifetime_duration_seconds", "histogram", "nodepool", ""),
    ("karpenter_nodes_allocatable", "gauge", NODE_RESOURCE, ""),
    ("karpenter_nodes_total_pod_requests", "gauge", NODE_RESOURCE, ""),
    ("karpenter_nodes_total_pod_limits", "gauge", NODE_RESOURCE, ""),
    ("karpenter_nodes_system_overhead", "gauge", NODE_RESOURCE, ""),
    ("karpenter_nodes_current_lifetime_seconds", "gauge", NODE, ""),
    ("karpenter_cluster_utilization_percent", "gauge", "resource_type", ""),
    ("karpenter_nodepools_limit", "gauge", "resource_type nodepool", ""),
    ("karpenter_nodepools_usage", "gauge", "resource_type nodepool", ""),
    ("karpenter_nodepools_cost_total", "gauge", "nodepool", ""),
    ("karpenter_nodepools_allowed_disruptions", "gauge", "nodepool reason", ""),
    ("karpenter_nodepools_nodes_consuming_budgets", "gauge", "nodepool reason", ""),
    ("karpenter_pods_state", "gauge", POD_STATE, ""),
    ("karpenter_pods_startup_duration_seconds", "summary", "", ""),
    ("karpenter_pods_bound_duration_seconds", "histogram", "dynamic_resources", ""),
    ("karpenter_pods_provisioning_bound_duration_seconds", "histogram", "dynamic_resources", ""),
    ("karpenter_pods_provisioning_startup_duration_seconds", "histogram", "", ""),
    ("karpenter_pods_scheduling_decision_duration_seconds", "histogram", "", ""),
    ("karpenter_pods_unstarted_time_seconds", "gauge", "name namespace", ""),
    ("karpenter_pods_unbound_time_seconds", "gauge", "name namespace dynamic_resources", ""),
    ("karpenter_pods_provisioning_unstarted_time_seconds", "gauge", "name namespace", ""),
    ("karpenter_pods_provisioning_unbound_time_seconds", "gauge", "name namespace dynamic_resources", ""),
    ("karpenter_pods_drained_total", "counter", "reason", ""),
    ("karpenter_pods_eviction_requests_total", "counter", "code", ""),
    (
        "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
        "histogram",
        "reason consolidation_type",
        "",
    ),
    ("karpenter_voluntary_disruption_decisions_total", "counter", "decision reason consolidation_type", ""),
    (
        "karpenter_voluntary_disruption_decisions_by_nodepool_total",
        "counter",
        "nodepool decision reason consolidation_type",
        "",
    ),
    ("karpenter_voluntary_disruption_eligible_nodes", "gauge", "reason", ""),
    ("karpenter_voluntary_disruption_consolidation_timeouts_total", "counter", "consolidation_type", ""),
    ("karpenter_scheduler_scheduling_duration_seconds", "histogram", "controller", ""),
    ("karpenter_scheduler_queue_depth", "gauge", "controller scheduling_id", ""),
    ("karpenter_scheduler_ignored_pods_count", "gauge", "", ""),
    ("karpenter_scheduler_unschedulable_pods_count", "gauge", "controller", ""),
    ("karpenter_scheduler_pending_pods_by_effective_zone_count", "gauge", "controller zone", ""),
    ("karpenter_cluster_state_node_count", "gauge", "", ""),
    ("karpenter_cluster_state_synced", "gauge", "", ""),
    ("karpenter_cluster_state_unsynced_time_seconds", "gauge", "", ""),
    ("karpenter_cloudprovider_duration_seconds", "histogram", "controller method provider", ""),
    (
        "operator_nodeclaim_status_condition_transition_seconds",
        "histogram",
        "type status to_status",
        CLASS_AND_POOL,
    ),
    (
        "operator_nodeclaim_status_condition_transitions_total",
        "counter",
        "type status reason",
        CLASS_AND_POOL,
    ),
    ("operator_nodeclaim_status_condition_count", "gauge", CONDITION, CLASS_AND_POOL),
    ("operator_nodeclaim_status_condition_current_status_seconds", "gauge", CONDITION, CLASS_AND_POOL),
    ("operator_nodeclaim_termination_current_time_seconds", "gauge", "namespace name", CLASS_AND_POOL),
    ("operator_nodeclaim_termination_duration_seconds", "histogram", CLASS_AND_POOL, ""),
    ("operator_nodepool_status_condition_transitions_total", "counter", "type status reason", ""),
    ("operator_nodepool_status_condition_count", "gauge", CONDITION, ""),
    ("operator_nodepool_status_condition_current_status_seconds", "gauge", CONDITION, ""),
    ("operator_node_status_condition_transitions_total", "counter", "type status reason", OF_NODE),
    ("operator_node_status_condition_count", "gauge", CONDITION, OF_NODE),
    ("operator_node_status_condition_current_status_seconds", "gauge", CONDITION, OF_NODE),
    ("operator_node_termination_current_time_seconds", "gauge", "namespace name", OF_NODE),
    ("operator_node_termination_duration_seconds", "histogram", OF_NODE, ""),
    ("operator_capacitybuffer_status_condition_count", "gauge", CONDITION, ""),
    ("operator_capacitybuffer_status_condition_transitions_total", "counter", "type status reason", ""),
    ("operator_status_condition_transition_seconds", "histogram", "type status to_status", "group kind"),
    ("operator_status_condition_transitions_total", "counter", "type status reason", "group kind"),
    ("operator_status_condition_count", "gauge", CONDITION, "group kind"),
    ("operator_status_condition_current_status_seconds", "gauge", CONDITION, "group kind"),
    ("operator_termination_current_time_seconds", "gauge", "namespace name", "group kind"),
    ("operator_termination_duration_seconds", "histogram", "", "group kind"),
    ("controller_runtime_reconcile_total", "counter", "controller result", ""),
    ("controller_runtime_reconcile_time_seconds", "histogram", "controller", ""),
    ("controller_runtime_active_workers", "gauge", "controller", ""),
    ("controller_runtime_max_concurrent_reconciles", "gauge", "controller", ""),
    ("controller_runtime_reconcile_panics_total", "counter", "controller", ""),
    ("controller_runtime_reconcile_timeouts_total", "counter", "controller", ""),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", "controller", ""),
    ("controller_runtime_conversion_webhook_panics_total", "counter", "", ""),
    ("workqueue_depth", "gauge", "name controller priority", ""),
    ("workqueue_adds_total", "counter", "name controller", ""),
    ("workqueue_retries_total", "counter", "name controller", ""),
    ("workqueue_queue_duration_seconds", "histogram", "name controller", ""),
    ("workqueue_work_duration_seconds", "histogram", "name controller", ""),
    ("workqueue_unfinished_work_seconds", "gauge", "name controller", ""),
    ("workqueue_longest_running_processor_seconds", "gauge", "name controller", ""),
    ("process_resident_memory_bytes", "gauge", "", ""),
    ("process_cpu_seconds_total", "counter", "", ""),
    ("go_gc_heap_live_bytes", "gauge", "", ""),
];

/// By name, all metrics that were exposed at any time: the type, and the label sets of the series. Labels that are part
/// of the type, such as `le`, are left out.
#[derive(Default)]
struct Seen(BTreeMap<String, (String, BTreeSet<BTreeSet<String>>)>);

impl Seen {
    fn read(&mut self, text: &str) {
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.starts_with("# HELP ")) {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').expect("a name and a type");
                name.clone_into(&mut current);
                self.0.entry(current.clone()).or_insert_with(|| (kind.to_owned(), BTreeSet::new()));
                continue;
            }
            let (series, _) = line.rsplit_once(' ').expect("a series and a value");
            let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
            let names = labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name);
            let own = names.filter(|name| !["le", "quantile"].contains(name)).map(str::to_owned).collect();
            self.0.get_mut(&current).expect("a type before its series").1.insert(own);
        }
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn metrics_of_a_full_node_lifecycle_match_upstream() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    let mut seen = Seen::default();
    let limits = Patch::Merge(json!({"spec": {"limits": {"cpu": "1000"}}}));
    let pools = world.all::<karpenter_api::types::NodePool>();
    pools.patch("default", &PatchParams::default(), &limits).await.expect("patched");
    create(
        &world.namespaced::<PodTemplate>(),
        json!({"metadata": {"name": "shape"}, "template": {"spec": pod_spec()}}),
    )
    .await;
    let buffer =
        json!({"metadata": {"name": "spare"}, "spec": {"podTemplateRef": {"name": "shape"}, "replicas": 1}});
    let buffers = world.namespaced::<CapacityBuffer>();
    create(&buffers, typed("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", buffer)).await;
    world.deployment("web", 2).await;
    world.pod("huge", json!({"cpu": "10000"})).await;
    let mut watch = async |seconds: u64| {
        for _ in 0..seconds {
            world.sleep(1).await;
            seen.read(&world.scrape());
        }
    };
    watch(60).await;
    assert_eq!(world.running().await.1, 2, "both pods run");
    let claim = world.claims().await.remove(0).metadata.name.expect("a name");
    world.all::<NodeClaim>().delete(&claim, &DeleteParams::default()).await.expect("deleted");
    watch(90).await;
    buffers.delete("spare", &DeleteParams::default()).await.expect("deleted");
    world.namespaced::<Deployment>().delete("web", &DeleteParams::background()).await.expect("deleted");
    watch(120).await;
    assert!(world.claims().await.is_empty(), "all nodes are removed");

    for (name, kind, labels, more) in TOLD {
        let (found_kind, found_labels) =
            seen.0.get(*name).unwrap_or_else(|| panic!("{name} was never exposed"));
        assert_eq!(found_kind, kind, "{name}");
        let expected: BTreeSet<String> = words(labels).union(&words(more)).cloned().collect();
        assert_eq!(found_labels, &BTreeSet::from([expected]), "{name}");
    }
    let text = world.scrape();
    for gone in [claim.as_str(), "name=\"web-", "name=\"spare\""] {
        let left: Vec<&str> = text.lines().filter(|line| line.contains(gone)).collect();
        assert!(left.is_empty(), "series of deleted objects are removed: {left:#?}");
    }
    pools.delete("default", &DeleteParams::default()).await.expect("deleted");
    world.sleep(5).await;
    let text = world.scrape();
    for gauge in ["allowed_disruptions", "nodes_consuming_budgets", "limit", "usage"] {
        assert!(!text.contains(&format!("karpenter_nodepools_{gauge}{{")), "{gauge} of a deleted NodePool");
    }
}

/// Pods on nodes that Karpenter removes are counted as disrupted, whatever the reason for the removal.
#[tokio::test(start_paused = true)]
async fn pods_of_expired_and_lost_nodes_are_counted_as_disrupted() {
    let world = World::start(with_gates("")).await;
    let pools = world.all::<karpenter_api::types::NodePool>();
    let expiring = Patch::Merge(json!({"spec": {"template": {"spec": {"expireAfter": "5m"}}}}));
    pools.patch("default", &PatchParams::default(), &expiring).await.expect("patched");
    world.deployment("web", 2).await;
    let disrupted = |reason: &str| {
        let series = [reason, "default", "on-demand", "", "graceful"];
        world.context().metrics.disruption.pods_initiated.with_label_values(&series).get()
    };
    world.sleep(200).await;
    assert_eq!((world.running().await.1, disrupted("expired")), (2, 0));
    world.sleep(120).await;
    assert_eq!(disrupted("expired"), 2);
    assert_eq!(world.running().await.1, 2, "the pods run on other nodes");
    // An instance disappears: kwok instances are Node objects, so the Node is deleted. This happens just before garbage
    // collection, which runs every two minutes, so that the cluster has not deleted the pods yet.
    world.sleep(38).await;
    let nodes = world.all::<Node>();
    for node in nodes.list(&ListParams::default()).await.expect("listed") {
        let name = node.metadata.name.expect("a name");
        let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        nodes.patch(&name, &PatchParams::default(), &bare).await.expect("patched");
        nodes.delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
    world.sleep(4).await;
    assert_eq!(disrupted("garbage_collected"), 2);
}

#[tokio::test(start_paused = true)]
async fn evaluation_and_queue_of_disruption_are_separate_controllers() {
    let world = World::start(with_gates("")).await;
    world.deployment("web", 1).await;
    world.sleep(60).await;
    let text = world.scrape();
    for series in [
        "karpenter_scheduler_scheduling_duration_seconds_count{controller=\"disruption\"}",
        "karpenter_scheduler_scheduling_duration_seconds_count{controller=\"provisioner\"}",
        "controller_runtime_reconcile_total{controller=\"disruption\",result=\"requeue_after\"}",
        "controller_runtime_reconcile_total{controller=\"disruption.queue\",result=\"requeue_after\"}",
        "workqueue_adds_total{controller=\"disruption.queue\",name=\"disruption.queue\"}",
    ] {
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(|value| value > 0.0), "{series} is {value:?}");
    }
}

/// Tests the metrics that are set only by rare events.
#[tokio::test(start_paused = true)]
async fn metrics_of_rare_events_match_upstream() {
    let world = World::start(with_gates("")).await;
    let metrics = &world.context().metrics;
    let disruption = &metrics.disruption;
    let declared: [(&dyn Collector, &str, &str); 15] = [
        (
            &metrics.nodeclaims_unhealthy_disrupted,
            "karpenter_nodeclaims_unhealthy_disrupted_total",
            "condition nodepool capacity_type image_id termination_mode",
        ),
        (&metrics.nodes_reboots, "karpenter_nodes_reboots_total", "result"),
        (&metrics.nodes_reboot_duration, "karpenter_nodes_reboot_duration_seconds", "result"),
        (&metrics.nodes_reboot_recovery_duration, "karpenter_nodes_reboot_recovery_duration_seconds", ""),
        (&metrics.nodepools_cost_errors, "karpenter_nodepools_cost_tracker_errors_total", "nodepool"),
        (&disruption.pods_initiated, "karpenter_pods_disruption_initiated_total", DISRUPTED),
        (
            &metrics.pod_deletion_cost_pending,
            "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes",
            "nodepool",
        ),
        (
            &metrics.pod_deletion_cost_writes,
            "karpenter_pod_deletion_cost_pod_annotation_writes_total",
            "result",
        ),
        (
            &disruption.failed_validations,
            "karpenter_voluntary_disruption_failed_validations_total",
            "consolidation_type",
        ),
        (
            &disruption.queue_failures,
            "karpenter_voluntary_disruption_queue_failures_total",
            "decision reason consolidation_type",
        ),
        (
            &disruption.terminate_first_decisions,
            "karpenter_voluntary_disruption_terminate_first_decisions_total",
            "nodepool reason terminate_first_reason",
        ),
        (&disruption.score, "karpenter_consolidation_score", "decision nodepool policy"),
        (&disruption.moves, "karpenter_consolidation_moves_total", "decision nodepool policy"),
        (
            &metrics.cloud_errors,
            "karpenter_cloudprovider_errors_total",
            "controller method provider error nodepool",
        ),
        (&metrics.leader_election_status, "leader_election_master_status", "name"),
    ];
    for (collector, name, labels) in declared {
        let [description] = collector.desc()[..] else { panic!("{name} is one metric") };
        assert_eq!(description.fq_name, name);
        assert_eq!(
            description.variable_labels.iter().cloned().collect::<BTreeSet<_>>(),
            words(labels),
            "{name}"
        );
    }
}
