//! Applies NodeOverlays, which change prices and add capacity of the instance types that they select.
//!
//! This module decides which overlays conflict, and applies the others to instance types. Other modules validate
//! overlays and read their Kubernetes objects.
//!
//! Upstream: `pkg/controllers/nodeoverlay`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::selector::Labels;

/// One NodeOverlay.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    pub name: Arc<str>,
    pub weight: i32,
    pub requirements: Requirements,
    pub price: Option<PriceChange>,
    /// Resources that the overlay adds to an instance type's capacity; an amount that exists already is replaced.
    pub capacity: ResourceList,
}

/// How an overlay changes the hourly price of an instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriceChange {
    To(f64),
    By(f64),
    ByPercent(f64),
}

impl PriceChange {
    /// Parses `0.5`, `+0.5`, `-0.5`, `+10%` or `-10%`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        if !text.starts_with(['+', '-']) {
            return number(text).map(Self::To);
        }
        match text.strip_suffix('%') {
            Some(percent) => number(percent).map(Self::ByPercent),
            None => number(text).map(Self::By),
        }
    }

    /// The changed price; a reduction never goes below zero.
    pub fn apply(self, price_per_hour: f64) -> f64 {
        match self {
            Self::To(price) => price,
            Self::By(difference) => (price_per_hour + difference).max(0.0),
            Self::ByPercent(percent) => (price_per_hour * (1.0 + percent / 100.0)).max(0.0),
        }
    }
}

/// The properties of a NodePool by which overlays can select.
#[derive(Debug, Clone, Copy)]
pub struct PoolView<'a> {
    pub name: &'a str,
    /// The labels in the NodePool's template.
    pub labels: &'a Labels,
}

/// The overlays that conflict with no other, in order of precedence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corrections {
    overlays: Vec<Overlay>,
    /// Label keys that an offering may have although the overlay has no requirement on them.
    well_known: BTreeSet<Arc<str>>,
}

/// Result of [`evaluate`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluation {
    pub corrections: Corrections,
    /// Overlays that set the same price or resource as another overlay of the same weight. No part of such an overlay
    /// is applied.
    pub conflicting: BTreeSet<Arc<str>>,
}

/// Instance types after overlays were applied, and the names of those that changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corrected {
    pub types: Vec<InstanceType>,
    pub repriced: BTreeSet<Arc<str>>,
    pub resized: BTreeSet<Arc<str>>,
}

/// For each price and resource: the weight of the overlay that set it, to detect conflicts.
#[derive(Default)]
struct SetByWeight {
    /// The weights of prices, by the indexes of NodePool, instance type and offering.
    prices: BTreeMap<(usize, usize, usize), i32>,
    /// The weights of resources, by the indexes of NodePool and instance type, and the resource name.
    capacities: BTreeMap<(usize, usize, Arc<str>), i32>,
}

/// Sorts overlays by precedence and finds conflicts. A higher weight has precedence. Of two conflicting overlays with
/// the same weight, only the one whose name is alphabetically last is applied.
pub fn evaluate(
    mut overlays: Vec<Overlay>,
    pools: &[(PoolView<'_>, &[InstanceType])],
    well_known: &BTreeSet<Arc<str>>,
) -> Evaluation {
    overlays.sort_by(|one, other| other.weight.cmp(&one.weight).then_with(|| other.name.cmp(&one.name)));
    let mut evaluation = Evaluation::default();
    let mut set_by_weight = SetByWeight::default();
    let described: Vec<Vec<Requirements>> = match overlays.is_empty() {
        true => Vec::new(),
        false => {
            pools.iter().map(|(pool, types)| types.iter().map(|one| describe(pool, one)).collect()).collect()
        }
    };
    for overlay in overlays {
        let mut prices = Vec::new();
        let mut capacities = Vec::new();
        for (pool_at, (_, types)) in pools.iter().enumerate() {
            for (type_at, one) in types.iter().enumerate() {
                let selected = selected(&overlay, &described[pool_at][type_at], one, well_known);
                if selected.is_empty() {
                    continue;
                }
                if overlay.price.is_some() {
                    prices.extend(selected.into_iter().map(|offering_at| (pool_at, type_at, offering_at)));
                }
                capacities.extend(overlay.capacity.names().map(|name| (pool_at, type_at, name.clone())));
            }
        }
        let is_conflict = prices.iter().any(|key| set_by_weight.prices.get(key) == Some(&overlay.weight))
            || capacities.iter().any(|key| set_by_weight.capacities.get(key) == Some(&overlay.weight));
        if is_conflict {
            evaluation.conflicting.insert(overlay.name.clone());
            continue;
        }
        set_by_weight.prices.extend(prices.into_iter().map(|key| (key, overlay.weight)));
        set_by_weight.capacities.extend(capacities.into_iter().map(|key| (key, overlay.weight)));
        evaluation.corrections.overlays.push(overlay);
    }
    evaluation.corrections.well_known.clone_from(well_known);
    evaluation
}

impl Corrections {
    pub fn is_empty(&self) -> bool {
        self.overlays.is_empty()
    }

    /// The NodePool's instance types after overlays were applied; `None` if no overlay changes them.
    pub fn apply(&self, pool: &PoolView<'_>, types: &[InstanceType]) -> Option<Corrected> {
        if self.overlays.is_empty() {
            return None;
        }
        let mut corrected = Corrected::default();
        for one in types {
            corrected.types.push(self.apply_to(pool, one, &mut corrected.repriced, &mut corrected.resized));
        }
        let is_changed = !corrected.repriced.is_empty() || !corrected.resized.is_empty();
        is_changed.then_some(corrected)
    }

    fn apply_to(
        &self,
        pool: &PoolView<'_>,
        instance_type: &InstanceType,
        repriced: &mut BTreeSet<Arc<str>>,
        resized: &mut BTreeSet<Arc<str>>,
    ) -> InstanceType {
        let description = describe(pool, instance_type);
        let mut result = instance_type.clone();
        let mut has_price = vec![false; instance_type.offerings.len()];
        let mut capacity = ResourceList::new();
        for overlay in &self.overlays {
            let selected = selected(overlay, &description, instance_type, &self.well_known);
            if selected.is_empty() {
                continue;
            }
            for (name, amount) in overlay.capacity.iter() {
                if capacity.lookup(name).is_none() {
                    capacity.set(name.clone(), amount);
                }
            }
            let Some(change) = overlay.price else { continue };
            for at in selected {
                if !std::mem::replace(&mut has_price[at], true) {
                    // An overlay changes the price of the instance, not that of its volumes and addresses.
                    let offering = &mut result.offerings[at];
                    offering.set_price(change.apply(offering.instance_price()), offering.attached_price());
                }
            }
        }
        if has_price.contains(&true) {
            repriced.insert(instance_type.name.clone());
        }
        if !capacity.is_empty() {
            resized.insert(instance_type.name.clone());
        }
        for (name, amount) in capacity.iter() {
            result.capacity.set(name.clone(), amount);
        }
        result
    }
}

/// The labels that a node of the instance type has in the NodePool, as requirements.
fn describe(pool: &PoolView<'_>, instance_type: &InstanceType) -> Requirements {
    let mut description = Requirements::new();
    description.add(Requirement::in_values(labels::NODEPOOL, [Arc::from(pool.name)]));
    description.extend(&Requirements::from_labels(pool.labels));
    description.extend(&instance_type.requirements);
    description
}

/// The indexes of the offerings that an overlay selects.
fn selected(
    overlay: &Overlay,
    description: &Requirements,
    instance_type: &InstanceType,
    well_known: &BTreeSet<Arc<str>>,
) -> Vec<usize> {
    if description.compatible(&overlay.requirements, &BTreeSet::new()).is_err() {
        return Vec::new();
    }
    let is_selected =
        |offering: &Offering| overlay.requirements.compatible(&offering.requirements, well_known).is_ok();
    let offerings = instance_type.offerings.iter().enumerate();
    offerings.filter(|(_, offering)| is_selected(offering)).map(|(at, _)| at).collect()
}
