//! Explains why a class is unschedulable: finds the first obstacle of every NodePool, at the last level of relaxation.
//!
//! Explanations are computed only for classes that stay unschedulable, so the code may be slow. It does not change the
//! ledger's counters.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::reason::{Reason, Refusal, Scope};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::first_untolerated;

use crate::bits::Bits;
use crate::ledger::Ledger;
use crate::ledger::fit::holds;
use crate::states::StateId;
use crate::templates::catalog;
use crate::topology::{Kind, Slot};

pub(crate) fn reasons(ledger: &mut Ledger, class: usize) -> Vec<Refusal> {
    // A simulation of disruption explains only the pods that it moves; pending pods are explained when they are
    // planned.
    if ledger.is_simulation() && !ledger.classes.classes[class].is_mover {
        return Vec::new();
    }
    let waiting = awaits_reservation(ledger, class);
    let variant = waiting.map_or(ledger.classes.classes[class].variants.end - 1, |(variant, _)| variant);
    let mut refusals = Vec::new();
    if ledger.prepared.templates.is_empty() {
        refusals.push(Refusal { scope: Scope::Cluster, reason: Reason::NoNodePools });
    }
    for template in 0..ledger.prepared.templates.len() {
        let name = ledger.problem.pools[ledger.prepared.templates[template].pool].name.clone();
        if waiting.is_some_and(|(_, awaits_reservation)| awaits_reservation == template) {
            // NodePools after this one are not tried, because this one may accept the pod later.
            refusals.push(Refusal { scope: Scope::NodePool(name), reason: Reason::ReservationFull });
            break;
        }
        let reason = pool_reason(ledger, variant, template);
        refusals.push(Refusal { scope: Scope::NodePool(name), reason });
    }
    if !ledger.is_simulation() {
        refusals.extend(node_reasons(ledger, variant));
    }
    refusals
}

/// The variant of the class that waits for a slot of a reservation, and the NodePool template with that reservation.
fn awaits_reservation(ledger: &mut Ledger, class: usize) -> Option<(usize, usize)> {
    if ledger.prepared.reservations.is_empty() || !ledger.slots.is_strict() {
        return None;
    }
    for variant in ledger.classes.classes[class].variants.clone() {
        for template in 0..ledger.prepared.templates.len() {
            if ledger.fit_new(variant, template).is_some() {
                break;
            }
            if ledger.slots.reservation_was_full {
                return Some((variant, template));
            }
        }
    }
    None
}

fn pool_reason(ledger: &mut Ledger, variant: usize, position: usize) -> Reason {
    let template = &ledger.prepared.templates[position];
    let pool = &ledger.problem.pools[template.pool];
    let spec = &ledger.classes.variants[variant].spec;
    if let Some(taint) = first_untolerated(&pool.taints, &spec.tolerations) {
        return Reason::Taint(taint.clone());
    }
    let Some(base) = ledger.states.base(position) else {
        return Reason::PoolMatchesNoInstanceType { culprit: pool_culprit(ledger, position) };
    };
    let mut wanted = ledger.states.added(ledger.classes.variants[variant].added).clone();
    if let Some(first) = ledger.classes.variants[variant].alternatives.first() {
        wanted.extend(&ledger.states.added(*first).clone());
    }
    if let Err(incompatible) = template.requirements.compatible(&wanted, &ledger.problem.well_known) {
        return incompatible.into();
    }
    let added = ledger.states.intern(&wanted);
    let Some(state) = ledger.states.add(base, added) else {
        return label_reason(ledger, position, &wanted);
    };
    if let Some(reason) = size_reason(ledger, variant, state) {
        return reason;
    }
    if let Some(limit) = ledger.nodes_left[position].filter(|left| *left <= 0) {
        let limit = pool.limits.lookup(karpenter_model::resources::NODES).unwrap_or(limit);
        return Reason::NodeLimitReached { limit };
    }
    if let Some(reason) = limit_reason(ledger, variant, position, state) {
        return reason;
    }
    if let Some(reason) = topology_reason(ledger, variant, state) {
        return reason;
    }
    let total = ledger.classes.variants[variant].requests.clone();
    let survivors = ledger.survivors(variant, None, state, &total);
    if let Some((key, wanted, found)) = ledger.unmet_min_values(state, &survivors) {
        return Reason::MinValues { key, wanted, found };
    }
    let attachments = ledger.attachments([variant].into_iter());
    if let Some((driver, count)) = attachments.into_iter().next()
        && survivors.is_empty()
    {
        return Reason::VolumeLimit { driver, limit: count as u32 - 1 };
    }
    if ledger.fit_new(variant, position).is_none() && ledger.slots.reservation_was_full {
        return Reason::ReservationFull;
    }
    if let Some(port) = ledger.classes.variants[variant].spec.host_ports.first() {
        return Reason::HostPortTaken { port: port.port };
    }
    Reason::NotEnoughRoom
}

/// The first requirement of the NodePool that no instance type of the catalog meets, even without its other
/// requirements.
fn pool_culprit(ledger: &Ledger, position: usize) -> Option<Requirement> {
    let template = &ledger.prepared.templates[position];
    let types = catalog(&ledger.problem, &ledger.problem.pools[template.pool]);
    template
        .requirements
        .iter()
        .find(|requirement| {
            let alone: Requirements = [(*requirement).clone()].into_iter().collect();
            !types.iter().any(|instance_type| {
                instance_type.requirements.intersects(&alone)
                    && instance_type
                        .offerings
                        .iter()
                        .any(|o| o.available && alone.intersects(&o.requirements))
            })
        })
        .cloned()
}

/// Why labels exclude every option: no instance type matches, or instance types match but none of their offerings does.
fn label_reason(ledger: &Ledger, position: usize, wanted: &Requirements) -> Reason {
    let template = &ledger.prepared.templates[position];
    let mut all = template.requirements.clone();
    all.extend(wanted);
    let types = catalog(&ledger.problem, &ledger.problem.pools[template.pool]);
    let wanted: Vec<Requirement> = wanted.iter().cloned().collect();
    if types.iter().any(|instance_type| instance_type.requirements.intersects(&all)) {
        Reason::NoOffering { wanted }
    } else {
        Reason::NoInstanceTypeMatches { wanted }
    }
}

fn size_reason(ledger: &Ledger, variant: usize, state: StateId) -> Option<Reason> {
    let data = ledger.states.get(state);
    let types = &ledger.prepared.templates[data.template].types;
    let requests = &ledger.classes.variants[variant].requests;
    if data.maximal.iter().any(|index| holds(&types[*index].free, requests)) {
        return None;
    }
    let names = &ledger.prepared.dimensions.names;
    let mut largest = ResourceList::new();
    let mut short_of: Vec<Arc<str>> = Vec::new();
    for (dimension, name) in names.iter().enumerate() {
        let most = data.types.iter().map(|entry| types[entry.index].free[dimension]).max().unwrap_or(0);
        largest.set(name.clone(), most);
        if requests[dimension] > most {
            short_of.push(name.clone());
        }
    }
    Some(Reason::TooLarge { requests: ledger.list(requests), largest, short_of })
}

fn limit_reason(ledger: &Ledger, variant: usize, position: usize, state: StateId) -> Option<Reason> {
    let template = &ledger.prepared.templates[position];
    let requests = &ledger.classes.variants[variant].requests;
    let left = &ledger.limits_left[position];
    let data = ledger.states.get(state);
    let mut fitting =
        data.types.iter().filter(|entry| holds(&template.types[entry.index].free, requests)).peekable();
    fitting.peek()?;
    let blocked_by = |limited: usize| {
        data.types
            .iter()
            .filter(|entry| holds(&template.types[entry.index].free, requests))
            .all(|entry| template.types[entry.index].limited_capacity[limited] > left[limited])
    };
    let any_within = fitting.any(|entry| {
        template.types[entry.index].limited_capacity.iter().zip(left).all(|(capacity, left)| capacity <= left)
    });
    if any_within || template.limited.is_empty() {
        return None;
    }
    let limited = (0..template.limited.len()).find(|limited| blocked_by(*limited)).unwrap_or(0);
    let resource = template.limited[limited].0.clone();
    let limit = ledger.problem.pools[template.pool].limits.get(&resource);
    Some(Reason::LimitExceeded { used: limit - left[limited], limit, resource })
}

fn topology_reason(ledger: &mut Ledger, variant: usize, state: StateId) -> Option<Reason> {
    let fresh = Slot((ledger.nodes.len() + ledger.claims.len()) as u32);
    let owned = ledger.classes.variants[variant].owned.clone();
    for constraint in &owned {
        let key = ledger.topology.keys[constraint.key].clone();
        if constraint.is_hostname {
            if ledger.host_copies(variant, fresh) == 0 && constraint.kind == Kind::Affinity {
                return Some(Reason::Affinity { key });
            }
            continue;
        }
        let possible = ledger.domains(state, constraint.key);
        if !ledger.allowed_domains(variant, constraint.key, &possible).is_empty() {
            continue;
        }
        let group = ledger.topology.group(constraint.group);
        return Some(match constraint.kind {
            Kind::Spread { max_skew, .. } => {
                let domains: Vec<(Arc<str>, u32)> = group
                    .universe
                    .iter()
                    .filter(|domain| ledger.topology.counts(constraint.group, *domain))
                    .map(|domain| {
                        (ledger.topology.domains[constraint.key][domain].clone(), group.matched[domain])
                    })
                    .collect();
                Reason::Spread { key, max_skew, domains }
            }
            Kind::Affinity => Reason::Affinity { key },
            Kind::AntiAffinity => Reason::AntiAffinity { key },
        });
    }
    for group in ledger.classes.variants[variant].repelled_by.clone() {
        let key = ledger.topology.group(group).id.key;
        let possible = ledger.domains(state, key);
        let allowed: Bits = ledger.allowed_domains(variant, key, &possible);
        if allowed.is_empty() {
            return Some(Reason::AntiAffinity { key: ledger.topology.keys[key].clone() });
        }
    }
    None
}

/// One refusal for each distinct reason why existing nodes do not accept the pods.
fn node_reasons(ledger: &mut Ledger, variant: usize) -> Vec<Refusal> {
    let mut counts: std::collections::BTreeMap<Reason, u32> = std::collections::BTreeMap::new();
    for node in ledger.present.iter() {
        let data = &ledger.classes.variants[variant];
        let facts = &ledger.nodes[node].facts;
        let reason = if let Some(taint) = first_untolerated(&facts.taints, &data.spec.tolerations) {
            Reason::Taint(taint.clone())
        } else if let Err(incompatible) =
            facts.labels.compatible(ledger.states.added(data.added), &BTreeSet::new())
        {
            match Reason::from(incompatible) {
                // Nodes differ in label values, so the reason states the pod's requirement, which is the same for all
                // nodes.
                Reason::Requirement { wanted, .. } => Reason::NoInstanceTypeMatches { wanted: vec![wanted] },
                other => other,
            }
        } else {
            Reason::NotEnoughRoom
        };
        *counts.entry(reason).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .map(|(reason, count)| Refusal { scope: Scope::ExistingNodes { count }, reason })
        .collect()
}
