//! Converts pods: everything that decides where a pod can run.
//!
//! Equal pods share one `Arc`, so a hundred thousand replicas need one spec. A pod that Karpenter would ignore is
//! converted as well, and its spec has the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, PodSpec as RawPodSpec, Toleration as RawToleration,
    TopologySpreadConstraint,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use karpenter_model::labels;
use karpenter_model::pod::{HostPort, PodSpec};
use karpenter_model::reason::Reason;
use karpenter_model::requirements::{Operator, Requirements};
use karpenter_model::resources::{PODS, ResourceList, request_amount};
use karpenter_model::selector::Labels;
use karpenter_model::taints::{Effect, Toleration, TolerationOperator};
use rustc_hash::FxHashSet;

use super::affinity::{self, Namespaces, Owner};
use super::requirement;
use super::volumes::{ClaimSource, Unusable, VolumeIndex};
use crate::default_spread::{DefaultSpreads, SpreadOwner};
use crate::intern::Interner;
use crate::requests::{RequestSource, effective_requests};

/// A pod as it was read, or as its workload would create it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodSource<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) labels: Option<&'a BTreeMap<String, String>>,
    pub(crate) spec: &'a RawPodSpec,
    pub(crate) requests: RequestSource<'a>,
    /// The claim templates of the workload, for each of its pods.
    pub(crate) claim_templates: &'a [PersistentVolumeClaim],
    pub(crate) spread_owner: SpreadOwner<'a>,
}

/// The lookup tables of the conversion.
#[derive(Debug)]
pub(crate) struct PodConverter<'a> {
    pub(crate) interner: Interner,
    pub(crate) namespaces: Namespaces,
    pub(crate) priorities: Priorities,
    pub(crate) volumes: VolumeIndex<'a>,
    pub(crate) well_known: BTreeSet<Arc<str>>,
    pub(crate) spreads: DefaultSpreads<'a>,
    specs: FxHashSet<Arc<PodSpec>>,
}

impl<'a> PodConverter<'a> {
    pub(crate) fn new(
        interner: Interner,
        namespaces: Namespaces,
        priorities: Priorities,
        volumes: VolumeIndex<'a>,
        well_known: BTreeSet<Arc<str>>,
    ) -> Self {
        let spreads = DefaultSpreads::default();
        Self { interner, namespaces, priorities, volumes, well_known, spreads, specs: FxHashSet::default() }
    }

    pub(crate) fn convert(&mut self, source: PodSource<'_>) -> Arc<PodSpec> {
        let spec = self.convert_fresh(source);
        if let Some(known) = self.specs.get(&spec) {
            return known.clone();
        }
        let spec = Arc::new(spec);
        self.specs.insert(spec.clone());
        spec
    }

    fn convert_fresh(&mut self, source: PodSource<'_>) -> PodSpec {
        let interner = &mut self.interner;
        let raw = source.spec;
        let namespace = interner.get(source.namespace);
        let labels: Labels = source
            .labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (interner.get(key), interner.get(value)))
            .collect();
        let mut requests: ResourceList = effective_requests(source.requests)
            .iter()
            .map(|(name, quantity)| (interner.get(name), request_amount(name, quantity)))
            .collect();
        requests.set(interner.get(PODS), 1);
        let mut spec = PodSpec {
            namespace,
            labels,
            requests,
            node_selector: node_selector(raw, interner),
            required_terms: required_terms(raw, interner),
            preferred_terms: preferred_terms(raw, interner),
            tolerations: raw.tolerations.iter().flatten().map(|one| toleration(one, interner)).collect(),
            host_ports: host_ports(raw, interner),
            priority: self.priorities.of(raw),
            ..PodSpec::default()
        };
        let defaults = self.spreads.of(&source);
        self.add_pod_constraints(raw, &defaults, &mut spec);
        spec.refusal = self.refusal(raw, &spec);
        let claims = ClaimSource {
            namespace: source.namespace,
            pod_name: source.name,
            volumes: raw.volumes.as_deref().unwrap_or_default(),
            templates: source.claim_templates,
        };
        if claims.is_empty() {
            return spec;
        }
        match self.volumes.resolve(claims, &mut self.interner) {
            Ok(volumes) => spec.volumes = volumes,
            Err(Unusable(what)) => {
                spec.refusal = spec.refusal.or_else(|| Some(Reason::Volume { what: what.into() }))
            }
        }
        spec
    }

    fn add_pod_constraints(
        &mut self,
        raw: &RawPodSpec,
        defaults: &[TopologySpreadConstraint],
        spec: &mut PodSpec,
    ) {
        let (interner, namespaces) = (&mut self.interner, &self.namespaces);
        let owner = Owner { namespace: &spec.namespace, labels: &spec.labels };
        spec.spread = raw
            .topology_spread_constraints
            .iter()
            .flatten()
            .chain(defaults)
            .map(|constraint| affinity::spread(constraint, &owner, interner))
            .collect();
        let Some(raw) = &raw.affinity else { return };
        if let Some(raw) = &raw.pod_affinity {
            let required = raw.required_during_scheduling_ignored_during_execution.iter().flatten();
            spec.affinity = required.map(|term| affinity::term(term, &owner, namespaces, interner)).collect();
            let preferred = raw.preferred_during_scheduling_ignored_during_execution.as_ref();
            spec.preferred_affinity = affinity::weighted(preferred, &owner, namespaces, interner);
        }
        if let Some(raw) = &raw.pod_anti_affinity {
            let required = raw.required_during_scheduling_ignored_during_execution.iter().flatten();
            spec.anti_affinity =
                required.map(|term| affinity::term(term, &owner, namespaces, interner)).collect();
            let preferred = raw.preferred_during_scheduling_ignored_during_execution.as_ref();
            spec.preferred_anti_affinity = affinity::weighted(preferred, &owner, namespaces, interner);
        }
    }

    fn refusal(&self, raw: &RawPodSpec, spec: &PodSpec) -> Option<Reason> {
        let first_term = spec.required_terms.first().and_then(|term| term.get(labels::NODEPOOL));
        let names_pool = first_term.is_some() || spec.node_selector.has_key(labels::NODEPOOL);
        let pool = if names_pool { spec.strict_requirements().remove(labels::NODEPOOL) } else { None };
        if pool.is_some_and(|pool| pool.operator() == Operator::DoesNotExist) {
            return Some(Reason::OptedOut);
        }
        let invalid = |what: String| Some(Reason::InvalidPod { what: what.into() });
        for (key, value) in raw.node_selector.iter().flatten() {
            let values = std::slice::from_ref(value);
            if let Some(what) = requirement::requirement_error(key, Operator::In, values, &self.well_known) {
                return invalid(format!("nodeSelector: {what}"));
            }
        }
        for term in raw_required_terms(raw) {
            if let Some(what) = requirement::term_error(term, &self.well_known) {
                return invalid(format!("node affinity: {what}"));
            }
        }
        uses_resource_claims(raw).then_some(Reason::DynamicResources)
    }
}

fn raw_required_terms(raw: &RawPodSpec) -> &[k8s_openapi::api::core::v1::NodeSelectorTerm] {
    let affinity = raw.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.map_or(&[], |required| &required.node_selector_terms)
}

fn node_selector(raw: &RawPodSpec, interner: &mut Interner) -> Requirements {
    let entries = raw.node_selector.iter().flatten();
    entries
        .flat_map(|(key, value)| {
            requirement::wanted(key, Operator::In, std::slice::from_ref(value), interner)
        })
        .collect()
}

fn required_terms(raw: &RawPodSpec, interner: &mut Interner) -> Vec<Requirements> {
    raw_required_terms(raw).iter().map(|term| requirement::term(term, interner)).collect()
}

fn preferred_terms(raw: &RawPodSpec, interner: &mut Interner) -> Vec<(i32, Requirements)> {
    let affinity = raw.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let mut terms: Vec<_> = preferred
        .into_iter()
        .flatten()
        .map(|term| (term.weight, requirement::term(&term.preference, interner)))
        .collect();
    terms.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    terms
}

fn toleration(raw: &RawToleration, interner: &mut Interner) -> Toleration {
    let value = raw.value.as_deref().unwrap_or_default();
    let operator = match raw.operator.as_deref() {
        Some("Exists") => TolerationOperator::Exists,
        Some("Gt") => value
            .parse()
            .map_or_else(|_| TolerationOperator::Equal(interner.get(value)), TolerationOperator::Gt),
        Some("Lt") => value
            .parse()
            .map_or_else(|_| TolerationOperator::Equal(interner.get(value)), TolerationOperator::Lt),
        _ => TolerationOperator::Equal(interner.get(value)),
    };
    Toleration {
        key: interner.get(raw.key.as_deref().unwrap_or_default()),
        operator,
        effect: raw.effect.as_deref().and_then(Effect::parse),
    }
}

fn sidecars(raw: &RawPodSpec) -> impl Iterator<Item = &Container> {
    let init_containers = raw.init_containers.iter().flatten();
    init_containers.filter(|container| container.restart_policy.as_deref() == Some("Always"))
}

fn host_ports(raw: &RawPodSpec, interner: &mut Interner) -> BTreeSet<HostPort> {
    let on_host_network = raw.host_network == Some(true);
    let ports =
        raw.containers.iter().chain(sidecars(raw)).filter_map(|container| container.ports.as_ref()).flatten();
    ports
        .filter_map(|port| {
            // On the host network, a container port is a host port even without `hostPort`.
            let implied = on_host_network.then_some(port.container_port);
            let number = port.host_port.filter(|number| *number != 0).or(implied)?;
            Some(HostPort {
                address: interner.get(port.host_ip.as_deref().unwrap_or_default()),
                port: u16::try_from(number).ok().filter(|number| *number != 0)?,
                protocol: interner.get(port.protocol.as_deref().unwrap_or("TCP")),
            })
        })
        .collect()
}

pub(crate) fn uses_resource_claims(raw: &RawPodSpec) -> bool {
    let containers = raw.containers.iter().chain(raw.init_containers.iter().flatten());
    let has_claims = |container: &Container| {
        container.resources.as_ref().and_then(|r| r.claims.as_ref()).is_some_and(|claims| !claims.is_empty())
    };
    raw.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || containers.into_iter().any(has_claims)
}

/// Priorities by class name.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    classes: BTreeMap<String, i32>,
    default: i32,
    /// PriorityClasses that pods reference and that the input lacks.
    unknown: std::cell::RefCell<BTreeSet<String>>,
}

impl Priorities {
    pub(crate) fn new(classes: &[PriorityClass]) -> Self {
        let mut priorities = Self::default();
        // These two PriorityClasses exist in every cluster, even if the input lacks them.
        priorities.classes.insert("system-cluster-critical".to_owned(), 2_000_000_000);
        priorities.classes.insert("system-node-critical".to_owned(), 2_000_001_000);
        for class in classes {
            priorities.classes.insert(class.metadata.name.clone().unwrap_or_default(), class.value);
            if class.global_default == Some(true) {
                priorities.default = class.value;
            }
        }
        priorities
    }

    fn of(&self, spec: &RawPodSpec) -> i32 {
        if let Some(priority) = spec.priority {
            return priority;
        }
        match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
            None => self.default,
            Some(name) => self.classes.get(name).copied().unwrap_or_else(|| {
                self.unknown.borrow_mut().insert(name.to_owned());
                self.default
            }),
        }
    }

    pub(crate) fn unknown_classes(&self) -> Vec<String> {
        self.unknown.borrow().iter().cloned().collect()
    }
}
