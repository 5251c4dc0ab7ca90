//! Wraps a controller: its passes are counted and timed, and what goes wrong is logged.

use std::future::Future;

use karpenter_cluster::controllers::context::is_conflict;
use karpenter_cluster::harness::{After, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use tokio::time::Instant;

use crate::logs::PassIds;
use crate::metrics::Metrics;
use crate::metrics::cloud::in_the_name_of;

pub(super) struct Supervised<R> {
    name: &'static str,
    work: R,
    metrics: Metrics,
    ids: PassIds,
}

impl<R> Supervised<R> {
    pub(super) fn new(name: &'static str, work: R, metrics: Metrics, ids: PassIds, workers: usize) -> Self {
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        metrics.reconcile_workers_max.with_label_values(&[name]).set(workers);
        Self { name, work, metrics, ids }
    }
}

impl<R: Reconcile> Reconcile for Supervised<R> {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let started = Instant::now();
        let under_way = self.metrics.reconcile_workers.with_label_values(&[self.name]);
        under_way.inc();
        let pass = self.ids.pass(self.name, key);
        let outcome = pass.run(in_the_name_of(self.name, logged(self.work.reconcile(key)))).await;
        under_way.dec();
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.reconcile_duration.with_label_values(&[self.name]).observe(seconds);
        let result = match &outcome {
            Ok(After::Done) => "success",
            Ok(After::Again(_)) => "requeue_after",
            // Somebody was quicker: the next pass sees what they did.
            Err(error) if is_conflict(error) => "requeue",
            Err(_) => {
                self.metrics.reconcile_errors.with_label_values(&[self.name]).inc();
                "error"
            }
        };
        self.metrics.reconcile_total.with_label_values(&[self.name, result]).inc();
        outcome
    }
}

/// Logs the error of a pass with the fields of the pass.
async fn logged(pass: impl Future<Output = kube::Result<After>>) -> kube::Result<After> {
    let outcome = pass.await;
    if let Err(error) = outcome.as_ref()
        && !is_conflict(error)
    {
        tracing::error!(%error, "Reconciler error");
    }
    outcome
}
