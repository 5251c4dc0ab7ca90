//! Metrics about controllers and their queues, with the names and labels of controller-runtime.

use std::sync::Arc;
use std::time::Duration;

use karpenter_runtime::queue::{Measure, Queue};
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, exponential_buckets,
};

use super::{DURATION_BUCKETS, Declare};

/// The value of the label `priority`: all items of the queues have the same priority.
const PRIORITY: &str = "0";

/// Clones share the series.
#[derive(Clone)]
pub struct RuntimeMetrics {
    reconcile_total: IntCounterVec,
    reconcile_errors: IntCounterVec,
    reconcile_duration: HistogramVec,
    reconcile_panics: IntCounterVec,
    reconcile_timeouts: IntCounterVec,
    terminal_errors: IntCounterVec,
    active_workers: IntGaugeVec,
    workers_max: IntGaugeVec,
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished_work: GaugeVec,
    longest_running: GaugeVec,
}

impl RuntimeMetrics {
    pub(super) fn new(declare: &Declare) -> Self {
        let controller = ["controller"];
        let queue = ["name", "controller"];
        // The bucket bounds range from ten nanoseconds to a thousand seconds.
        let queue_buckets = exponential_buckets(1e-8, 10.0, 12).expect("constants");
        declare.counter_single(
            "controller_runtime_conversion_webhook_panics_total",
            "Number of panics of the conversion webhook. There is no such webhook: always 0.",
        );
        Self {
            reconcile_total: declare.counter(
                "controller_runtime_reconcile_total",
                "Number of passes, by controller and result.",
                &["controller", "result"],
            ),
            reconcile_errors: declare.counter(
                "controller_runtime_reconcile_errors_total",
                "Number of passes that failed, by controller.",
                &controller,
            ),
            reconcile_duration: declare.histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long passes took, by controller.",
                DURATION_BUCKETS,
                &controller,
            ),
            reconcile_panics: declare.counter(
                "controller_runtime_reconcile_panics_total",
                "Number of panics of the planner in passes, by controller. Any other panic ends the process.",
                &controller,
            ),
            reconcile_timeouts: declare.counter(
                "controller_runtime_reconcile_timeouts_total",
                "Number of passes that timed out, by controller. Passes have no timeout: always 0.",
                &controller,
            ),
            terminal_errors: declare.counter(
                "controller_runtime_terminal_reconcile_errors_total",
                "Number of failed passes that are not retried, by controller. All are retried: always 0.",
                &controller,
            ),
            active_workers: declare.gauge_int(
                "controller_runtime_active_workers",
                "Number of passes in progress, by controller.",
                &controller,
            ),
            workers_max: declare.gauge_int(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent passes, by controller.",
                &controller,
            ),
            depth: declare.gauge_int(
                "workqueue_depth",
                "Number of keys in the queue, by controller. All have the same priority.",
                &["name", "controller", "priority"],
            ),
            adds: declare.counter("workqueue_adds_total", "Number of keys added, by controller.", &queue),
            retries: declare.counter(
                "workqueue_retries_total",
                "Number of keys requeued after a failure or for a later time, by controller.",
                &queue,
            ),
            queue_duration: declare.histogram(
                "workqueue_queue_duration_seconds",
                "How long keys waited for a worker, by controller.",
                &queue_buckets,
                &queue,
            ),
            work_duration: declare.histogram(
                "workqueue_work_duration_seconds",
                "How long workers took for a key, by controller.",
                &queue_buckets,
                &queue,
            ),
            unfinished_work: declare.gauge(
                "workqueue_unfinished_work_seconds",
                "Sum of the durations of the passes in progress, by controller.",
                &queue,
            ),
            longest_running: declare.gauge(
                "workqueue_longest_running_processor_seconds",
                "Duration of the longest pass in progress, by controller.",
                &queue,
            ),
        }
    }

    /// Creates the series of a controller, so that they exist with the value 0 before its first pass.
    pub(crate) fn controller(&self, name: &str, workers: usize) -> ControllerMetrics {
        self.workers_max.with_label_values(&[name]).set(i64::try_from(workers).unwrap_or(i64::MAX));
        for never in [&self.terminal_errors, &self.reconcile_timeouts, &self.reconcile_panics] {
            never.with_label_values(&[name]);
        }
        let total = |result| self.reconcile_total.with_label_values(&[name, result]);
        ControllerMetrics {
            success: total("success"),
            requeue: total("requeue"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors: self.reconcile_errors.with_label_values(&[name]),
            duration: self.reconcile_duration.with_label_values(&[name]),
            active: self.active_workers.with_label_values(&[name]),
        }
    }

    /// The metrics of a controller's queue.
    pub(crate) fn queue(&self, name: &str) -> Arc<dyn Measure> {
        let labels = [name, name];
        Arc::new(QueueMetrics {
            adds: self.adds.with_label_values(&labels),
            retries: self.retries.with_label_values(&labels),
            queue_duration: self.queue_duration.with_label_values(&labels),
            work_duration: self.work_duration.with_label_values(&labels),
        })
    }

    /// Sets the gauges from the current state of the queues.
    pub(crate) fn refresh(&self, queues: &[(&'static str, Queue)]) {
        for (name, queue) in queues {
            let depth = i64::try_from(queue.len()).unwrap_or(i64::MAX);
            self.depth.with_label_values(&[name, name, PRIORITY]).set(depth);
            let passes = queue.in_progress();
            self.unfinished_work.with_label_values(&[name, name]).set(passes.total.as_secs_f64());
            self.longest_running.with_label_values(&[name, name]).set(passes.longest.as_secs_f64());
        }
    }

    /// Counts a panic of the planner in a pass of the controller.
    pub(crate) fn count_panic(&self, controller: &str) {
        self.reconcile_panics.with_label_values(&[controller]).inc();
    }
}

/// The series of a controller's passes.
pub(crate) struct ControllerMetrics {
    pub(crate) success: IntCounter,
    pub(crate) requeue: IntCounter,
    pub(crate) requeue_after: IntCounter,
    pub(crate) error: IntCounter,
    pub(crate) errors: IntCounter,
    pub(crate) duration: Histogram,
    pub(crate) active: IntGauge,
}

#[derive(Debug)]
struct QueueMetrics {
    adds: IntCounter,
    retries: IntCounter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

impl Measure for QueueMetrics {
    fn added(&self) {
        self.adds.inc();
    }

    fn requeued(&self) {
        self.retries.inc();
    }

    fn started(&self, waited: Duration) {
        self.queue_duration.observe(waited.as_secs_f64());
    }

    fn finished(&self, took: Duration) {
        self.work_duration.observe(took.as_secs_f64());
    }
}
