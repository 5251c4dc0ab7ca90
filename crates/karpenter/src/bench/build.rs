//! Constructors of model values for the workloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels::HOSTNAME;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::{PodGroup, PodNames};
use karpenter_model::resources::{CPU, MEMORY, PODS, ResourceList};
use karpenter_model::selector::{LabelSelector, Labels};

pub(crate) const MIB: i64 = 1 << 20;

/// A pod in namespace `default` with requests for cpu and memory only.
pub(crate) fn pod(cpu_millis: i64, memory_mib: i64) -> PodSpec {
    let mut requests = ResourceList::new();
    requests.set(CPU, cpu_millis);
    requests.set(MEMORY, memory_mib * MIB);
    requests.set(PODS, 1);
    PodSpec { namespace: "default".into(), requests, ..PodSpec::default() }
}

pub(crate) fn labels(key: &str, value: &str) -> Labels {
    [(Arc::from(key), Arc::from(value))].into()
}

pub(crate) fn selector(labels: &Labels) -> Option<LabelSelector> {
    Some(LabelSelector::from_match_labels(labels))
}

/// maxSkew 1, DoNotSchedule.
pub(crate) fn hard_spread(key: &str, selected: &Labels) -> TopologySpread {
    TopologySpread {
        key: key.into(),
        max_skew: 1,
        min_domains: None,
        hard: true,
        selector: selector(selected),
        honor_affinity: true,
        honor_taints: false,
    }
}

pub(crate) fn affinity_term(key: &str, selected: &Labels) -> PodAffinityTerm {
    PodAffinityTerm { key: key.into(), selector: selector(selected), namespaces: ["default".into()].into() }
}

pub(crate) fn hostname_anti_affinity(selected: &Labels) -> Vec<PodAffinityTerm> {
    vec![affinity_term(HOSTNAME, selected)]
}

/// `count` pods of one spec, named `<prefix>-0` and so on.
pub(crate) fn group(prefix: impl Into<Arc<str>>, spec: PodSpec, count: u32) -> PodGroup {
    PodGroup {
        spec: Arc::new(spec),
        names: PodNames::Numbered { prefix: prefix.into(), count },
        created_at_secs: 0,
    }
}

/// Puts pods with equal specs into one group. The groups are in the order of their specs.
pub(crate) fn grouped(prefix: &str, specs: impl IntoIterator<Item = PodSpec>) -> Vec<PodGroup> {
    let mut counts: BTreeMap<PodSpec, u32> = BTreeMap::new();
    for spec in specs {
        *counts.entry(spec).or_default() += 1;
    }
    counts
        .into_iter()
        .enumerate()
        .map(|(position, (spec, count))| group(format!("{prefix}-{position}"), spec, count))
        .collect()
}
