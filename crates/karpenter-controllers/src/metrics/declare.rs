//! Registers metrics and records their names, types and labels.

use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// A metric and the labels of its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
}

/// The registry in which metrics are declared. Declaring a metric cannot fail, because its name is a constant, and its
/// labels are constants or made from label keys of the provider.
#[derive(Default)]
pub(super) struct Declare {
    pub(super) registry: Registry,
    pub(super) declared: Mutex<Vec<Declared>>,
}

impl Declare {
    const VALID: &'static str = "every metric name is valid and used only once";

    fn add<C: Collector + Clone + 'static>(&self, kind: &'static str, collector: C) -> C {
        let described = collector.desc().into_iter().map(|one| Declared {
            name: one.fq_name.clone(),
            kind,
            labels: one.variable_labels.clone(),
        });
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).extend(described);
        self.registry.register(Box::new(collector.clone())).expect(Self::VALID);
        collector
    }

    pub(super) fn counter(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add("counter", IntCounterVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    pub(super) fn counter_single(&self, name: &str, help: &str) -> IntCounter {
        self.add("counter", IntCounter::new(name, help).expect(Self::VALID))
    }

    pub(super) fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add("gauge", GaugeVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    pub(super) fn gauge_int(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add("gauge", IntGaugeVec::new(Opts::new(name, help), labels).expect(Self::VALID))
    }

    pub(super) fn gauge_single(&self, name: &str, help: &str) -> IntGauge {
        self.add("gauge", IntGauge::new(name, help).expect(Self::VALID))
    }

    pub(super) fn gauge_float(&self, name: &str, help: &str) -> Gauge {
        self.add("gauge", Gauge::new(name, help).expect(Self::VALID))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add("histogram", HistogramVec::new(options, labels).expect(Self::VALID))
    }

    pub(super) fn histogram_single(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add("histogram", Histogram::with_opts(options).expect(Self::VALID))
    }

    /// Declares the metrics about the process itself.
    pub(super) fn process(&self) {
        let build = self.gauge_int(
            "karpenter_build_info",
            "Version and commit of this build, as labels; always 1.",
            &["version", "goversion", "goarch", "commit"],
        );
        let arch = go_arch(std::env::consts::ARCH);
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), "", arch, crate::COMMIT]).set(1);
        #[cfg(target_os = "linux")]
        self.registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect(Self::VALID);
    }
}

/// The name that Go uses for a processor architecture; dashboards expect it.
fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::go_arch;

    #[test]
    fn processors_have_the_names_that_dashboards_know() {
        assert_eq!(["x86_64", "aarch64", "riscv64"].map(go_arch), ["amd64", "arm64", "riscv64"]);
    }
}
