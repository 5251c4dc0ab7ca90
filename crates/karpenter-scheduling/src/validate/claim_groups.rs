//! Groups planned nodes by NodePool and NodeClaim requirements, so that each combination of requirements and instance
//! type is checked once, however many nodes have it.

use std::cell::RefCell;
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::problem::{NodePool, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use rustc_hash::FxHashMap;

use super::label_view::{Label, LabelView, PlannedView};

/// Whether a NodeClaim can launch as an instance type, before its pods are considered.
#[derive(Debug, Clone)]
pub(super) enum OptionStatus {
    OutsideRequirements,
    NoOffering,
    /// The instance type can be launched. The fields are its available and allowed offerings, and the lowest price
    /// among the offerings that need no reservation.
    Usable {
        offerings: Vec<usize>,
        cheapest_per_hour: Option<f64>,
    },
}

/// The planned nodes with the same NodePool and the same NodeClaim requirements.
pub(super) struct ClaimGroup<'a> {
    problem: &'a Problem,
    pub(super) pool: &'a NodePool,
    pub(super) catalog: &'a [InstanceType],
    /// The NodePool's requirements and labels, joined with the NodeClaim's requirements.
    pub(super) claim: Requirements,
    /// A requirement of the NodeClaim that contradicts the NodePool.
    pub(super) outside_pool: Option<Requirement>,
    option_statuses: RefCell<Vec<Option<Arc<OptionStatus>>>>,
}

impl ClaimGroup<'_> {
    pub(super) fn option_status(&self, instance_type: usize) -> Arc<OptionStatus> {
        if let Some(option_status) = &self.option_statuses.borrow()[instance_type] {
            return option_status.clone();
        }
        let option_status = Arc::new(self.evaluate_option(&self.catalog[instance_type]));
        self.option_statuses.borrow_mut()[instance_type] = Some(option_status.clone());
        option_status
    }

    fn evaluate_option(&self, instance_type: &InstanceType) -> OptionStatus {
        let named = match self.claim.get(labels::INSTANCE_TYPE) {
            Some(requirement) => requirement.has(&instance_type.name),
            None => true,
        };
        if !named || !instance_type.requirements.intersects(&self.claim) {
            return OptionStatus::OutsideRequirements;
        }
        let offerings: Vec<usize> = (0..instance_type.offerings.len())
            .filter(|index| {
                let offering = &instance_type.offerings[*index];
                offering.available
                    && self.claim.compatible(&offering.requirements, &self.problem.well_known).is_ok()
            })
            .collect();
        if offerings.is_empty() {
            return OptionStatus::NoOffering;
        }
        let cheapest_per_hour = offerings
            .iter()
            .map(|index| &instance_type.offerings[*index])
            .filter(|offering| !offering.is_reserved())
            .map(|offering| offering.price_per_hour)
            .min_by(f64::total_cmp);
        OptionStatus::Usable { offerings, cheapest_per_hour }
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

    /// Adds every value that the label may have if the NodeClaim launches as this instance type.
    pub(super) fn possible_values(&self, instance_type: usize, key: &str, values: &mut Vec<Arc<str>>) {
        let option_status = self.option_status(instance_type);
        let OptionStatus::Usable { offerings, .. } = &*option_status else {
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

pub(super) struct ClaimGroups<'a> {
    pub(super) claim_groups: Vec<ClaimGroup<'a>>,
    /// For each planned node: its group; `None` if its NodePool, instance type or offering does not exist.
    pub(super) of_node: Vec<Option<usize>>,
}

impl<'a> ClaimGroups<'a> {
    pub(super) fn build(problem: &'a Problem, plan: &'a Plan) -> Self {
        let mut claim_groups: Vec<ClaimGroup<'a>> = Vec::new();
        let mut known: FxHashMap<(usize, &Requirements), usize> = FxHashMap::default();
        let of_node = plan
            .new_nodes
            .iter()
            .map(|node| {
                let pool = problem.pools.get(node.pool)?;
                let catalog = problem.catalogs.get(pool.catalog)?;
                catalog.get(node.instance_type)?.offerings.get(node.offering)?;
                let claim_group = *known.entry((node.pool, &node.requirements)).or_insert_with(|| {
                    claim_groups.push(claim_group(problem, pool, catalog, &node.requirements));
                    claim_groups.len() - 1
                });
                Some(claim_group)
            })
            .collect();
        Self { claim_groups, of_node }
    }
}

fn claim_group<'a>(
    problem: &'a Problem,
    pool: &'a NodePool,
    catalog: &'a [InstanceType],
    requirements: &Requirements,
) -> ClaimGroup<'a> {
    let mut claim = pool_requirements(pool);
    let outside_pool = requirements
        .iter()
        .find(|requirement| {
            let alone: Requirements = [(*requirement).clone()].into_iter().collect();
            !claim.intersects(&alone)
        })
        .cloned();
    claim.extend(requirements);
    ClaimGroup {
        problem,
        pool,
        catalog,
        claim,
        outside_pool,
        option_statuses: RefCell::new(vec![None; catalog.len()]),
    }
}

/// Requirements that every node of a NodePool meets, whatever its instance type and pods are.
pub(super) fn pool_requirements(pool: &NodePool) -> Requirements {
    let mut requirements = pool.requirements.clone();
    requirements.extend(&Requirements::from_labels(&pool.labels));
    requirements.add(Requirement::in_values(labels::NODEPOOL, [pool.name.clone()]));
    requirements
}
