//! Planned nodes grouped by what their claims ask for, so that every question about a claim and an instance type is
//! answered once, however many nodes share it.

use std::cell::RefCell;
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::problem::{NodePool, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use rustc_hash::FxHashMap;

use super::label_view::{Label, LabelView, PlannedView};

/// How an instance type fares under a claim's requirements, before any pod is looked at.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    OutsideRequirements,
    NoOffering,
    /// Offerings that are available and allowed, and the cheapest price among those that need no reservation.
    Usable {
        offerings: Vec<usize>,
        cheapest_per_hour: Option<f64>,
    },
}

/// One distinct (pool, claim requirements) pair.
pub(super) struct Frame<'a> {
    problem: &'a Problem,
    pub(super) pool: &'a NodePool,
    pub(super) catalog: &'a [InstanceType],
    /// Pool requirements, pool labels and the claim's own requirements together.
    pub(super) claim: Requirements,
    /// A claim requirement that the pool rules out.
    pub(super) outside_pool: Option<Requirement>,
    standings: RefCell<Vec<Option<Arc<Standing>>>>,
}

impl Frame<'_> {
    pub(super) fn standing(&self, instance_type: usize) -> Arc<Standing> {
        if let Some(standing) = &self.standings.borrow()[instance_type] {
            return standing.clone();
        }
        let standing = Arc::new(self.judge(&self.catalog[instance_type]));
        self.standings.borrow_mut()[instance_type] = Some(standing.clone());
        standing
    }

    fn judge(&self, instance_type: &InstanceType) -> Standing {
        let named = match self.claim.get(labels::INSTANCE_TYPE) {
            Some(requirement) => requirement.has(&instance_type.name),
            None => true,
        };
        if !named || !instance_type.requirements.intersects(&self.claim) {
            return Standing::OutsideRequirements;
        }
        let offerings: Vec<usize> = (0..instance_type.offerings.len())
            .filter(|index| {
                let offering = &instance_type.offerings[*index];
                offering.available
                    && self.claim.compatible(&offering.requirements, &self.problem.well_known).is_ok()
            })
            .collect();
        if offerings.is_empty() {
            return Standing::NoOffering;
        }
        let cheapest_per_hour = offerings
            .iter()
            .map(|index| &instance_type.offerings[*index])
            .filter(|offering| !offering.is_reserved())
            .map(|offering| offering.price_per_hour)
            .min_by(f64::total_cmp);
        Standing::Usable { offerings, cheapest_per_hour }
    }

    pub(super) fn view(&self, instance_type: usize, offering: usize) -> PlannedView<'_> {
        let instance_type = &self.catalog[instance_type];
        PlannedView {
            claim: &self.claim,
            instance_type_name: &instance_type.name,
            instance_type: &instance_type.requirements,
            offering: &instance_type.offerings[offering].requirements,
        }
    }

    /// Adds every value the key may take when the claim launches as this instance type.
    pub(super) fn possible_values(&self, instance_type: usize, key: &str, values: &mut Vec<Arc<str>>) {
        let standing = self.standing(instance_type);
        let Standing::Usable { offerings, .. } = &*standing else {
            return;
        };
        for offering in offerings {
            let view = self.view(instance_type, *offering);
            match view.label(key) {
                Label::Value(value) => push_new(values, value),
                Label::Open(open) if !open.complement => {
                    open.values.iter().for_each(|value| push_new(values, value));
                }
                Label::Open(_) | Label::Absent => {}
            }
        }
    }
}

fn push_new(values: &mut Vec<Arc<str>>, value: &str) {
    if !values.iter().any(|present| &**present == value) {
        values.push(value.into());
    }
}

pub(super) struct Frames<'a> {
    pub(super) frames: Vec<Frame<'a>>,
    /// Per planned node; `None` where pool, type or offering do not exist.
    pub(super) of_node: Vec<Option<usize>>,
}

impl<'a> Frames<'a> {
    pub(super) fn build(problem: &'a Problem, plan: &'a Plan) -> Self {
        let mut frames: Vec<Frame<'a>> = Vec::new();
        let mut known: FxHashMap<(usize, &Requirements), usize> = FxHashMap::default();
        let of_node = plan
            .new_nodes
            .iter()
            .map(|node| {
                let pool = problem.pools.get(node.pool)?;
                let catalog = problem.catalogs.get(pool.catalog)?;
                catalog.get(node.instance_type)?.offerings.get(node.offering)?;
                let frame = *known.entry((node.pool, &node.requirements)).or_insert_with(|| {
                    frames.push(frame(problem, pool, catalog, &node.requirements));
                    frames.len() - 1
                });
                Some(frame)
            })
            .collect();
        Self { frames, of_node }
    }
}

fn frame<'a>(
    problem: &'a Problem,
    pool: &'a NodePool,
    catalog: &'a [InstanceType],
    requirements: &Requirements,
) -> Frame<'a> {
    let mut claim = pool_requirements(pool);
    let outside_pool = requirements
        .iter()
        .find(|requirement| {
            let alone: Requirements = [(*requirement).clone()].into_iter().collect();
            !claim.intersects(&alone)
        })
        .cloned();
    claim.extend(requirements);
    Frame { problem, pool, catalog, claim, outside_pool, standings: RefCell::new(vec![None; catalog.len()]) }
}

/// What every node of a pool is like, whatever runs on it.
pub(super) fn pool_requirements(pool: &NodePool) -> Requirements {
    let mut requirements = pool.requirements.clone();
    requirements.extend(&Requirements::from_labels(&pool.labels));
    requirements.add(Requirement::in_values(labels::NODEPOOL, [pool.name.clone()]));
    requirements
}
