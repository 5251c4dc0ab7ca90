//! Wraps a controller: counts and times its passes, and logs errors.

use std::future::Future;

use karpenter_runtime::object::{ObjectKey, is_conflict};
use karpenter_runtime::worker::{Reconcile, Requeue};
use tokio::time::Instant;

use crate::logs::PassIds;
use crate::metrics::Metrics;
use crate::metrics::cloud::as_controller;
use crate::metrics::runtime::ControllerMetrics;

pub(super) struct Instrumented<R> {
    name: &'static str,
    work: R,
    metrics: ControllerMetrics,
    ids: PassIds,
}

impl<R> Instrumented<R> {
    pub(super) fn new(name: &'static str, work: R, metrics: &Metrics, ids: PassIds, workers: usize) -> Self {
        Self { name, work, metrics: metrics.runtime.controller(name, workers), ids }
    }
}

impl<R: Reconcile> Reconcile for Instrumented<R> {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let started = Instant::now();
        self.metrics.active.inc();
        let pass = self.ids.pass(self.name, key);
        let outcome = pass.run(as_controller(self.name, logged(self.work.reconcile(key)))).await;
        self.metrics.active.dec();
        self.metrics.duration.observe(started.elapsed().as_secs_f64());
        let result = match &outcome {
            Ok(Requeue::No) => &self.metrics.success,
            Ok(Requeue::After(_)) => &self.metrics.requeue_after,
            // A conflict is not counted as an error: another process changed the object, and the next pass reads the
            // change.
            Err(error) if is_conflict(error) => &self.metrics.requeue,
            Err(_) => {
                self.metrics.errors.inc();
                &self.metrics.error
            }
        };
        result.inc();
        outcome
    }
}

/// Logs the error of a pass with the fields of the pass.
async fn logged(pass: impl Future<Output = kube::Result<Requeue>>) -> kube::Result<Requeue> {
    let outcome = pass.await;
    if let Err(error) = outcome.as_ref()
        && !is_conflict(error)
    {
        tracing::error!(%error, "Reconciler error");
    }
    outcome
}
