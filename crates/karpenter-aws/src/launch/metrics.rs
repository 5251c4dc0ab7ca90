//! Metrics of launches, terminations and batching, under upstream's names.

use karpenter_controllers::metrics::DURATION_BUCKETS;
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::batcher::BatchRecord;

/// The histogram buckets for the number of requests in a batch.
const SIZE_BUCKETS: [f64; 34] = [
    1.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 125.0,
    150.0, 175.0, 200.0, 225.0, 250.0, 275.0, 300.0, 350.0, 400.0, 450.0, 500.0, 550.0, 600.0, 700.0, 800.0,
    900.0, 1000.0,
];

/// The metrics of launches. All clones count into the same series.
#[derive(Debug, Clone)]
pub struct LaunchMetrics {
    /// Counts the errors in `CreateFleet` responses, with the labels zone, zone id, capacity type and reason.
    pub launch_failures: IntCounterVec,
    /// Counts failed terminations, with the labels zone and zone id.
    pub termination_failures: IntCounterVec,
    pub batch_time: HistogramVec,
    pub batch_size: HistogramVec,
    /// By node class.
    pub user_data_bytes: IntGaugeVec,
}

impl LaunchMetrics {
    const VALID: &str = "names and labels are constants, each declared once";

    pub fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            add(registry, IntCounterVec::new(Opts::new(name, help), labels).expect(Self::VALID))
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            add(registry, HistogramVec::new(options, &["batcher"]).expect(Self::VALID))
        };
        Self {
            launch_failures: counter(
                "karpenter_cloudprovider_instance_launch_failures_total",
                "Number of offerings that EC2 failed to launch, by zone and reason.",
                &["zone", "zone_id", "capacity_type", "reason"],
            ),
            termination_failures: counter(
                "karpenter_cloudprovider_instance_termination_failures_total",
                "Number of instances that EC2 failed to terminate, by zone.",
                &["zone", "zone_id"],
            ),
            batch_time: histogram(
                "karpenter_cloudprovider_batcher_batch_time_seconds",
                "Duration of the batching window per batcher, in seconds.",
                DURATION_BUCKETS,
            ),
            batch_size: histogram(
                "karpenter_cloudprovider_batcher_batch_size",
                "Number of requests in a batch per batcher.",
                &SIZE_BUCKETS,
            ),
            user_data_bytes: add(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "karpenter_ec2nodeclasses_userdata_bytes",
                        "Size in bytes of the user data of the class's last launch template, before base64 encoding.",
                    ),
                    &["nodeclass"],
                )
                .expect(Self::VALID),
            ),
        }
    }

    pub(crate) fn record_batch(&self, batch: BatchRecord) {
        self.batch_time.with_label_values(&[batch.batcher]).observe(batch.waited.as_secs_f64());
        self.batch_size.with_label_values(&[batch.batcher]).observe(batch.size as f64);
    }
}

/// Registers a metric. If one with the same name is registered already, this one is not exported; this happens in tests
/// with two providers in one process.
fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    let _ = registry.register(Box::new(collector.clone()));
    collector
}
