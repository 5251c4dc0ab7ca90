//! A plan with its problem, and the lookups that all formats need. The view holds references only.

use std::time::Duration;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::plan::{Plan, PlannedNode, PodRun};
use karpenter_model::problem::{NodePool, PodGroup, PodNames, Problem};
use karpenter_model::resources::{self, ResourceList};

/// Hours per month, for prices per month.
pub(crate) const HOURS_PER_MONTH: f64 = 730.0;

/// Duration of each stage of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    /// The duration of reading and parsing files.
    pub(crate) read: Duration,
    /// The duration of building the problem from objects, including instance types.
    pub(crate) assemble: Duration,
    pub(crate) schedule: Duration,
    pub(crate) validate: Duration,
}

impl Timings {
    pub(crate) fn total(&self) -> Duration {
        self.read + self.assemble + self.schedule + self.validate
    }
}

pub(crate) struct View<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) plan: &'a Plan,
    pub(crate) timings: Timings,
    node_names: Vec<String>,
}

impl<'a> View<'a> {
    pub(crate) fn new(problem: &'a Problem, plan: &'a Plan, timings: Timings) -> Self {
        let mut counters = vec![0_u32; problem.pools.len()];
        let node_names = plan
            .new_nodes
            .iter()
            .map(|node| {
                counters[node.pool] += 1;
                format!("{}-{}", problem.pools[node.pool].name, counters[node.pool])
            })
            .collect();
        Self { problem, plan, timings, node_names }
    }

    /// Planned nodes with their names: `<pool>-1`, `<pool>-2`, … in plan order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.plan.new_nodes.iter().zip(&self.node_names).map(|(node, name)| NodeView {
            problem: self.problem,
            node,
            name,
        })
    }

    pub(crate) fn group(&self, run: &PodRun) -> &'a PodGroup {
        &self.problem.pods[run.group as usize]
    }

    /// `namespace/name` of every pod of the runs, created one at a time.
    pub(crate) fn pod_names<'b>(&'b self, runs: &'b [PodRun]) -> impl Iterator<Item = String> + 'b {
        runs.iter().flat_map(move |run| {
            let group = self.group(run);
            (run.start..run.start + run.count)
                .map(move |position| format!("{}/{}", group.spec.namespace, group.names.name(position)))
        })
    }

    /// The price per hour of the planned instances alone, without volumes and addresses.
    pub(crate) fn instance_price(&self) -> f64 {
        self.nodes().map(|node| node.instance_price()).sum()
    }

    /// Whether the price of some planned node includes more than its instance, such as volumes.
    pub(crate) fn has_attachments(&self) -> bool {
        self.nodes().any(|node| node.instance_price() != node.node.price_per_hour)
    }

    pub(crate) fn lower_bound_gap_percent(&self) -> Option<f64> {
        let (price, bound) = (self.plan.price_per_hour, self.plan.lower_bound_per_hour);
        if bound > 0.0 {
            Some((price / bound - 1.0) * 100.0)
        } else if price == 0.0 {
            Some(0.0)
        } else {
            None
        }
    }

    pub(crate) fn placed_on_existing(&self) -> u64 {
        self.plan.existing.iter().map(|placement| count(&placement.pods)).sum()
    }

    pub(crate) fn placed_on_new(&self) -> u64 {
        self.plan.new_nodes.iter().map(|node| count(&node.pods)).sum()
    }

    pub(crate) fn unplaced(&self) -> u64 {
        self.plan.unschedulable.iter().map(|left| u64::from(left.pods.count)).sum()
    }

    /// Extended resources, such as GPUs, that pods on planned nodes request, sorted by name.
    pub(crate) fn extended_resources(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .plan
            .new_nodes
            .iter()
            .flat_map(|node| node.requests.iter())
            .filter(|(name, amount)| name.contains('/') && *amount > 0)
            .map(|(name, _)| &**name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[derive(Clone, Copy)]
pub(crate) struct NodeView<'a> {
    problem: &'a Problem,
    pub(crate) node: &'a PlannedNode,
    pub(crate) name: &'a str,
}

impl<'a> NodeView<'a> {
    pub(crate) fn pool(&self) -> &'a NodePool {
        &self.problem.pools[self.node.pool]
    }

    pub(crate) fn catalog(&self) -> &'a [InstanceType] {
        &self.problem.catalogs[self.pool().catalog]
    }

    pub(crate) fn instance_type(&self) -> &'a InstanceType {
        &self.catalog()[self.node.instance_type]
    }

    pub(crate) fn allocatable(&self) -> ResourceList {
        self.instance_type().allocatable_of(self.offering())
    }

    fn offering(&self) -> &'a Offering {
        &self.instance_type().offerings[self.node.offering]
    }

    pub(crate) fn zone(&self) -> Option<&'a str> {
        self.offering().zone().map(AsRef::as_ref)
    }

    pub(crate) fn capacity_type(&self) -> Option<&'a str> {
        self.offering().capacity_type().map(AsRef::as_ref)
    }

    /// The price per hour of the instance alone, without volumes and addresses.
    pub(crate) fn instance_price(&self) -> f64 {
        self.offering().instance_price()
    }

    pub(crate) fn pod_count(&self) -> u64 {
        count(&self.node.pods)
    }

    /// The requests on the node as a share of the allocatable amount of its cheapest option. `None` if that option does
    /// not have the resource.
    pub(crate) fn utilisation(&self, resource: &str, allocatable: &ResourceList) -> Option<f64> {
        let available = allocatable.get(resource);
        (available > 0).then(|| self.node.requests.get(resource) as f64 / available as f64)
    }
}

pub(crate) fn count(runs: &[PodRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// The name that is printed for the group: that of its workload, or of its only pod.
pub(crate) fn group_label(group: &PodGroup) -> String {
    let namespace = &group.spec.namespace;
    let prefix = if namespace.is_empty() || &**namespace == "default" {
        String::new()
    } else {
        format!("{namespace}/")
    };
    match &group.names {
        PodNames::Numbered { prefix: workload, .. } => format!("{prefix}{workload}"),
        PodNames::Listed(names) => match names.as_slice() {
            [] => format!("{prefix}(no pods)"),
            [only] => format!("{prefix}{only}"),
            [first, rest @ ..] => format!("{prefix}{first} and {} alike", rest.len()),
        },
    }
}

/// Amounts as Kubernetes prints them, in name order: `cpu 500m, memory 1Gi`. The pod count is left out.
pub(crate) fn resources_text(list: &ResourceList) -> String {
    let parts: Vec<String> = list
        .iter()
        .filter(|(name, amount)| &***name != resources::PODS && *amount != 0)
        .map(|(name, amount)| format!("{name} {}", ResourceList::quantity(name, amount)))
        .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 pod`, `12 pods`, `1,000 pods`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped_digits(number), if number == 1 { "" } else { "s" })
}
