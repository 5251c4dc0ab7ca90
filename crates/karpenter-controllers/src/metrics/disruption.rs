//! What is counted about nodes that are taken away on purpose.

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::{DURATION_BUCKETS, Declare};

/// Clones count into the same series.
#[derive(Clone)]
pub struct DisruptionMetrics {
    pub evaluation_duration: HistogramVec,
    pub decisions: IntCounterVec,
    pub decisions_by_pool: IntCounterVec,
    pub terminate_first_decisions: IntCounterVec,
    pub eligible_nodes: IntGaugeVec,
    pub failed_validations: IntCounterVec,
    pub queue_failures: IntCounterVec,
    pub allowed_disruptions: IntGaugeVec,
    pub nodes_consuming_budgets: IntGaugeVec,
    pub score: HistogramVec,
    pub moves: IntCounterVec,
    pub rehearsed_nodes: IntGaugeVec,
    pub pods_initiated: IntCounterVec,
}

impl DisruptionMetrics {
    pub(super) fn new(declare: &Declare) -> Self {
        let decision = ["decision", "reason", "consolidation_type"];
        let timeouts = declare.counter(
            "karpenter_voluntary_disruption_consolidation_timeouts_total",
            "Number of passes that ran out of time; none does.",
            &["consolidation_type"],
        );
        for kind in ["multi", "single"] {
            timeouts.with_label_values(&[kind]).inc_by(0);
        }
        Self {
            evaluation_duration: declare.histogram(
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "How long it took to find out what to disrupt.",
                DURATION_BUCKETS,
                &["reason", "consolidation_type"],
            ),
            decisions: declare.counter(
                "karpenter_voluntary_disruption_decisions_total",
                "Number of disruptions that were begun, by what was decided.",
                &decision,
            ),
            decisions_by_pool: declare.counter(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total",
                "Number of disruptions that were begun, by nodepool and by what was decided.",
                &["nodepool", "decision", "reason", "consolidation_type"],
            ),
            terminate_first_decisions: declare.counter(
                "karpenter_voluntary_disruption_terminate_first_decisions_total",
                "Number of disruptions that end a node before anything takes its place, and why.",
                &["nodepool", "reason", "terminate_first_reason"],
            ),
            eligible_nodes: declare.gauge_int(
                "karpenter_voluntary_disruption_eligible_nodes",
                "Number of nodes that could be disrupted, by reason.",
                &["reason"],
            ),
            failed_validations: declare.counter(
                "karpenter_voluntary_disruption_failed_validations_total",
                "Number of nodes that were to be disrupted and were kept after a second look.",
                &["consolidation_type"],
            ),
            queue_failures: declare.counter(
                "karpenter_voluntary_disruption_queue_failures_total",
                "Number of replacements that did not come up for a disruption that was begun.",
                &decision,
            ),
            allowed_disruptions: declare.gauge_int(
                "karpenter_nodepools_allowed_disruptions",
                "Number of nodes of a nodepool that may be disrupted at the same time.",
                &["nodepool", "reason"],
            ),
            nodes_consuming_budgets: declare.gauge_int(
                "karpenter_nodepools_nodes_consuming_budgets",
                "Number of nodes of a nodepool that use up its budgets.",
                &["nodepool", "reason"],
            ),
            score: declare.histogram(
                "karpenter_consolidation_score",
                "What a move saves for the trouble it makes, under policy Balanced.",
                &[0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0],
                &["decision", "nodepool", "policy"],
            ),
            moves: declare.counter(
                "karpenter_consolidation_moves_total",
                "Number of moves that were thought of, by the policy of the nodepool.",
                &["decision", "nodepool", "policy"],
            ),
            rehearsed_nodes: declare.gauge_int(
                "karpenter_nodepools_dry_run_nodes",
                "Number of nodes that would be disrupted now if their nodepool were not on a dry run.",
                &["nodepool", "reason"],
            ),
            pods_initiated: declare.counter(
                "karpenter_pods_disruption_initiated_total",
                "Number of pods whose node was disrupted by Karpenter, by reason.",
                &["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
            ),
        }
    }
}
