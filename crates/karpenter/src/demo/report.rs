//! The summary at the end of the scenario.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::timeline::Entry;
use crate::render::dollars;
use crate::render::terminal::Terminal;

/// A scale-up: how long each of its pods was pending, shortest first.
#[derive(Debug, Clone)]
pub(super) struct ScaleOut {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) took: Duration,
    pub(super) waited: Vec<Duration>,
}

#[derive(Debug, Clone)]
pub(super) struct Summary {
    pub(super) scale_outs: Vec<ScaleOut>,
    pub(super) pods_at_peak: usize,
    pub(super) nodes_at_peak: usize,
    pub(super) price_per_hour: f64,
    pub(super) lower_bound_per_hour: f64,
    pub(super) nodes_launched: usize,
    /// The duration from the loss of a node until all pods ran again.
    pub(super) recovered_after: Duration,
    /// The duration from scaling to zero until the last node was deleted.
    pub(super) emptied_after: Duration,
    /// The simulated duration of the scenario.
    pub(super) duration: Duration,
}

impl Summary {
    fn above_bound_percent(&self) -> f64 {
        if self.lower_bound_per_hour > 0.0 {
            (self.price_per_hour / self.lower_bound_per_hour - 1.0) * 100.0
        } else {
            0.0
        }
    }
}

pub(super) fn write_table(summary: &Summary, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let bold = terminal.bold();
    writeln!(
        out,
        "\n{bold}{} pods on {} nodes at the peak{bold:#}, {} nodes launched in all",
        summary.pods_at_peak, summary.nodes_at_peak, summary.nodes_launched
    )?;
    writeln!(out, "cost           {}/h", dollars(summary.price_per_hour))?;
    let above = summary.above_bound_percent();
    let verdict = if above < 0.05 {
        "nothing can be cheaper".to_owned()
    } else {
        format!("the fleet is {above:.1}% above the cheapest possible")
    };
    writeln!(out, "lower bound    {}/h  {verdict}", dollars(summary.lower_bound_per_hour))?;
    for step in &summary.scale_outs {
        writeln!(
            out,
            "{:<13}  pods ran after {} (median), {} (slowest)",
            format!("{} -> {}", step.from, step.to),
            span(at_share(&step.waited, 0.5)),
            span(at_share(&step.waited, 1.0)),
        )?;
    }
    writeln!(out, "interruption   all pods ran again after {}", span(summary.recovered_after))?;
    writeln!(out, "scale-in       the last node was deleted after {}", span(summary.emptied_after))
}

pub(super) fn write_json(entries: &[Entry], summary: &Summary, out: &mut dyn Write) -> Result<()> {
    let seconds = |duration: Duration| duration.as_millis() as f64 / 1000.0;
    let steps: Vec<Value> = summary
        .scale_outs
        .iter()
        .map(|step| {
            json!({
                "from": step.from,
                "to": step.to,
                "seconds": seconds(step.took),
                "podToRunningSeconds": {
                    "median": seconds(at_share(&step.waited, 0.5)),
                    "p95": seconds(at_share(&step.waited, 0.95)),
                    "slowest": seconds(at_share(&step.waited, 1.0)),
                },
            })
        })
        .collect();
    let document = json!({
        "timeline": entries,
        "summary": {
            "podsAtPeak": summary.pods_at_peak,
            "nodesAtPeak": summary.nodes_at_peak,
            "nodesLaunched": summary.nodes_launched,
            "pricePerHour": summary.price_per_hour,
            "lowerBoundPerHour": summary.lower_bound_per_hour,
            "scaleOuts": steps,
            "recoveredAfterSeconds": seconds(summary.recovered_after),
            "emptiedAfterSeconds": seconds(summary.emptied_after),
            "toldSeconds": seconds(summary.duration),
        },
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// A quantile: the smallest of the sorted values such that at least `share` of the values do not exceed it.
fn at_share(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Formats a duration.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {:02} s", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_value_at_its_rank() {
        let sorted: Vec<Duration> = (1..=20).map(Duration::from_secs).collect();
        assert_eq!(at_share(&sorted, 0.5), Duration::from_secs(10));
        assert_eq!(at_share(&sorted, 0.95), Duration::from_secs(19));
        assert_eq!(at_share(&sorted, 1.0), Duration::from_secs(20));
        assert_eq!(at_share(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn durations_are_formatted_briefly() {
        assert_eq!(span(Duration::from_millis(34_520)), "34.5 s");
        assert_eq!(span(Duration::from_secs(125)), "2 min 05 s");
    }
}
