//! Wraps a controller: its passes are counted and timed, and what goes wrong is logged.

use karpenter_cluster::controllers::context::is_conflict;
use karpenter_cluster::harness::{After, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::metrics::cloud::in_the_name_of;

pub(super) struct Supervised<R> {
    name: &'static str,
    work: R,
    metrics: Metrics,
}

impl<R> Supervised<R> {
    pub(super) fn new(name: &'static str, work: R, metrics: Metrics, workers: usize) -> Self {
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        metrics.reconcile_workers_max.with_label_values(&[name]).set(workers);
        Self { name, work, metrics }
    }
}

impl<R: Reconcile> Reconcile for Supervised<R> {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let started = Instant::now();
        let under_way = self.metrics.reconcile_workers.with_label_values(&[self.name]);
        under_way.inc();
        let outcome = in_the_name_of(self.name, self.work.reconcile(key)).await;
        under_way.dec();
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.reconcile_duration.with_label_values(&[self.name]).observe(seconds);
        let result = match &outcome {
            Ok(After::Done) => "success",
            Ok(After::Again(_)) => "requeue_after",
            // Somebody was quicker: the next pass sees what they did.
            Err(error) if is_conflict(error) => "requeue",
            Err(error) => {
                tracing::error!(controller = self.name, object = %key, %error, "reconciler error");
                self.metrics.reconcile_errors.with_label_values(&[self.name]).inc();
                "error"
            }
        };
        self.metrics.reconcile_total.with_label_values(&[self.name, result]).inc();
        outcome
    }
}
