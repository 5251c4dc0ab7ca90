//! Metrics of status conditions and of terminations, for every kind with conditions.
//!
//! Each kind has metrics with its own name prefix. In addition there are metrics without the kind in their name, which
//! upstream deprecates; the kind is one of their labels.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{CapacityBuffer, NodeClaim, NodePool};
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{label, name_of, namespace_of};
use karpenter_runtime::store::Change;
use kube::Resource;
use kube::api::DynamicObject;
use prometheus::{HistogramVec, IntCounterVec};

use super::exposition::Family;
use super::{Declare, powers};
use crate::condition_transitions::{ConditionView, Conditional, Transition, transitions};

/// The counters and histograms about conditions: those of one kind, or the deprecated ones that all kinds share.
#[derive(Clone)]
struct RegisteredMetrics {
    transition_seconds: HistogramVec,
    transitions: IntCounterVec,
    termination_seconds: HistogramVec,
}

impl RegisteredMetrics {
    fn new(declare: &Declare, prefix: &str, buckets: &[f64], more: &[String]) -> Self {
        let with = |labels: &[&'static str]| -> Vec<String> {
            labels.iter().map(|label| (*label).to_owned()).chain(more.iter().cloned()).collect()
        };
        let name = |rest: &str| format!("{prefix}{rest}");
        Self {
            transition_seconds: declare.histogram(
                &name("status_condition_transition_seconds"),
                "How long a condition had a status before it changed.",
                buckets,
                &borrowed(&with(&["type", "status", "to_status"])),
            ),
            transitions: declare.counter(
                &name("status_condition_transitions_total"),
                "Number of transitions of a condition, by type and new status.",
                &borrowed(&with(&["type", "status", "reason"])),
            ),
            termination_seconds: declare.histogram(
                &name("termination_duration_seconds"),
                "Duration from the deletion of an object until it is removed.",
                buckets,
                &borrowed(more),
            ),
        }
    }

    fn count(&self, found: &[Transition], more: &[&str]) {
        for transition @ Transition { now, before } in found {
            let series = [&[now.kind, now.status, now.reason], more].concat();
            self.transitions.with_label_values(&series).inc();
            if let (Some(before), Some(seconds)) = (before, transition.seconds()) {
                let series = [&[now.kind, before.status, now.status], more].concat();
                self.transition_seconds.with_label_values(&series).observe(seconds);
            }
        }
    }
}

/// The metrics of one kind.
#[derive(Clone)]
pub(crate) struct ConditionsOf {
    group: &'static str,
    kind: &'static str,
    prefix: String,
    /// The labels of an object that become labels of its series: `keys` are the label keys of the object, `names` the
    /// label names in the metric.
    keys: Arc<[String]>,
    names: Arc<[String]>,
    registered: RegisteredMetrics,
    /// The deprecated metrics without the kind in their name, which all kinds share; `None` if upstream does not count
    /// this kind in them.
    deprecated: Option<RegisteredMetrics>,
}

impl ConditionsOf {
    pub(crate) fn follow<K: Conditional>(&self, change: &Change<K>, now: Timestamp) {
        let object = &**change.object();
        let more = self.labels_of(object);
        let of_kind = [self.group, self.kind];
        match change {
            Change::Applied { old, new } => {
                let before = old.as_ref().map(|old| old.condition_views()).unwrap_or_default();
                let found = transitions(&before, &new.condition_views());
                self.registered.count(&found, &more);
                if let Some(deprecated) = &self.deprecated {
                    deprecated.count(&found, &of_kind);
                }
            }
            Change::Deleted { old } => {
                let Some(asked) = &old.meta().deletion_timestamp else { return };
                let seconds = since(now, asked.0).as_secs_f64();
                self.registered.termination_seconds.with_label_values(&more).observe(seconds);
                if let Some(deprecated) = &self.deprecated {
                    deprecated.termination_seconds.with_label_values(&of_kind).observe(seconds);
                }
            }
        }
    }

    fn labels_of<'a, K: Resource>(&self, object: &'a K) -> Vec<&'a str> {
        self.keys.iter().map(|key| label(object, key).unwrap_or_default()).collect()
    }

    fn write<K: Conditional>(&self, text: &mut String, objects: &[Arc<K>], now: Timestamp) {
        let all: Vec<ObjectSeries> =
            objects.iter().map(|one| ObjectSeries::of(&**one, self.labels_of(&**one))).collect();
        write(text, &self.prefix, &borrowed(&self.names), &all, now);
    }
}

/// An object, with the values of the labels that are specific to its kind.
struct ObjectSeries<'a> {
    namespace: &'a str,
    name: &'a str,
    deleted: Option<Timestamp>,
    seen: Vec<ConditionView<'a>>,
    more: Vec<&'a str>,
}

impl<'a> ObjectSeries<'a> {
    fn of<K: Conditional>(object: &'a K, more: Vec<&'a str>) -> Self {
        let deleted = object.meta().deletion_timestamp.as_ref().map(|time| time.0);
        Self {
            namespace: namespace_of(object),
            name: name_of(object),
            deleted,
            seen: object.condition_views(),
            more,
        }
    }
}

/// Writes the three gauges that are computed from the current objects: conditions, time since their last transition,
/// and time since the deletion of terminating objects.
fn write(text: &mut String, prefix: &str, more: &[&str], objects: &[ObjectSeries], now: Timestamp) {
    let labels = [&["namespace", "name", "type", "status", "reason"], more].concat();
    let each = |family: &mut Family, value: fn(&ConditionView, Timestamp) -> Option<f64>| {
        for object in objects {
            for seen in &object.seen {
                let own = [object.namespace, object.name, seen.kind, seen.status, seen.reason];
                if let Some(value) = value(seen, now) {
                    family.set(&[&own[..], &object.more].concat(), value);
                }
            }
        }
    };
    let name = format!("{prefix}status_condition_count");
    let help = "Whether an object has a condition of this type, status and reason; always 1.";
    each(&mut Family::gauge(text, &name, help, &labels), |_, _| Some(1.0));
    let name = format!("{prefix}status_condition_current_status_seconds");
    let help = "How long a condition has had its status.";
    each(&mut Family::gauge(text, &name, help, &labels), |seen, now| {
        seen.since.map(|from| since(now, from).as_secs_f64())
    });
    let name = format!("{prefix}termination_current_time_seconds");
    let labels = [&["namespace", "name"], more].concat();
    let help = "How long ago a terminating object was deleted.";
    let mut family = Family::gauge(text, &name, help, &labels);
    for object in objects {
        if let Some(asked) = object.deleted {
            let own = [object.namespace, object.name];
            family.set(&[&own[..], &object.more].concat(), since(now, asked).as_secs_f64());
        }
    }
}

/// The condition metrics of all kinds.
#[derive(Clone)]
pub(crate) struct ConditionMetrics {
    pub(crate) claims: ConditionsOf,
    pub(crate) pools: ConditionsOf,
    pub(crate) nodes: ConditionsOf,
    pub(crate) buffers: ConditionsOf,
    /// The metrics of the provider's node classes: one item per kind, in the provider's order.
    pub(crate) classes: Vec<ConditionsOf>,
}

/// The objects whose conditions are published.
pub(crate) struct Objects<'a> {
    pub(crate) claims: &'a [Arc<NodeClaim>],
    pub(crate) pools: &'a [Arc<NodePool>],
    pub(crate) nodes: &'a [Arc<Node>],
    pub(crate) buffers: &'a [Arc<CapacityBuffer>],
    /// The node classes by kind, in the provider's order of kinds.
    pub(crate) classes: &'a [Vec<Arc<DynamicObject>>],
}

impl ConditionMetrics {
    /// `class_kinds` are the group and kind of the provider's node classes. Series of NodeClaims and nodes have labels
    /// for the node class of the object.
    pub(super) fn new(declare: &Declare, class_kinds: &[(&'static str, &'static str)]) -> Self {
        let of_kind = ["group".to_owned(), "kind".to_owned()];
        let shared = RegisteredMetrics::new(declare, "operator_", prometheus::DEFAULT_BUCKETS, &of_kind);
        let bucketed =
            |group, kind: &'static str, keys: Vec<String>, is_deprecated_too: bool, buckets: &[f64]| {
                let prefix = format!("operator_{}_", kind.to_lowercase());
                let names: Vec<String> = keys.iter().map(|key| key.replace(['/', '.', '-'], "_")).collect();
                let registered = RegisteredMetrics::new(declare, &prefix, buckets, &names);
                let deprecated = is_deprecated_too.then(|| shared.clone());
                ConditionsOf {
                    group,
                    kind,
                    prefix,
                    keys: keys.into(),
                    names: names.into(),
                    registered,
                    deprecated,
                }
            };
        let kind = |group, kind, keys, is_deprecated_too| {
            bucketed(group, kind, keys, is_deprecated_too, &powers(0.5, 15))
        };
        let with = |more: &[&str]| -> Vec<String> {
            let classes = class_kinds.iter().map(|(group, kind)| labels::node_class_label(group, kind));
            classes.chain(more.iter().map(|key| (*key).to_owned())).collect()
        };
        let class = |&(group, kind): &(&'static str, &'static str)| {
            bucketed(group, kind, Vec::new(), true, prometheus::DEFAULT_BUCKETS)
        };
        Self {
            claims: kind("karpenter.sh", "NodeClaim", with(&[labels::NODEPOOL]), true),
            pools: kind("karpenter.sh", "NodePool", Vec::new(), true),
            nodes: kind("", "Node", with(&[labels::NODEPOOL, labels::INITIALIZED]), false),
            buffers: kind("autoscaling.x-k8s.io", "CapacityBuffer", Vec::new(), true),
            classes: class_kinds.iter().map(class).collect(),
        }
    }

    pub(crate) fn write(&self, text: &mut String, objects: &Objects, now: Timestamp) {
        self.claims.write(text, objects.claims, now);
        self.pools.write(text, objects.pools, now);
        self.nodes.write(text, objects.nodes, now);
        self.buffers.write(text, objects.buffers, now);
        for (kind, classes) in self.classes.iter().zip(objects.classes) {
            kind.write(text, classes, now);
        }
        self.write_deprecated(text, objects, now);
    }

    /// Writes the deprecated metrics. All kinds are written in one pass, because the series of a metric must be
    /// adjacent in the output.
    fn write_deprecated(&self, text: &mut String, objects: &Objects, now: Timestamp) {
        let mut all: Vec<ObjectSeries> = Vec::new();
        let of = |kind: &ConditionsOf| vec![kind.group, kind.kind];
        all.extend(objects.claims.iter().map(|one| ObjectSeries::of(&**one, of(&self.claims))));
        all.extend(objects.pools.iter().map(|one| ObjectSeries::of(&**one, of(&self.pools))));
        all.extend(objects.buffers.iter().map(|one| ObjectSeries::of(&**one, of(&self.buffers))));
        for (kind, classes) in self.classes.iter().zip(objects.classes) {
            all.extend(classes.iter().map(|one| ObjectSeries::of(&**one, of(kind))));
        }
        write(text, "operator_", &["group", "kind"], &all, now);
    }
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
