//! What interruption handling tells about itself, with upstream's names.

use karpenter_controllers::metrics::DURATION_BUCKETS;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};

/// The `message_type` of a body that is no message. Upstream does not count these.
pub(super) const MALFORMED: &str = "malformed";

/// Clones count into the same series.
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
                        "Number of messages received from the queue, by what they are about.",
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
                        "How long it took from an event until its message was acted on.",
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
                        "Number of times that EC2 began to call an instance of ours sick, by what of it.",
                    ),
                    &["category"],
                )
                .expect(Self::VALID),
            ),
        }
    }
}

/// Declares it; where it is declared already, what is counted here is counted for nobody.
fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    let _ = registry.register(Box::new(collector.clone()));
    collector
}
