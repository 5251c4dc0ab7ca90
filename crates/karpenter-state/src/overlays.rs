//! Converts NodeOverlays to corrections of instance types.
//!
//! `karpenter-catalog` decides what the corrections change. The caller leaves out overlays that the
//! controller would reject.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::types::{NodeOverlay, NodePool};
use karpenter_catalog::overlay::{self, Overlay, PoolView, PriceChange};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::Operator;
use karpenter_model::selector::Labels;

use crate::convert::{capacity, node_labels, requirement};
use crate::intern::Interner;
use crate::notes::Note;
use crate::workloads::name_of;

pub use karpenter_catalog::overlay::{Corrected, Corrections, Evaluation};

/// A NodePool and its instance types.
#[derive(Debug, Clone)]
pub struct OfferedPool {
    pub pool: Arc<NodePool>,
    pub instance_types: Arc<Vec<InstanceType>>,
}

/// Evaluates which overlays apply, and which conflict with each other.
pub fn evaluate<'a>(
    overlays: impl IntoIterator<Item = &'a NodeOverlay>,
    pools: &[OfferedPool],
    well_known: &BTreeSet<Arc<str>>,
) -> Evaluation {
    let labels: Vec<Labels> = pools.iter().map(|one| template_labels(&one.pool)).collect();
    let views: Vec<(PoolView<'_>, &[InstanceType])> = pools
        .iter()
        .zip(&labels)
        .map(|(one, labels)| {
            (PoolView { name: name_of(&one.pool.metadata), labels }, one.instance_types.as_slice())
        })
        .collect();
    overlay::evaluate(overlays.into_iter().map(convert).collect(), &views, well_known)
}

/// The instance types of a NodePool with the corrections; `None` if nothing changes.
pub fn apply(corrections: &Corrections, pool: &NodePool, types: &[InstanceType]) -> Option<Corrected> {
    if corrections.is_empty() {
        return None;
    }
    let labels = template_labels(pool);
    corrections.apply(&PoolView { name: name_of(&pool.metadata), labels: &labels }, types)
}

/// If overlays change the instance types of a NodePool, gives this NodePool a catalog of its own in the problem.
pub(crate) fn apply_to_problem(
    overlays: &[NodeOverlay],
    pools: &[impl Borrow<NodePool>],
    problem: &mut Problem,
) -> Option<Note> {
    if overlays.is_empty() {
        return None;
    }
    let offered: Vec<OfferedPool> = pools
        .iter()
        .filter_map(|pool| {
            let pool: &NodePool = pool.borrow();
            let planned = problem.pools.iter().find(|one| *one.name == *name_of(&pool.metadata))?;
            let instance_types = problem.catalogs.get(planned.catalog)?.clone();
            Some(OfferedPool { pool: Arc::new(pool.clone()), instance_types })
        })
        .collect();
    let evaluation = evaluate(overlays, &offered, &problem.well_known);
    for OfferedPool { pool, instance_types } in &offered {
        let Some(corrected) = apply(&evaluation.corrections, pool, instance_types) else { continue };
        let planned = problem.pools.iter_mut().find(|one| *one.name == *name_of(&pool.metadata));
        if let Some(planned) = planned {
            planned.catalog = problem.catalogs.len();
            problem.catalogs.push(Arc::new(corrected.types));
        }
    }
    let names: Vec<String> = evaluation.conflicting.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then_some(Note::NodeOverlaysConflicting { names })
}

fn template_labels(pool: &NodePool) -> Labels {
    let template = pool.spec.template.metadata.as_ref();
    node_labels(template.and_then(|metadata| metadata.labels.as_ref()), &mut Interner::default())
}

fn convert(raw: &NodeOverlay) -> Overlay {
    let mut interner = Interner::default();
    let spec = &raw.spec;
    let requirements = spec.requirements.iter().filter_map(|one| {
        let operator = Operator::parse(&one.operator)?;
        Some(requirement::requirement(&one.key, operator, &one.values, &mut interner))
    });
    let requirements = requirements.collect();
    let amounts = spec.capacity.iter().flatten().map(|(name, amount)| (name.as_str(), *amount));
    Overlay {
        name: name_of(&raw.metadata).into(),
        weight: spec.weight.unwrap_or(0),
        requirements,
        price: spec.price.as_deref().or(spec.price_adjustment.as_deref()).and_then(PriceChange::parse),
        capacity: capacity(amounts, &mut interner),
    }
}
