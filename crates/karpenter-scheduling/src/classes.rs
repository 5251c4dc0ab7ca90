//! Pods as classes with counts. Pods that no rule can tell apart are one class; a class has one variant per level of
//! relaxation, and each variant is compiled once to ids and masks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::PodRun;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::Requirements;
use karpenter_model::resources::{CPU, MEMORY};
use karpenter_model::taints::{Effect, first_untolerated};
use rustc_hash::FxHashMap;

use crate::bits::Bits;
use crate::ledger::NodeSlot;
use crate::relax;
use crate::states::{ReqId, States};
use crate::templates::{Amounts, Dimensions, Template};
use crate::topology::{GroupId, Kind, Topology, node_terms};

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) spec: Arc<PodSpec>,
    /// The pods of the class in queue order.
    pub(crate) pods: Vec<PodRun>,
    /// Variants in order of relaxation: indexes into [`Classes::variants`].
    pub(crate) variants: std::ops::Range<usize>,
    pub(crate) matched: Vec<GroupId>,
}

#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) class: usize,
    pub(crate) spec: PodSpec,
    pub(crate) added: ReqId,
    pub(crate) requests: Amounts,
    /// Templates whose taints are tolerated.
    pub(crate) tolerated: Bits,
    pub(crate) owned: Vec<Owned>,
    /// Volume requirements, any one of which must hold; `[NONE]` without volumes.
    pub(crate) alternatives: Vec<ReqId>,
    /// Groups of zone-like anti-affinity that select the pod: their owners keep it away.
    pub(crate) repelled_by: Vec<GroupId>,
    pub(crate) repelled_by_on_host: Vec<GroupId>,
    /// Copies can be placed many at a time: no zone-like constraint and no affinity is stated.
    pub(crate) is_bulk: bool,
    /// Tried after everything else: a domain that only another required term allows counts for a spread only while a
    /// node is there.
    pub(crate) is_last_resort: bool,
}

/// A topology constraint that a variant states.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) group: GroupId,
    pub(crate) kind: Kind,
    pub(crate) key: usize,
    pub(crate) is_hostname: bool,
    pub(crate) selects_itself: bool,
    /// Stated as a requirement. Preferences bind their owner only; they never keep other pods away.
    pub(crate) is_required: bool,
    /// Domains of a zone-like key that the pod's own node constraints allow.
    pub(crate) pod_allows: Bits,
    /// Further domains that another of the pod's required terms allows (last resort only).
    pub(crate) other_terms_allow: Bits,
}

/// A stretch of the queue: pods of one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueRun {
    pub(crate) class: usize,
    pub(crate) count: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Classes {
    pub(crate) classes: Vec<Class>,
    pub(crate) variants: Vec<Variant>,
    pub(crate) queue: Vec<QueueRun>,
    /// Pods that are refused before any node is looked at.
    pub(crate) refused: Vec<PodRun>,
}

/// Groups the pending pods into classes, in the order in which they will be placed: large cpu first, then large
/// memory, then older, then by name.
pub(crate) fn group(problem: &Problem) -> Classes {
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
            result.refused.push(run);
            continue;
        }
        let class = *by_pointer.entry(Arc::as_ptr(&group.spec)).or_insert_with(|| {
            let reduced = reduce(&group.spec, &referenced);
            let next = result.classes.len();
            let class = *by_spec.entry(reduced.clone()).or_insert(next);
            if class == next {
                result.classes.push(Class {
                    spec: Arc::new(reduced),
                    pods: vec![],
                    variants: 0..0,
                    matched: vec![],
                });
            }
            class
        });
        result.classes[class].pods.push(run);
        match result.queue.last_mut() {
            Some(last) if last.class == class => last.count += run.count,
            _ => result.queue.push(QueueRun { class, count: run.count }),
        }
    }
    result
}

/// Labels that no selector looks at must not split classes, nor must namespaces if nothing asks for them.
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

/// `None` if there is no selector at all.
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

/// Compiles every variant of every class and interns the groups they state.
pub(crate) fn compile(
    problem: &Problem,
    dimensions: &Dimensions,
    templates: &[Template],
    states: &mut States<'_>,
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
                    dimensions,
                    templates,
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
    dimensions: &Dimensions,
    templates: &[Template],
    states: &mut States<'_>,
    topology: &mut Topology,
    (class, as_written): (usize, &PodSpec),
    spec: PodSpec,
) -> Variant {
    let added = states.intern(&spec.node_requirements(true));
    let mut tolerated = Bits::empty(templates.len());
    for (position, template) in templates.iter().enumerate() {
        if first_untolerated(&problem.pools[template.pool].taints, &spec.tolerations).is_none() {
            tolerated.insert(position);
        }
    }
    let mut groups: BTreeMap<GroupId, bool> = BTreeMap::new();
    let mut state = |group: GroupId, required: bool| *groups.entry(group).or_insert(false) |= required;
    for spread in &spec.spread {
        // Which nodes count is decided by the pod as written, whatever has been given up to place it.
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
        requests: dimensions.amounts(&spec.requests),
        tolerated,
        owned,
        alternatives,
        repelled_by: Vec::new(),
        repelled_by_on_host: Vec::new(),
        is_bulk,
        is_last_resort: false,
        spec,
    }
}

/// Links classes and groups once all groups and domains are known.
pub(crate) fn link(classes: &mut Classes, topology: &Topology, nodes: &[NodeSlot]) {
    for class in &mut classes.classes {
        class.matched = topology.matching(&class.spec.namespace, &class.spec.labels);
    }
    for variant in &mut classes.variants {
        let class = &classes.classes[variant.class];
        for owned in &mut variant.owned {
            owned.selects_itself = class.matched.binary_search(&owned.group).is_ok();
            // The scheduler looks at every required term, whichever of them the node is being chosen by. A spread that
            // ignores node affinity also counts the other domains, as far as they have nodes.
            let domains = &topology.domains[owned.key];
            let terms = node_terms(&class.spec);
            let ignores = matches!(owned.kind, Kind::Spread { .. })
                && topology.group(owned.group).id.filter.terms.is_none();
            let strict = variant.is_last_resort.then(|| variant.spec.strict_requirements());
            owned.pod_allows = Bits::empty(domains.len());
            owned.other_terms_allow = Bits::empty(domains.len());
            for (position, domain) in domains.iter().enumerate() {
                let allows = |term: &Requirements| {
                    term.get(&topology.keys[owned.key]).is_none_or(|requirement| requirement.has(domain))
                };
                let any_allows = terms.iter().any(allows);
                // A node there counts if it suits any of the terms.
                let has_suitable_node = || {
                    nodes.iter().any(|node| {
                        node.domains[owned.key] == Some(position)
                            && terms.iter().any(|term| node.labels.compatible(term, &BTreeSet::new()).is_ok())
                    })
                };
                if (any_allows && (strict.as_ref().is_none_or(allows) || has_suitable_node()))
                    || (ignores && topology.with_nodes[owned.key].contains(position))
                {
                    owned.pod_allows.insert(position);
                } else if any_allows {
                    owned.other_terms_allow.insert(position);
                }
            }
        }
        for group in &class.matched {
            if topology.group(*group).id.kind == Kind::AntiAffinity {
                if topology.group(*group).is_hostname {
                    variant.repelled_by_on_host.push(*group);
                } else {
                    variant.repelled_by.push(*group);
                }
            }
        }
        variant.is_bulk &= variant.repelled_by.is_empty();
    }
}
