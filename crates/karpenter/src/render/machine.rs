//! JSON and YAML of a plan; docs/plan-output.md describes the format. Values are serialised directly from the view, one
//! pod name at a time, so that the whole output is never in memory.

use std::io::{self, Write};

use anyhow::Result;
use karpenter_explain::hints::reason_name;
use karpenter_model::plan::{ExistingPlacement, PodRun, Unschedulable};
use karpenter_model::reason::{Reason, Refusal};
use karpenter_model::resources::ResourceList;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::view::{HOURS_PER_MONTH, NodeView, Timings, View};

pub(crate) fn write_json(view: &View<'_>, out: &mut dyn Write) -> Result<()> {
    write_value_json(&Document(view), out)
}

pub(crate) fn write_yaml(view: &View<'_>, out: &mut dyn Write) -> Result<()> {
    write_value_yaml(&Document(view), out)
}

pub(crate) fn write_value_json(value: &impl Serialize, mut out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(())
}

pub(crate) fn write_value_yaml(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    let mut recorder = ErrorRecorder { inner: out, error: None };
    let written = serde_saphyr::to_io_writer(&mut recorder, value);
    // The serialiser's error does not contain its cause, but a closed pipe must be recognised, so the recorded I/O
    // error is used.
    if let Some(kind) = recorder.error {
        return Err(io::Error::from(kind).into());
    }
    Ok(written?)
}

struct ErrorRecorder<'a> {
    inner: &'a mut dyn Write,
    error: Option<io::ErrorKind>,
}

impl Write for ErrorRecorder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).inspect_err(|error| self.error = Some(error.kind()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().inspect_err(|error| self.error = Some(error.kind()))
    }
}

struct Document<'a>(&'a View<'a>);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.0;
        let mut document = serializer.serialize_struct("Plan", 5)?;
        document.serialize_field("nodes", &Nodes(view))?;
        document.serialize_field("existing", &Existing(view))?;
        document.serialize_field("unschedulable", &Left(view))?;
        document.serialize_field("cost", &Cost(view))?;
        document.serialize_field("stats", &Stats(view))?;
        document.end()
    }
}

struct Nodes<'a>(&'a View<'a>);

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.plan.new_nodes.len()))?;
        for node in self.0.nodes() {
            sequence.serialize_element(&PlannedNode { view: self.0, node })?;
        }
        sequence.end()
    }
}

struct PlannedNode<'a> {
    view: &'a View<'a>,
    node: NodeView<'a>,
}

impl Serialize for PlannedNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = &self.node;
        let instance_type = node.instance_type();
        let options = Options { node };
        let mut object = serializer.serialize_struct("Node", 11)?;
        object.serialize_field("name", node.name)?;
        object.serialize_field("nodePool", &*node.pool().name)?;
        object.serialize_field("instanceType", &*instance_type.name)?;
        object.serialize_field("zone", &node.zone())?;
        object.serialize_field("capacityType", &node.capacity_type())?;
        object.serialize_field("price", &rounded(node.node.price_per_hour, 6))?;
        object.serialize_field("instancePrice", &rounded(node.instance_price(), 6))?;
        object.serialize_field("pods", &Pods { view: self.view, runs: &node.node.pods })?;
        object.serialize_field("instanceTypeOptions", &options)?;
        object.serialize_field("requests", &Resources(&node.node.requests))?;
        object.serialize_field("allocatable", &Resources(&node.allocatable()))?;
        object.end()
    }
}

struct Options<'a> {
    node: &'a NodeView<'a>,
}

impl Serialize for Options<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let catalog = self.node.catalog();
        serializer
            .collect_seq(self.node.node.instance_type_options.iter().map(|index| &*catalog[*index].name))
    }
}

struct Pods<'a> {
    view: &'a View<'a>,
    runs: &'a [PodRun],
}

impl Serialize for Pods<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.view.pod_names(self.runs))
    }
}

struct Resources<'a>(&'a ResourceList);

impl Serialize for Resources<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, amount) in self.0.iter().filter(|(_, amount)| *amount != 0) {
            map.serialize_entry(&**name, &ResourceList::quantity(name, amount))?;
        }
        map.end()
    }
}

struct Existing<'a>(&'a View<'a>);

impl Serialize for Existing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.0;
        serializer.collect_seq(view.plan.existing.iter().map(|placement| OnExisting { view, placement }))
    }
}

struct OnExisting<'a> {
    view: &'a View<'a>,
    placement: &'a ExistingPlacement,
}

impl Serialize for OnExisting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Existing", 2)?;
        object.serialize_field("node", &*self.view.problem.nodes[self.placement.node].name)?;
        object.serialize_field("pods", &Pods { view: self.view, runs: &self.placement.pods })?;
        object.end()
    }
}

struct Left<'a>(&'a View<'a>);

impl Serialize for Left<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.0;
        let mut sequence = serializer.serialize_seq(None)?;
        for left in &view.plan.unschedulable {
            for pod in view.pod_names(std::slice::from_ref(&left.pods)) {
                sequence.serialize_element(&LeftPod { pod, left })?;
            }
        }
        sequence.end()
    }
}

struct LeftPod<'a> {
    pod: String,
    left: &'a Unschedulable,
}

impl Serialize for LeftPod<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Unschedulable", 2)?;
        object.serialize_field("pod", &self.pod)?;
        object.serialize_field("reasons", &Reasons(&self.left.reasons))?;
        object.end()
    }
}

struct Reasons<'a>(&'a [Refusal]);

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(OneReason))
    }
}

struct OneReason<'a>(&'a Refusal);

impl Serialize for OneReason<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reason: &Reason = &self.0.reason;
        let mut object = serializer.serialize_struct("Reason", 3)?;
        object.serialize_field("scope", &self.0.scope.to_string())?;
        object.serialize_field("reason", reason_name(reason))?;
        object.serialize_field("message", &reason.to_string())?;
        object.end()
    }
}

struct Cost<'a>(&'a View<'a>);

impl Serialize for Cost<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.0.plan;
        let mut object = serializer.serialize_struct("Cost", 6)?;
        object.serialize_field("hourly", &rounded(plan.price_per_hour, 6))?;
        object.serialize_field("monthly", &rounded(plan.price_per_hour * HOURS_PER_MONTH, 2))?;
        object.serialize_field("instanceHourly", &rounded(self.0.instance_price(), 6))?;
        object.serialize_field("lowerBound", &rounded(plan.lower_bound_per_hour, 6))?;
        let gap = self.0.lower_bound_gap_percent().map(|gap| rounded(gap, 3));
        object.serialize_field("gapPercent", &gap)?;
        object.serialize_field("compatHourly", &rounded(plan.compat_price_per_hour, 6))?;
        object.end()
    }
}

struct Stats<'a>(&'a View<'a>);

impl Serialize for Stats<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.0;
        let mut object = serializer.serialize_struct("Stats", 4)?;
        object.serialize_field("pods", &view.plan.stats.pods)?;
        object.serialize_field("classes", &view.plan.stats.classes)?;
        object.serialize_field("nodes", &view.plan.new_nodes.len())?;
        object.serialize_field("timings", &Milliseconds(&view.timings))?;
        object.end()
    }
}

struct Milliseconds<'a>(&'a Timings);

impl Serialize for Milliseconds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let timings = self.0;
        let stages = [
            ("readMs", timings.read),
            ("assembleMs", timings.assemble),
            ("scheduleMs", timings.schedule),
            ("validateMs", timings.validate),
            ("totalMs", timings.total()),
        ];
        serializer
            .collect_map(stages.map(|(name, duration)| (name, rounded(duration.as_secs_f64() * 1000.0, 3))))
    }
}

/// Rounds away floating point errors in sums of prices, which would show up in diffs.
fn rounded(number: f64, decimals: i32) -> f64 {
    let factor = 10_f64.powi(decimals);
    let scaled = (number * factor).round() / factor;
    if scaled.is_finite() { scaled } else { number }
}
