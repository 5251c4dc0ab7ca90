//! Groups pods into classes with counts. Pods that are equal for scheduling form one class. A class has one
//! variant per level of relaxation of preferences, and each variant is compiled once to ids and bit masks.
//!
//! This module does not place pods; it only prepares them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::PodRun;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::reason::Reason;
use karpenter_model::requirements::Requirements;
use karpenter_model::resources::{CPU, MEMORY};
use karpenter_model::taints::{Effect, first_untolerated};
use rustc_hash::FxHashMap;

use crate::bits::Bits;
use crate::ledger::{NodeSlot, Prepared};
use crate::relax;
use crate::states::{ReqId, States};
use crate::templates::Amounts;
use crate::topology::{GroupId, Kind, Topology, node_terms};

#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) spec: Arc<PodSpec>,
    /// The pods of the class in queue order.
    pub(crate) pods: Vec<PodRun>,
    /// Whether the pods are bound and a disruption command would move them to another node. Nodes that do not accept
    /// moved pods do not accept them.
    pub(crate) is_mover: bool,
    /// Indexes into [`Classes::variants`]: the variants of the class, in the order in which they are tried.
    pub(crate) variants: std::ops::Range<usize>,
    /// The topology groups whose selector matches the pods and that some bound pod or pod to be placed states as a
    /// constraint.
    pub(crate) matched: Vec<GroupId>,
    /// The topology groups whose selector matches the pods, even if no pod currently states the constraint.
    pub(crate) matched_by_any: Vec<GroupId>,
    /// The groups of the required anti-affinity terms that the pods state.
    pub(crate) keeps_away: Vec<GroupId>,
}

#[derive(Debug, Clone)]
pub(crate) struct Variant {
    pub(crate) class: usize,
    pub(crate) spec: PodSpec,
    pub(crate) added: ReqId,
    pub(crate) requests: Amounts,
    /// The NodePool templates whose taints the pods tolerate.
    pub(crate) tolerated: Bits,
    pub(crate) owned: Vec<Owned>,
    /// Sets of volume requirements, one per possible topology of the volumes; the node must meet at least one of them.
    /// `[NONE]` if there are no volumes.
    pub(crate) alternatives: Vec<ReqId>,
    /// Anti-affinity groups over zone-like label keys whose selector matches the pods: the pods must avoid the domains
    /// of the pods that state the term.
    pub(crate) repelled_by: Vec<GroupId>,
    pub(crate) repelled_by_on_host: Vec<GroupId>,
    /// Whether the planner may place several copies at once, because the variant has no constraint over zone-like keys
    /// and no affinity.
    pub(crate) is_bulk: bool,
    /// Like `is_bulk`, but ignores anti-affinity that other pods state.
    is_bulk_alone: bool,
    /// Whether this variant is tried after all others. It is a copy of another variant, except that its spreads count
    /// domains that only another required term of the pod allows, as long as such a domain has a node.
    pub(crate) is_last_resort: bool,
}

/// A topology constraint of a variant of a pod class.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) group: GroupId,
    pub(crate) kind: Kind,
    pub(crate) key: usize,
    pub(crate) is_hostname: bool,
    pub(crate) selects_itself: bool,
    /// Whether the constraint is required. A preferred constraint applies only to the pod that states it and never
    /// excludes other pods.
    pub(crate) is_required: bool,
    /// The domains of a zone-like key that the node constraints of the pod allow.
    pub(crate) pod_allows: Bits,
    /// The domains that only other required terms of the pod allow; filled only for variants of a pod class that are
    /// tried last.
    pub(crate) other_terms_allow: Bits,
    reach: Reach,
}

/// What determines which domains the node constraints of a pod allow. Adding or removing nodes changes only
/// `suitable_nodes`.
#[derive(Debug, Clone, Default)]
struct Reach {
    /// The domains that at least one required term of the pod allows.
    by_any_term: Bits,
    /// The domains that the required term of this variant of the pod allows.
    by_own_term: Bits,
    /// Whether the spread ignores node affinity, so that it counts every domain with a node.
    by_any_node: bool,
    /// For each domain: the number of nodes that match some required term; filled only for variants of a pod class that
    /// are tried last.
    suitable_nodes: Vec<u32>,
}

impl Reach {
    fn allows(&self, domain: usize, suitable_nodes_gone: u32, has_node: bool) -> bool {
        let suitable = self.suitable_nodes.get(domain).copied().unwrap_or(0) > suitable_nodes_gone;
        (self.by_any_term.contains(domain) && (self.by_own_term.contains(domain) || suitable))
            || (self.by_any_node && has_node)
    }
}

/// Consecutive pods of one class in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueRun {
    pub(crate) class: usize,
    pub(crate) count: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Classes {
    pub(crate) classes: Vec<Class>,
    pub(crate) variants: Vec<Variant>,
    pub(crate) queue: Vec<QueueRun>,
    /// Pods that are invalid and therefore unschedulable on any node, with the reason.
    pub(crate) refused: Vec<(PodRun, Option<Reason>)>,
}

impl Classes {
    /// The number of pending pods, including refused ones.
    pub(crate) fn pod_count(&self) -> u64 {
        let refused = self.refused.iter().map(|(run, _)| u64::from(run.count));
        self.queue.iter().map(|run| u64::from(run.count)).chain(refused).sum()
    }
}

/// Groups the pending pods into classes, in the order in which they are placed: more cpu first, then more memory, then
/// older, then by name.
///
/// `movers` are bound pods that a simulation may have to move. They get their own classes, which are not in the queue;
/// the second result is the class of each mover.
pub(crate) fn group(problem: &Problem, movers: &[Arc<PodSpec>]) -> (Classes, Vec<usize>) {
    let referenced = referenced_label_keys(problem);
    let mut order: Vec<usize> =
        (0..problem.pods.len()).filter(|position| problem.pods[*position].count() > 0).collect();
    order.sort_by_cached_key(|position| {
        let group = &problem.pods[*position];
        let requests = &group.spec.requests;
        (
            std::cmp::Reverse(requests.get(CPU)),
            std::cmp::Reverse(requests.get(MEMORY)),
            group.created_at_secs,
            group.order_name(),
        )
    });
    let mut result = Classes::default();
    let mut by_pointer: FxHashMap<*const PodSpec, usize> = FxHashMap::default();
    let mut by_spec: FxHashMap<PodSpec, usize> = FxHashMap::default();
    for position in order {
        let group = &problem.pods[position];
        let run = PodRun { group: position as u32, start: 0, count: group.count() };
        if group.spec.refusal.is_some() {
            result.refused.push((run, group.spec.refusal.clone()));
            continue;
        }
        let class = *by_pointer.entry(Arc::as_ptr(&group.spec)).or_insert_with(|| {
            let reduced = reduce(&group.spec, &referenced);
            let next = result.classes.len();
            let class = *by_spec.entry(reduced.clone()).or_insert(next);
            if class == next {
                result.classes.push(Class::new(reduced, false));
            }
            class
        });
        result.classes[class].pods.push(run);
        match result.queue.last_mut() {
            Some(last) if last.class == class => last.count += run.count,
            _ => result.queue.push(QueueRun { class, count: run.count }),
        }
    }
    by_spec.clear();
    let class_of_mover = movers
        .iter()
        .map(|spec| {
            let reduced = reduce(spec, &referenced);
            let next = result.classes.len();
            let class = *by_spec.entry(reduced.clone()).or_insert(next);
            if class == next {
                result.classes.push(Class::new(reduced, true));
            }
            class
        })
        .collect();
    (result, class_of_mover)
}

impl Class {
    fn new(spec: PodSpec, is_mover: bool) -> Self {
        Self {
            spec: Arc::new(spec),
            pods: Vec::new(),
            is_mover,
            variants: 0..0,
            matched: Vec::new(),
            matched_by_any: Vec::new(),
            keeps_away: Vec::new(),
        }
    }
}

/// Drops labels that no selector refers to, so that they do not split classes. If there is no selector, drops the
/// namespace as well.
fn reduce(spec: &PodSpec, referenced: &Option<BTreeSet<Arc<str>>>) -> PodSpec {
    let mut reduced = spec.clone();
    reduced.priority = 0;
    match referenced {
        Some(keys) => reduced.labels.retain(|key, _| keys.contains(key)),
        None => {
            reduced.labels.clear();
            reduced.namespace = "".into();
        }
    }
    reduced
}

/// The label keys that some selector refers to; `None` if no pod has a selector.
fn referenced_label_keys(problem: &Problem) -> Option<BTreeSet<Arc<str>>> {
    let mut keys = BTreeSet::new();
    let mut any = false;
    let mut seen: FxHashMap<*const PodSpec, ()> = FxHashMap::default();
    let bound = problem.nodes.iter().flat_map(|node| node.pods.iter().map(|pod| &pod.spec));
    for spec in problem.pods.iter().map(|group| &group.spec).chain(bound) {
        if seen.insert(Arc::as_ptr(spec), ()).is_some() {
            continue;
        }
        let terms = spec.affinity.iter().chain(&spec.anti_affinity);
        let preferred =
            spec.preferred_affinity.iter().chain(&spec.preferred_anti_affinity).map(|(_, term)| term);
        let selectors =
            terms.chain(preferred).map(|term| &term.selector).chain(spec.spread.iter().map(|s| &s.selector));
        for selector in selectors {
            any = true;
            if let Some(selector) = selector {
                keys.extend(selector.keys().cloned());
            }
        }
    }
    any.then_some(keys)
}

/// Compiles every variant of every class and registers the topology groups that they state.
pub(crate) fn compile(
    problem: &Problem,
    prepared: &Prepared,
    states: &mut States,
    topology: &mut Topology,
    classes: &mut Classes,
) {
    let any_preferred_taint = problem
        .pools
        .iter()
        .any(|pool| pool.taints.iter().any(|taint| taint.effect == Effect::PreferNoSchedule));
    for class in 0..classes.classes.len() {
        let start = classes.variants.len();
        let base = relax::base(&classes.classes[class].spec, problem.options.preference_policy);
        let has_last_resort = base.required_terms.len() > 1
            && base.spread.iter().any(|spread| spread.hard && &*spread.key != labels::HOSTNAME);
        for is_last_resort in [false, true] {
            let mut level = (has_last_resort || !is_last_resort).then(|| base.clone());
            while let Some(spec) = level {
                level = relax::next(&spec, any_preferred_taint);
                let variant = compile_variant(
                    problem,
                    prepared,
                    states,
                    topology,
                    (class, &classes.classes[class].spec),
                    spec,
                );
                classes.variants.push(Variant { is_last_resort, ..variant });
            }
        }
        classes.classes[class].variants = start..classes.variants.len();
    }
}

fn compile_variant(
    problem: &Problem,
    prepared: &Prepared,
    states: &mut States,
    topology: &mut Topology,
    (class, as_written): (usize, &PodSpec),
    spec: PodSpec,
) -> Variant {
    let added = states.intern(&spec.node_requirements(true));
    let mut tolerated = Bits::empty(prepared.templates.len());
    for (position, template) in prepared.templates.iter().enumerate() {
        if first_untolerated(&problem.pools[template.pool].taints, &spec.tolerations).is_none() {
            tolerated.insert(position);
        }
    }
    let mut groups: BTreeMap<GroupId, bool> = BTreeMap::new();
    let mut state = |group: GroupId, required: bool| *groups.entry(group).or_insert(false) |= required;
    for spread in &spec.spread {
        // Which nodes a spread counts depends on the pod's original constraints, not on those of the relaxed variant.
        state(topology.spread_group(as_written, spread), spread.hard);
    }
    for (anti, required, preferred) in [
        (false, &spec.affinity, &spec.preferred_affinity),
        (true, &spec.anti_affinity, &spec.preferred_anti_affinity),
    ] {
        for term in required {
            state(topology.affinity_group(&spec, term, anti), true);
        }
        for (_, term) in preferred {
            state(topology.affinity_group(&spec, term, anti), false);
        }
    }
    let owned = groups
        .into_iter()
        .map(|(id, is_required)| {
            let group = topology.group(id);
            Owned {
                group: id,
                kind: group.id.kind,
                key: group.id.key,
                is_hostname: group.is_hostname,
                selects_itself: false,
                is_required,
                pod_allows: Bits::default(),
                other_terms_allow: Bits::default(),
                reach: Reach::default(),
            }
        })
        .collect::<Vec<_>>();
    let alternatives = if spec.volumes.alternatives.is_empty() {
        vec![ReqId::NONE]
    } else {
        spec.volumes.alternatives.iter().map(|alternative| states.intern(alternative)).collect()
    };
    let is_bulk = owned.iter().all(|owned| owned.is_hostname && owned.kind != Kind::Affinity)
        && spec.volumes.attachments.is_empty()
        && spec.host_ports.is_empty();
    Variant {
        class,
        added,
        requests: prepared.dimensions.amounts(&spec.requests),
        tolerated,
        owned,
        alternatives,
        repelled_by: Vec::new(),
        repelled_by_on_host: Vec::new(),
        is_bulk,
        is_bulk_alone: is_bulk,
        is_last_resort: false,
        spec,
    }
}

/// Replaces the numbers of keys and topology groups by their new numbers.
pub(crate) fn renumber(classes: &mut Classes, new_key: &[usize], new_group: &[GroupId]) {
    for variant in &mut classes.variants {
        for owned in &mut variant.owned {
            owned.key = new_key[owned.key];
            owned.group = new_group[owned.group.0 as usize];
        }
        variant.owned.sort_by_key(|owned| owned.group);
    }
}

/// Links classes to topology groups once all groups and domains are known. [`activate`] adds what depends on the nodes
/// that are present.
pub(crate) fn link(classes: &mut Classes, topology: &mut Topology, nodes: &[NodeSlot]) {
    for class in &mut classes.classes {
        class.matched_by_any = topology.matching(&class.spec.namespace, &class.spec.labels);
        let spec = class.spec.clone();
        class.keeps_away =
            spec.anti_affinity.iter().map(|term| topology.affinity_group(&spec, term, true)).collect();
    }
    for variant in &mut classes.variants {
        let class = &classes.classes[variant.class];
        let strict = variant.is_last_resort.then(|| variant.spec.strict_requirements());
        for owned in &mut variant.owned {
            owned.selects_itself = class.matched_by_any.binary_search(&owned.group).is_ok();
            // kube-scheduler counts domains that any required term of the pod allows, not only the term of this
            // variant. A spread that ignores node affinity counts every domain that has nodes.
            let domains = &topology.domains[owned.key];
            let terms = node_terms(&class.spec);
            let reach = &mut owned.reach;
            reach.by_any_node = matches!(owned.kind, Kind::Spread { .. })
                && topology.group(owned.group).id.filter.terms.is_none();
            reach.by_any_term = Bits::empty(domains.len());
            reach.by_own_term = Bits::empty(domains.len());
            for (position, domain) in domains.iter().enumerate() {
                let allows = |term: &Requirements| {
                    term.get(&topology.keys[owned.key]).is_none_or(|requirement| requirement.has(domain))
                };
                if terms.iter().any(allows) {
                    reach.by_any_term.insert(position);
                }
                if strict.as_ref().is_none_or(allows) {
                    reach.by_own_term.insert(position);
                }
            }
            if strict.is_some() {
                reach.suitable_nodes = vec![0; domains.len()];
            }
        }
    }
    nodes.iter().for_each(|node| add_node(classes, node));
}

/// Records a new node: for variants of a pod class that are tried last, its domain counts if it matches some required
/// term of the pod.
pub(crate) fn add_node(classes: &mut Classes, node: &NodeSlot) {
    for variant in classes.variants.iter_mut().filter(|variant| variant.is_last_resort) {
        let terms = node_terms(&classes.classes[variant.class].spec);
        if suits(node, &terms) {
            for owned in &mut variant.owned {
                if let Some(domain) = node.facts.domains[owned.key] {
                    owned.reach.suitable_nodes[domain] += 1;
                }
            }
        }
    }
}

/// Removes a node permanently.
pub(crate) fn remove_node(classes: &mut Classes, node: &NodeSlot) {
    for variant in classes.variants.iter_mut().filter(|variant| variant.is_last_resort) {
        let terms = node_terms(&classes.classes[variant.class].spec);
        if suits(node, &terms) {
            for owned in &mut variant.owned {
                if let Some(domain) = node.facts.domains[owned.key] {
                    owned.reach.suitable_nodes[domain] -= 1;
                }
            }
        }
    }
}

fn suits(node: &NodeSlot, terms: &[Requirements]) -> bool {
    terms.iter().any(|term| node.facts.labels.compatible(term, &BTreeSet::new()).is_ok())
}

/// Prepares classes for placement, given the nodes that are present and the topology groups that some pod states.
///
/// `gone` are nodes that a simulation removes temporarily.
pub(crate) fn activate(
    classes: &mut Classes,
    topology: &Topology,
    gone: &[&NodeSlot],
    wanted: impl Iterator<Item = usize>,
    is_stated: impl Fn(GroupId) -> bool,
) {
    for position in wanted {
        let class = &mut classes.classes[position];
        class.matched.clear();
        class.matched.extend(class.matched_by_any.iter().copied().filter(|group| is_stated(*group)));
        for variant in &mut classes.variants[class.variants.clone()] {
            let gone: Vec<&&NodeSlot> = if variant.is_last_resort {
                let terms = node_terms(&class.spec);
                gone.iter().filter(|node| suits(node, &terms)).collect()
            } else {
                Vec::new()
            };
            for owned in variant.owned.iter_mut().filter(|owned| !owned.is_hostname) {
                let size = topology.domains[owned.key].len();
                owned.pod_allows = Bits::empty(size);
                owned.other_terms_allow = Bits::empty(size);
                for domain in 0..size {
                    let gone_here =
                        gone.iter().filter(|node| node.facts.domains[owned.key] == Some(domain)).count();
                    let has_node = topology.has_node(owned.key, domain);
                    if owned.reach.allows(domain, gone_here as u32, has_node) {
                        owned.pod_allows.insert(domain);
                    } else if owned.reach.by_any_term.contains(domain) {
                        owned.other_terms_allow.insert(domain);
                    }
                }
            }
            variant.repelled_by.clear();
            variant.repelled_by_on_host.clear();
            for group in &class.matched {
                let data = topology.group(*group);
                if data.id.kind == Kind::AntiAffinity {
                    let keeps_away = if data.is_hostname {
                        &mut variant.repelled_by_on_host
                    } else {
                        &mut variant.repelled_by
                    };
                    keeps_away.push(*group);
                }
            }
            variant.is_bulk = variant.is_bulk_alone && variant.repelled_by.is_empty();
        }
    }
}
