//! NodePools prepared for placement: their instance types, the free capacity of a node of each type after
//! DaemonSet pods, and the remaining limits.
//!
//! Upstream: pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go, scheduler.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering, Overrides};
use karpenter_model::labels;
use karpenter_model::pod::{HostPort, PodSpec};
use karpenter_model::problem::{Daemon, NodePool, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::{CPU, MEMORY, NODES, PODS, ResourceList};
use karpenter_model::taints::{Toleration, first_untolerated};
use smallvec::SmallVec;

/// One amount per resource, in the order of [`Dimensions`].
pub(crate) type Amounts = SmallVec<[i64; 6]>;

/// The resources that some pod requests; other resources do not affect the plan.
#[derive(Debug, Clone)]
pub(crate) struct Dimensions {
    pub(crate) names: Vec<Arc<str>>,
}

impl Dimensions {
    pub(crate) fn of(problem: &Problem, movers: &[Arc<PodSpec>]) -> Self {
        let mut others = BTreeSet::new();
        for spec in problem.pods.iter().map(|group| &group.spec).chain(movers) {
            for (name, amount) in spec.requests.iter() {
                if amount > 0 && ![CPU, MEMORY, PODS].contains(&&**name) {
                    others.insert(name.clone());
                }
            }
        }
        let names = [CPU, MEMORY, PODS].into_iter().map(Arc::from).chain(others).collect();
        Self { names }
    }

    pub(crate) fn amounts(&self, list: &ResourceList) -> Amounts {
        self.names.iter().map(|name| list.get(name)).collect()
    }

    pub(crate) fn list(&self, amounts: &[i64]) -> ResourceList {
        self.names
            .iter()
            .zip(amounts)
            .filter(|(_, amount)| **amount != 0)
            .map(|(name, amount)| (name.clone(), *amount))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// One NodePool prepared for placement. New nodes are tried in the order of the templates.
#[derive(Debug)]
pub(crate) struct Template {
    /// Index into `Problem::pools`.
    pub(crate) pool: usize,
    pub(crate) weight: i32,
    /// The NodePool's requirements and labels; every node of the NodePool satisfies them.
    pub(crate) requirements: Requirements,
    pub(crate) types: Vec<TemplateType>,
    /// The NodePool's limited resources (without `nodes`) and the remaining amount of each.
    pub(crate) limited: Vec<(Arc<str>, i64)>,
    pub(crate) nodes_left: Option<i64>,
    pub(crate) has_min_values: bool,
}

/// An instance type, or the subset of its offerings that have the same allocatable resources.
#[derive(Debug)]
pub(crate) struct TemplateType {
    /// Index into the pool's catalog.
    pub(crate) index: usize,
    /// Indexes of the offerings of this size; `None` if all offerings of the instance type have the same size.
    pub(crate) offerings: Option<Vec<u32>>,
    /// The allocatable resources minus those of the DaemonSet pods that will run on the node.
    pub(crate) free: Amounts,
    pub(crate) daemon_requests: ResourceList,
    pub(crate) daemon_ports: Vec<HostPort>,
    /// The type's capacity in each limited resource, in the order of [`Template::limited`].
    pub(crate) limited_capacity: SmallVec<[i64; 2]>,
    /// For each offering: properties that packing needs. They are cached, because reading them from labels is slow.
    pub(crate) offering_flags: Vec<OfferingFlags>,
}

/// Properties of an offering that a packing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferingFlags {
    pub(crate) is_launchable: bool,
    pub(crate) is_reserved: bool,
    pub(crate) is_spot: bool,
}

impl OfferingFlags {
    fn of(offering: &Offering) -> Self {
        let is_spot = offering.capacity_type().is_some_and(|value| &**value == labels::CAPACITY_TYPE_SPOT);
        Self { is_launchable: offering.is_launchable(), is_reserved: offering.is_reserved(), is_spot }
    }
}

/// Creates the templates of all NodePools, highest weight first, then by name in descending order. NodePools without
/// instance types are included, so that unschedulable pods get a reason for each of them.
pub(crate) fn build(problem: &Problem, dimensions: &Dimensions) -> Vec<Template> {
    let mut order: Vec<usize> = (0..problem.pools.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&problem.pools[*a], &problem.pools[*b]);
        b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name))
    });
    let daemons: Vec<PreparedDaemon> =
        problem.daemons.iter().filter(|daemon| daemon.reserves_capacity()).map(prepare_daemon).collect();
    order.into_iter().map(|pool| template(problem, dimensions, &daemons, pool)).collect()
}

pub(crate) fn catalog<'a>(problem: &'a Problem, pool: &NodePool) -> &'a [InstanceType] {
    problem.catalogs.get(pool.catalog).map_or(&[], |catalog| catalog.as_slice())
}

fn template(problem: &Problem, dimensions: &Dimensions, daemons: &[PreparedDaemon], pool: usize) -> Template {
    let definition = &problem.pools[pool];
    let mut requirements = definition.requirements.clone();
    requirements.extend(&Requirements::from_labels(&definition.labels));
    let limited: Vec<(Arc<str>, i64)> = definition
        .limits
        .iter()
        .filter(|(name, _)| &***name != NODES)
        .map(|(name, limit)| (name.clone(), limit.saturating_sub(definition.usage.get(name))))
        .collect();
    let nodes_left =
        definition.limits.lookup(NODES).map(|limit| limit.saturating_sub(definition.usage.get(NODES)));
    let daemons_here: Vec<&PreparedDaemon> =
        daemons.iter().filter(|daemon| daemon.may_run_on_pool(definition, &requirements, problem)).collect();
    // Instance types are sorted by name, so that a choice between equal types does not depend on the order of the
    // catalog.
    let mut by_name: Vec<(usize, &InstanceType)> = catalog(problem, definition).iter().enumerate().collect();
    by_name.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    let types = by_name
        .into_iter()
        .flat_map(|(index, instance_type)| {
            sizes(instance_type).into_iter().map(move |size| (index, instance_type, size))
        })
        .map(|(index, instance_type, (allocatable, offerings))| {
            let mut daemon_requests = ResourceList::new();
            let mut daemon_ports = Vec::new();
            for daemon in &daemons_here {
                if daemon.may_run_on_type(&requirements, instance_type, problem) {
                    daemon_requests.add(&daemon.spec.requests);
                    daemon_ports.extend(daemon.spec.host_ports.iter().cloned());
                }
            }
            let mut free = allocatable;
            let usable = free.iter().all(|(_, amount)| amount >= 0);
            for (name, amount) in daemon_requests.iter() {
                free.set(name.clone(), free.get(name).saturating_sub(amount));
            }
            let fits = usable && free.iter().all(|(_, amount)| amount >= 0);
            let free =
                if fits { dimensions.amounts(&free) } else { SmallVec::from_elem(-1, dimensions.len()) };
            let limited_capacity = limited.iter().map(|(name, _)| instance_type.capacity.get(name)).collect();
            let offering_flags = instance_type.offerings.iter().map(OfferingFlags::of).collect();
            TemplateType {
                index,
                offerings,
                free,
                daemon_requests,
                daemon_ports,
                limited_capacity,
                offering_flags,
            }
        })
        .collect();
    Template {
        pool,
        weight: definition.weight,
        has_min_values: requirements.has_min_values(),
        requirements,
        types,
        limited,
        nodes_left,
    }
}

/// The distinct allocatable resources of nodes of an instance type, each with the offerings that have them; `None`
/// stands for all offerings. Upstream: groupOfferingsByOverride of pkg/cloudprovider/types.go.
fn sizes(instance_type: &InstanceType) -> Vec<(ResourceList, Option<Vec<u32>>)> {
    if !instance_type.has_overrides() {
        return vec![(instance_type.allocatable(), None)];
    }
    let mut by_size: BTreeMap<Option<&Overrides>, Vec<u32>> = BTreeMap::new();
    for (index, offering) in instance_type.offerings.iter().enumerate() {
        by_size.entry(offering.overrides.as_deref()).or_default().push(index as u32);
    }
    let allocatable =
        |offerings: &[u32]| instance_type.allocatable_of(&instance_type.offerings[offerings[0] as usize]);
    by_size.into_values().map(|offerings| (allocatable(&offerings), Some(offerings))).collect()
}

/// A DaemonSet pod, with its node affinity terms; at least one of them must match a node.
struct PreparedDaemon {
    spec: PodSpec,
    terms: Vec<Requirements>,
}

fn prepare_daemon(daemon: &Daemon) -> PreparedDaemon {
    let mut spec = PodSpec::clone(&daemon.spec);
    spec.tolerations.push(Toleration::prefer_no_schedule());
    let terms = if spec.required_terms.is_empty() {
        vec![spec.node_selector.clone()]
    } else {
        let joined = |term: &Requirements| {
            let mut all = spec.node_selector.clone();
            all.extend(term);
            all
        };
        spec.required_terms.iter().map(joined).collect()
    };
    PreparedDaemon { spec, terms }
}

impl PreparedDaemon {
    fn may_run_on_pool(&self, pool: &NodePool, requirements: &Requirements, problem: &Problem) -> bool {
        first_untolerated(&pool.taints, &self.spec.tolerations).is_none()
            && self
                .terms
                .iter()
                .any(|term| with_lifecycle_labels(requirements).compatible(term, &problem.well_known).is_ok())
    }

    fn may_run_on_type(
        &self,
        requirements: &Requirements,
        instance_type: &InstanceType,
        problem: &Problem,
    ) -> bool {
        self.terms.iter().any(|term| {
            instance_type.requirements.intersects(term)
                && (self.terms.len() == 1
                    || with_lifecycle_labels(requirements).compatible(term, &problem.well_known).is_ok())
        })
    }
}

/// Adds two labels that every running node has, because DaemonSets may select them although no NodeClaim requires them.
fn with_lifecycle_labels(requirements: &Requirements) -> Requirements {
    let mut all = requirements.clone();
    all.add(Requirement::in_values(labels::REGISTERED, ["true"]));
    all.add(Requirement::in_values(labels::INITIALIZED, ["true"]));
    all
}
