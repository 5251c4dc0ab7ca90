//! Metrics of disruption, with upstream's names and labels where upstream has them.

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::{DURATION_BUCKETS, Declare};

/// Clones share the series.
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
            "Number of consolidation evaluations that timed out. They have no timeout: always 0.",
            &["consolidation_type"],
        );
        for kind in ["multi", "single"] {
            timeouts.with_label_values(&[kind]).inc_by(0);
        }
        Self {
            evaluation_duration: declare.histogram(
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of the evaluation of disruption methods.",
                DURATION_BUCKETS,
                &["reason", "consolidation_type"],
            ),
            decisions: declare.counter(
                "karpenter_voluntary_disruption_decisions_total",
                "Number of disruption decisions that were executed, by decision, reason and consolidation type.",
                &decision,
            ),
            decisions_by_pool: declare.counter(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total",
                "Number of disruption decisions that were executed, by nodepool and decision.",
                &["nodepool", "decision", "reason", "consolidation_type"],
            ),
            terminate_first_decisions: declare.counter(
                "karpenter_voluntary_disruption_terminate_first_decisions_total",
                "Number of disruptions that terminate a node before its replacement is launched, by reason.",
                &["nodepool", "reason", "terminate_first_reason"],
            ),
            eligible_nodes: declare.gauge_int(
                "karpenter_voluntary_disruption_eligible_nodes",
                "Number of nodes eligible for disruption, by reason.",
                &["reason"],
            ),
            failed_validations: declare.counter(
                "karpenter_voluntary_disruption_failed_validations_total",
                "Number of candidates whose command failed validation.",
                &["consolidation_type"],
            ),
            queue_failures: declare.counter(
                "karpenter_voluntary_disruption_queue_failures_total",
                "Number of commands that failed, for example because a replacement did not initialize.",
                &decision,
            ),
            allowed_disruptions: declare.gauge_int(
                "karpenter_nodepools_allowed_disruptions",
                "Number of nodes of a nodepool that its budgets allow to be disrupted now.",
                &["nodepool", "reason"],
            ),
            nodes_consuming_budgets: declare.gauge_int(
                "karpenter_nodepools_nodes_consuming_budgets",
                "Number of nodes of a nodepool that count against its budgets.",
                &["nodepool", "reason"],
            ),
            score: declare.histogram(
                "karpenter_consolidation_score",
                "Score of consolidation moves: savings per disruption, under policy Balanced.",
                &[0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0],
                &["decision", "nodepool", "policy"],
            ),
            moves: declare.counter(
                "karpenter_consolidation_moves_total",
                "Number of consolidation moves considered, by the consolidation policy of the nodepool.",
                &["decision", "nodepool", "policy"],
            ),
            rehearsed_nodes: declare.gauge_int(
                "karpenter_nodepools_dry_run_nodes",
                "Number of nodes that would be disrupted now without the consolidation dry run of their nodepool.",
                &["nodepool", "reason"],
            ),
            pods_initiated: declare.counter(
                "karpenter_pods_disruption_initiated_total",
                "Number of pods whose node was disrupted, by reason.",
                &["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
            ),
        }
    }
}
