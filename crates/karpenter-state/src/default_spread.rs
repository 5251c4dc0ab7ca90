//! Default spread constraints of the cluster for pods without their own, each with the selector that
//! kube-scheduler would use for the pod.
//!
//! The selector combines the selectors of the Services that select the pod and the selector of its
//! controller. A pod without any of them gets no constraints.
//!
//! Upstream: defaultconstraints.go, and `DefaultSelector` of kube-scheduler.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference,
};
use karpenter_api::scheduler_config::SchedulerConfig;

use crate::convert::pod::PodSource;
use crate::pod::Pod;
use crate::workloads::{name_of, namespace_of};

/// The default constraints and the objects whose selectors are used.
#[derive(Debug, Clone, Default)]
pub struct DefaultSpreadInput {
    pub config: Arc<SchedulerConfig>,
    pub services: Vec<Arc<Service>>,
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    pub stateful_sets: Vec<Arc<StatefulSet>>,
    pub replication_controllers: Vec<Arc<ReplicationController>>,
}

/// The owner of a pod for default spread constraints.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SpreadOwner<'a> {
    /// The pod never gets default constraints, because the scheduler does not choose its node.
    Excluded,
    /// The pod has no controller, or one of a kind whose selector is not used.
    None,
    Named(&'a OwnerReference),
    /// A workload that has not created the pod yet.
    Selecting(&'a LabelSelector),
}

impl<'a> SpreadOwner<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Self {
        pod.controller().map_or(Self::None, Self::Named)
    }
}

type EqualLabels = BTreeMap<String, String>;

/// The default constraints, with lookup tables by name.
#[derive(Debug, Default)]
pub(crate) struct DefaultSpreads<'a> {
    constraints: &'a [TopologySpreadConstraint],
    /// Selectors of Services by namespace, sorted by name.
    services: BTreeMap<&'a str, BTreeMap<&'a str, &'a EqualLabels>>,
    /// Selectors of workloads by namespace, kind and name.
    workloads: BTreeMap<(&'a str, &'a str, &'a str), &'a LabelSelector>,
    replication_controllers: BTreeMap<(&'a str, &'a str), &'a EqualLabels>,
}

impl<'a> DefaultSpreads<'a> {
    pub(crate) fn new(
        config: &'a SchedulerConfig,
        services: &'a [impl Borrow<Service>],
        replica_sets: &'a [impl Borrow<ReplicaSet>],
        stateful_sets: &'a [impl Borrow<StatefulSet>],
    ) -> Self {
        let mut spreads = Self { constraints: &config.default_constraints, ..Self::default() };
        if spreads.constraints.is_empty() {
            return spreads;
        }
        for service in services.iter().map(Borrow::borrow) {
            // A missing selector selects nothing; an empty one selects all pods and adds no labels.
            if let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
                let of_namespace = spreads.services.entry(namespace_of(&service.metadata)).or_default();
                of_namespace.insert(name_of(&service.metadata), selector);
            }
        }
        for set in replica_sets.iter().map(Borrow::borrow) {
            if let Some(spec) = &set.spec {
                spreads.workloads.insert(key("ReplicaSet", &set.metadata), &spec.selector);
            }
        }
        for set in stateful_sets.iter().map(Borrow::borrow) {
            if let Some(spec) = &set.spec {
                spreads.workloads.insert(key("StatefulSet", &set.metadata), &spec.selector);
            }
        }
        spreads
    }

    pub(crate) fn live(spreading: &'a DefaultSpreadInput) -> Self {
        let DefaultSpreadInput { config, services, replica_sets, stateful_sets, replication_controllers } =
            spreading;
        let mut spreads = Self::new(config, services, replica_sets, stateful_sets);
        if spreads.constraints.is_empty() {
            return spreads;
        }
        for controller in replication_controllers {
            if let Some(selector) = controller.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
                let metadata = &controller.metadata;
                spreads.replication_controllers.insert((namespace_of(metadata), name_of(metadata)), selector);
            }
        }
        spreads
    }

    /// The default constraints of a pod that has none of its own.
    pub(crate) fn of(&self, source: &PodSource<'_>) -> Vec<TopologySpreadConstraint> {
        let has_own = source.spec.topology_spread_constraints.as_ref().is_some_and(|own| !own.is_empty());
        if self.constraints.is_empty() || has_own {
            return Vec::new();
        }
        let Some(selector) = self.selector(source) else { return Vec::new() };
        let with_selector = |constraint: &TopologySpreadConstraint| TopologySpreadConstraint {
            label_selector: Some(selector.clone()),
            ..constraint.clone()
        };
        self.constraints.iter().map(with_selector).collect()
    }

    fn selector(&self, source: &PodSource<'_>) -> Option<LabelSelector> {
        if matches!(source.spread_owner, SpreadOwner::Excluded) {
            return None;
        }
        let mut equal = self.service_labels(source);
        let expressions = self.owner_expressions(source, &mut equal);
        if equal.is_empty() && expressions.is_empty() {
            // An empty selector would count every pod of the namespace, so the pod gets no constraints.
            return None;
        }
        Some(LabelSelector {
            match_labels: (!equal.is_empty()).then_some(equal),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        })
    }

    /// The labels in the selectors of the Services that select the pod. If they differ, the last Service by name is
    /// used.
    fn service_labels(&self, source: &PodSource<'_>) -> EqualLabels {
        let carries = |key: &String, value: &String| {
            source.labels.is_some_and(|labels| labels.get(key).is_some_and(|carried| carried == value))
        };
        let services = self.services.get(source.namespace).into_iter().flat_map(BTreeMap::values);
        let selecting = services.filter(|selector| selector.iter().all(|(key, value)| carries(key, value)));
        selecting
            .flat_map(|selector| selector.iter())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// The selector of the controller: a ReplicationController overwrites labels, others add expressions.
    fn owner_expressions(
        &self,
        source: &PodSource<'_>,
        equal: &mut EqualLabels,
    ) -> Vec<LabelSelectorRequirement> {
        let owner = match source.spread_owner {
            SpreadOwner::Excluded | SpreadOwner::None => return Vec::new(),
            SpreadOwner::Selecting(selector) => return expressions(selector),
            SpreadOwner::Named(owner) => owner,
        };
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => {
                let controllers = &self.replication_controllers;
                let labels = controllers.get(&(source.namespace, owner.name.as_str()));
                equal.extend(labels.into_iter().flat_map(|labels| (*labels).clone()));
                match labels {
                    Some(_) => Vec::new(),
                    // A ReplicationController in a manifest is read as a ReplicaSet.
                    None => self.workload(source, "ReplicaSet", owner),
                }
            }
            ("apps/v1", kind @ ("ReplicaSet" | "StatefulSet")) => self.workload(source, kind, owner),
            _ => Vec::new(),
        }
    }

    fn workload(
        &self,
        source: &PodSource<'_>,
        kind: &str,
        owner: &OwnerReference,
    ) -> Vec<LabelSelectorRequirement> {
        let found = self.workloads.get(&(source.namespace, kind, owner.name.as_str()));
        found.map_or_else(Vec::new, |selector| expressions(selector))
    }
}

fn key<'a>(kind: &'a str, metadata: &'a ObjectMeta) -> (&'a str, &'a str, &'a str) {
    (namespace_of(metadata), kind, name_of(metadata))
}

/// Converts a selector to expressions only. Two expressions may contradict each other, which a map of labels cannot
/// represent, because it has one value per label.
fn expressions(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    });
    equal.chain(selector.match_expressions.iter().flatten().cloned()).collect()
}
