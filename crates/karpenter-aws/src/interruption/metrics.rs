//! Metrics of interruption handling, under upstream's names.

use karpenter_controllers::metrics::DURATION_BUCKETS;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};

/// The value of the label `message_type` for malformed bodies, which upstream does not count.
pub(super) const MALFORMED: &str = "malformed";

/// The metrics of interruption handling. All clones count into the same series.
#[derive(Debug, Clone)]
pub struct InterruptionMetrics {
    pub received: IntCounterVec,
    pub deleted: IntCounter,
    pub queue_duration: Histogram,
    pub unhealthy: IntCounterVec,
}

impl InterruptionMetrics {
    const VALID: &str = "names and labels are constants, each declared once";

    pub fn new(registry: &Registry) -> Self {
        Self {
            received: add(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "karpenter_interruption_received_messages_total",
                        "Number of messages received from the queue, by message type.",
                    ),
                    &["message_type"],
                )
                .expect(Self::VALID),
            ),
            deleted: add(
                registry,
                IntCounter::new(
                    "karpenter_interruption_deleted_messages_total",
                    "Number of messages deleted from the queue.",
                )
                .expect(Self::VALID),
            ),
            queue_duration: add(
                registry,
                Histogram::with_opts(
                    HistogramOpts::new(
                        "karpenter_interruption_message_queue_duration_seconds",
                        "Time from an event until its message was handled, in seconds.",
                    )
                    .buckets(DURATION_BUCKETS.to_vec()),
                )
                .expect(Self::VALID),
            ),
            unhealthy: add(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "karpenter_interruption_instance_status_unhealthy_total",
                        "Number of times that EC2 reported an instance of the cluster as unhealthy, by category.",
                    ),
                    &["category"],
                )
                .expect(Self::VALID),
            ),
        }
    }
}

/// Registers a metric. If one with the same name is registered already, this one is not exported.
fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    let _ = registry.register(Box::new(collector.clone()));
    collector
}
