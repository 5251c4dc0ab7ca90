//! Summaries: metrics whose quantiles of recent observations are computed by this process.
//!
//! Upstream has some metrics of this type. The `prometheus` crate does not support it, and another type would break
//! rules and dashboards. As in upstream, observations of the last ten minutes count, in five slices of two minutes. A
//! slice counts observations in buckets whose bounds grow by 2 %, so that its size is bounded. A quantile is therefore
//! wrong by at most 1 %; minimum and maximum are exact.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

use super::exposition::Family;

const QUANTILES: [(f64, &str); 5] = [(0.0, "0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1")];
const SLICE: Duration = Duration::from_secs(2 * 60);
const WINDOW: Duration = Duration::from_secs(10 * 60);
const GROWTH: f64 = 1.02;
/// All values up to this one are counted in one bucket.
const SMALLEST: f64 = 1e-3;

/// A summary with all its series. Clones share the series.
#[derive(Clone)]
pub struct SummaryVec {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    series: Arc<Mutex<BTreeMap<Vec<String>, Summary>>>,
}

impl SummaryVec {
    pub(crate) fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, labels, series: Arc::default() }
    }

    pub fn observe(&self, values: &[&str], seconds: f64, now: Timestamp) {
        let key = values.iter().map(|value| (*value).to_owned()).collect();
        self.series().entry(key).or_default().observe(seconds, now);
    }

    pub(crate) fn write(&self, text: &mut String, now: Timestamp) {
        let mut family = Family::summary(text, self.name, self.help, self.labels);
        for (values, summary) in &mut *self.series() {
            for ((_, label), value) in QUANTILES.iter().zip(summary.quantiles(now)) {
                family.sample("", values, Some(("quantile", label)), value);
            }
            family.sample("_sum", values, None, summary.sum);
            family.sample("_count", values, None, summary.count as f64);
        }
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, Summary>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Summary {
    count: u64,
    sum: f64,
    slices: VecDeque<Slice>,
}

#[derive(Debug)]
struct Slice {
    began: Timestamp,
    least: f64,
    most: f64,
    /// The number of observations by bucket. The key is an exponent: the upper bound of the bucket is [`GROWTH`] to this
    /// power.
    buckets: BTreeMap<i32, u64>,
}

impl Summary {
    fn observe(&mut self, value: f64, now: Timestamp) {
        self.count += 1;
        self.sum += value;
        self.remove_expired_slices(now);
        let is_current = self.slices.back().is_some_and(|slice| since(now, slice.began) < SLICE);
        if !is_current {
            self.slices.push_back(Slice { began: now, least: value, most: value, buckets: BTreeMap::new() });
        }
        if let Some(slice) = self.slices.back_mut() {
            slice.least = slice.least.min(value);
            slice.most = slice.most.max(value);
            *slice.buckets.entry(bucket(value)).or_default() += 1;
        }
    }

    fn remove_expired_slices(&mut self, now: Timestamp) {
        while self.slices.front().is_some_and(|slice| since(now, slice.began) >= WINDOW) {
            self.slices.pop_front();
        }
    }

    /// The values of [`QUANTILES`]; NaN without recent observations.
    fn quantiles(&mut self, now: Timestamp) -> [f64; QUANTILES.len()] {
        self.remove_expired_slices(now);
        let mut merged: BTreeMap<i32, u64> = BTreeMap::new();
        for (bucket, number) in self.slices.iter().flat_map(|slice| &slice.buckets) {
            *merged.entry(*bucket).or_default() += number;
        }
        let least = self.slices.iter().map(|slice| slice.least).fold(f64::NAN, f64::min);
        let most = self.slices.iter().map(|slice| slice.most).fold(f64::NAN, f64::max);
        let total: u64 = merged.values().sum();
        QUANTILES.map(|(quantile, _)| match quantile {
            _ if total == 0 => f64::NAN,
            0.0 => least,
            1.0 => most,
            _ => {
                let rank = (quantile * total as f64).ceil() as u64;
                let mut seen = 0;
                let found = merged.iter().find(|(_, number)| {
                    seen += **number;
                    seen >= rank
                });
                found.map_or(most, |(bucket, _)| middle(*bucket).clamp(least, most))
            }
        })
    }
}

fn bucket(value: f64) -> i32 {
    if value <= SMALLEST { i32::MIN } else { (value.ln() / GROWTH.ln()).ceil() as i32 }
}

/// The value that represents a bucket in quantiles: its relative error to both bounds of the bucket is the same.
fn middle(bucket: i32) -> f64 {
    if bucket == i32::MIN { 0.0 } else { 2.0 * GROWTH.powi(bucket) / (1.0 + GROWTH) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut summary = Summary::default();
        // 0.1, 0.2 .. 100, shuffled.
        for number in 0..1000_u32 {
            summary.observe(f64::from(number * 617 % 1000 + 1) / 10.0, at(i64::from(number % 100)));
        }
        let [least, half, nine_tenths, nearly_all, most] = summary.quantiles(at(100));
        assert_eq!((least, most), (0.1, 100.0));
        for (found, exact) in [(half, 50.0), (nine_tenths, 90.0), (nearly_all, 99.0)] {
            assert!((found / exact - 1.0_f64).abs() <= 0.011, "{found} instead of {exact}");
        }
        assert_eq!(summary.count, 1000);
        assert!((summary.sum - 50_050.0).abs() < 1e-6);
    }

    #[test]
    fn quantiles_cover_ten_minutes_and_sums_everything() {
        let mut summary = Summary::default();
        summary.observe(1.0, at(0));
        summary.observe(9.0, at(300));
        assert_eq!(summary.quantiles(at(599))[0], 1.0);
        assert_eq!(summary.quantiles(at(600))[0], 9.0);
        assert!(summary.quantiles(at(900)).iter().all(|value| value.is_nan()));
        assert_eq!((summary.count, summary.sum), (2, 10.0));
    }

    #[test]
    fn single_observation_is_every_quantile() {
        for value in [0.0, 0.0004, 0.5, 7.0, 86_400.0] {
            let mut summary = Summary::default();
            summary.observe(value, at(0));
            assert_eq!(summary.quantiles(at(1)), [value; 5]);
        }
    }

    #[test]
    fn text_has_quantiles_sum_and_count() {
        let vec = SummaryVec::new("t_seconds", "How long.", &["nodepool"]);
        vec.observe(&["a"], 2.0, at(0));
        let mut text = String::new();
        vec.write(&mut text, at(1));
        let expected = "# HELP t_seconds How long.\n# TYPE t_seconds summary\n\
            t_seconds{nodepool=\"a\",quantile=\"0\"} 2\nt_seconds{nodepool=\"a\",quantile=\"0.5\"} 2\n\
            t_seconds{nodepool=\"a\",quantile=\"0.9\"} 2\nt_seconds{nodepool=\"a\",quantile=\"0.99\"} 2\n\
            t_seconds{nodepool=\"a\",quantile=\"1\"} 2\nt_seconds_sum{nodepool=\"a\"} 2\nt_seconds_count{nodepool=\"a\"} 1\n";
        assert_eq!(text, expected);
    }
}
