//! Metrics of AWS calls, under upstream's names (`aws_sdk_go_…`): count, status code, duration and retries. To find out
//! whether AWS throttles the controller, start with these metrics.
//!
//! The SDK client measures calls and records them here.
//!
//! Upstream: `pkg/operator/operator.go`

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};

const LABELS: [&str; 3] = ["service", "action", "code"];
const RETRY_BUCKETS: [f64; 11] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// The buckets of the duration histogram: first bound in seconds, factor, and number of buckets.
const DURATION_BUCKETS: (f64, f64, usize) = (0.01, 1.5, 20);

/// The metrics of AWS calls. All clones count into the same series.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    requests: IntCounterVec,
    attempts: IntCounterVec,
    request_duration: HistogramVec,
    attempt_duration: HistogramVec,
    retries: HistogramVec,
}

/// A finished call, or one finished attempt of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord<'a> {
    /// The service by AWS's name, such as `EC2`.
    pub service: &'a str,
    /// For example `CreateFleet`.
    pub action: &'a str,
    /// The HTTP status of the response; 0 if there was no response.
    pub status: u16,
    pub took: Duration,
}

impl Default for CallMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl CallMetrics {
    const VALID: &str = "names, labels and buckets are constants";

    pub fn new() -> Self {
        let counter =
            |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &LABELS).expect(Self::VALID);
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &LABELS).expect(Self::VALID)
        };
        let (first, factor, count) = DURATION_BUCKETS;
        let durations = exponential_buckets(first, factor, count).expect(Self::VALID);
        Self {
            requests: counter("aws_sdk_go_request_total", "Number of AWS calls, without retries."),
            attempts: counter("aws_sdk_go_request_attempt_total", "Number of attempts of AWS calls."),
            request_duration: histogram(
                "aws_sdk_go_request_duration_seconds",
                "Duration of AWS calls, including retries and the delays between them.",
                durations.clone(),
            ),
            attempt_duration: histogram(
                "aws_sdk_go_request_attempt_duration_seconds",
                "Duration of each attempt of an AWS call.",
                durations,
            ),
            retries: histogram(
                "aws_sdk_go_request_retry_count",
                "Number of retries of AWS calls.",
                RETRY_BUCKETS.to_vec(),
            ),
        }
    }

    /// Adds the metrics to a registry. Adding them again has no effect.
    pub fn register(&self, registry: &Registry) {
        let all: [Box<dyn Collector>; 5] = [
            Box::new(self.requests.clone()),
            Box::new(self.attempts.clone()),
            Box::new(self.request_duration.clone()),
            Box::new(self.attempt_duration.clone()),
            Box::new(self.retries.clone()),
        ];
        for one in all {
            let _ = registry.register(one);
        }
    }

    /// The number of calls, and the number of attempts.
    pub fn counts(&self, service: &str, action: &str, code: &str) -> (u64, u64) {
        let labels = [service, action, code];
        (self.requests.with_label_values(&labels).get(), self.attempts.with_label_values(&labels).get())
    }

    /// Records a finished attempt.
    pub fn record_attempt(&self, call: CallRecord<'_>) {
        let code = call.status.to_string();
        let labels = [call.service, call.action, code.as_str()];
        self.attempts.with_label_values(&labels).inc();
        self.attempt_duration.with_label_values(&labels).observe(call.took.as_secs_f64());
    }

    /// Records a finished call and its number of attempts. The status is that of the last attempt.
    pub fn record_call(&self, call: CallRecord<'_>, attempts: u32) {
        let code = call.status.to_string();
        let labels = [call.service, call.action, code.as_str()];
        self.requests.with_label_values(&labels).inc();
        self.request_duration.with_label_values(&labels).observe(call.took.as_secs_f64());
        self.retries.with_label_values(&labels).observe(f64::from(attempts.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn throttled_call_is_one_request_and_two_attempts() {
        let metrics = CallMetrics::new();
        let registry = Registry::new();
        metrics.register(&registry);
        metrics.register(&registry);
        let call = |status, millis| CallRecord {
            service: "EC2",
            action: "CreateFleet",
            status,
            took: Duration::from_millis(millis),
        };
        metrics.record_attempt(call(503, 20));
        metrics.record_attempt(call(200, 30));
        metrics.record_call(call(200, 150), 2);
        metrics.record_attempt(call(0, 5));
        metrics.record_call(call(0, 5), 1);
        let page = TextEncoder::new().encode_to_string(&registry.gather()).expect("a page");
        let call = |code: &str| format!("action=\"CreateFleet\",code=\"{code}\",service=\"EC2\"");
        for line in [
            format!("aws_sdk_go_request_total{{{}}} 1", call("200")),
            format!("aws_sdk_go_request_total{{{}}} 1", call("0")),
            format!("aws_sdk_go_request_attempt_total{{{}}} 1", call("503")),
            format!("aws_sdk_go_request_attempt_total{{{}}} 1", call("200")),
            format!("aws_sdk_go_request_retry_count_bucket{{{},le=\"0\"}} 0", call("200")),
            format!("aws_sdk_go_request_retry_count_bucket{{{},le=\"1\"}} 1", call("200")),
            format!("aws_sdk_go_request_retry_count_bucket{{{},le=\"0\"}} 1", call("0")),
            format!("aws_sdk_go_request_duration_seconds_sum{{{}}} 0.15", call("200")),
            format!("aws_sdk_go_request_attempt_duration_seconds_bucket{{{},le=\"0.0225\"}} 1", call("503")),
            format!("aws_sdk_go_request_attempt_duration_seconds_bucket{{{},le=\"0.015\"}} 0", call("503")),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("aws_sdk_go_request_total{action=\"CreateFleet\",code=\"503\""));
    }
}
