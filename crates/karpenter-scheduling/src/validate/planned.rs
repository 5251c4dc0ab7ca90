//! Checks planned nodes. A NodeClaim may launch as any of its instance type options, so every option must be able to
//! run all pods of the node.
//!
//! Each class of pods is checked once per claim group (equal NodePool and NodeClaim requirements) and instance type;
//! after that, only sums of requests are compared for each node.

mod overrides;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::pod::{HostPort, PodSpec};
use karpenter_model::problem::{MinValuesPolicy, NodePool, Problem};
use karpenter_model::requirements::Requirement;
use karpenter_model::resources::ResourceList;
use rustc_hash::FxHashMap;

use super::claim_groups::{ClaimGroup, ClaimGroups, OptionStatus, pool_requirements};
use super::contents::{Contents, Share};
use super::existing::{blocking_taint, port_conflicts};
use super::label_view::LabelView;
use super::totals::clearly_above;
use super::violation::{Place, Violation};

pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    contents: &Contents<'_>,
    claim_groups: &ClaimGroups<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut checker = Checker::new(problem, contents, claim_groups);
    for (index, node) in plan.new_nodes.iter().enumerate() {
        match claim_groups.of_node[index] {
            Some(claim_group) => checker.node(index, node, claim_group, violations),
            None => unknown_parts(problem, index, node, violations),
        }
    }
}

fn unknown_parts(problem: &Problem, index: usize, node: &PlannedNode, violations: &mut Vec<Violation>) {
    let catalog = problem.pools.get(node.pool).and_then(|pool| problem.catalogs.get(pool.catalog));
    let Some(catalog) = catalog else {
        violations.push(Violation::UnknownPool { node: index, pool: node.pool });
        return;
    };
    match catalog.get(node.instance_type) {
        None => violations.push(Violation::UnknownInstanceType { node: index, index: node.instance_type }),
        Some(instance_type) => violations.push(Violation::UnknownOffering {
            node: index,
            instance_type: instance_type.name.clone(),
            index: node.offering,
        }),
    }
}

/// Amounts of resources in a fixed order of names, so that comparing options needs no map lookups.
type Amounts = Vec<i64>;

/// The total requests of the DaemonSet pods that run on one instance type in one NodePool.
struct DaemonLoad<'a> {
    amounts: Amounts,
    ports: Vec<&'a HostPort>,
}

#[derive(Clone, Copy, PartialEq)]
enum PodVerdict {
    NotChecked,
    Schedulable,
    Selector,
    Terms,
    Volumes,
}

struct Checker<'a, 'c> {
    problem: &'a Problem,
    contents: &'c Contents<'a>,
    claim_groups: &'c ClaimGroups<'a>,
    resources: Vec<Arc<str>>,
    class_amounts: Vec<Amounts>,
    /// The allocatable resources by (catalog, instance type); `None` if they differ between offerings.
    allocatable: FxHashMap<(usize, usize), Option<Amounts>>,
    /// By (pool, type).
    daemon_loads: FxHashMap<(usize, usize), DaemonLoad<'a>>,
    /// For each NodePool: the DaemonSet pods that tolerate its taints and match its labels under at least one affinity
    /// term, with the indexes of those terms.
    pool_daemons: FxHashMap<usize, Vec<(&'a PodSpec, Vec<usize>)>>,
    /// For each (claim group, class): whether its pods can run on each instance type of the catalog.
    verdicts: FxHashMap<(usize, u32), Vec<PodVerdict>>,
    sum: Amounts,
}

impl<'a, 'c> Checker<'a, 'c> {
    fn new(problem: &'a Problem, contents: &'c Contents<'a>, claim_groups: &'c ClaimGroups<'a>) -> Self {
        let names: BTreeSet<Arc<str>> = contents
            .classes
            .iter()
            .copied()
            .chain(problem.daemons.iter().map(|daemon| &*daemon.spec))
            .flat_map(|spec| spec.requests.names().cloned())
            .collect();
        let resources: Vec<Arc<str>> = names.into_iter().collect();
        let class_amounts = contents.classes.iter().map(|spec| amounts(&resources, &spec.requests)).collect();
        let sum = vec![0; resources.len()];
        Self {
            problem,
            contents,
            claim_groups,
            resources,
            class_amounts,
            allocatable: FxHashMap::default(),
            daemon_loads: FxHashMap::default(),
            pool_daemons: FxHashMap::default(),
            verdicts: FxHashMap::default(),
            sum,
        }
    }

    fn node(
        &mut self,
        index: usize,
        node: &PlannedNode,
        frame_index: usize,
        violations: &mut Vec<Violation>,
    ) {
        let claim_groups = self.claim_groups;
        let claim_group = &claim_groups.claim_groups[frame_index];
        let chosen = &claim_group.catalog[node.instance_type];
        if node.instance_type_options.first() != Some(&node.instance_type) {
            violations
                .push(Violation::ChosenTypeNotFirst { node: index, instance_type: chosen.name.clone() });
        }
        if let Some(requirement) = &claim_group.outside_pool {
            violations
                .push(Violation::RequirementsOutsidePool { node: index, requirement: requirement.clone() });
        }
        if !chosen.offerings[node.offering].is_launchable() {
            violations
                .push(Violation::OfferingUnavailable { node: index, instance_type: chosen.name.clone() });
        } else if let OptionStatus::Usable { offerings, .. } = &*claim_group.option_status(node.instance_type)
            && !offerings.contains(&node.offering)
        {
            violations
                .push(Violation::OfferingIncompatible { node: index, instance_type: chosen.name.clone() });
        }
        let mut options: Vec<usize> = node
            .instance_type_options
            .iter()
            .copied()
            .filter(|option| {
                let exists = *option < claim_group.catalog.len();
                if !exists {
                    violations.push(Violation::UnknownInstanceType { node: index, index: *option });
                }
                exists
            })
            .collect();
        if options.is_empty() {
            options.push(node.instance_type);
        }
        self.taints(index, claim_group, violations);
        self.sizes(index, node, claim_group, &options, violations);
        self.prices(index, node, claim_group, &options, violations);
        self.pods(index, frame_index, &options, violations);
        self.volume_limits(index, claim_group, &options, violations);
        self.min_values(index, node, claim_group, &options, violations);
    }

    /// Checks that every option can be launched, that options are sorted by price, and that the chosen offering is the
    /// cheapest. Must be called after [`Self::sizes`], which computes the sums of the node.
    fn prices(
        &self,
        index: usize,
        node: &PlannedNode,
        claim_group: &ClaimGroup<'_>,
        options: &[usize],
        violations: &mut Vec<Violation>,
    ) {
        let mut seen = vec![false; claim_group.catalog.len()];
        let mut previous: Option<f64> = None;
        let chosen_price = claim_group.catalog[node.instance_type].offerings[node.offering].price_per_hour;
        for option in options {
            let name = &claim_group.catalog[*option].name;
            if std::mem::replace(&mut seen[*option], true) {
                violations.push(Violation::OptionListedTwice { node: index, instance_type: name.clone() });
                continue;
            }
            match &*claim_group.option_status(*option) {
                OptionStatus::OutsideRequirements => violations
                    .push(Violation::OptionOutsideRequirements { node: index, instance_type: name.clone() }),
                OptionStatus::NoOffering => violations
                    .push(Violation::OptionWithoutOffering { node: index, instance_type: name.clone() }),
                OptionStatus::Usable { offerings, cheapest_per_hour } => {
                    let price = match self.allocatable.get(&(claim_group.pool.catalog, *option)) {
                        Some(None) => self.cheapest_that_holds(node.pool, claim_group, *option, offerings),
                        _ => *cheapest_per_hour,
                    };
                    let Some(price) = price else { continue };
                    if clearly_above(chosen_price, price) {
                        violations.push(Violation::CheaperOfferingIgnored {
                            node: index,
                            instance_type: name.clone(),
                            price_per_hour: price,
                        });
                    } else if previous.is_some_and(|previous| clearly_above(previous, price)) {
                        violations
                            .push(Violation::OptionsOutOfOrder { node: index, instance_type: name.clone() });
                    }
                    previous = Some(price);
                }
            }
        }
    }

    fn taints(&self, index: usize, claim_group: &ClaimGroup<'_>, violations: &mut Vec<Violation>) {
        if claim_group.pool.taints.is_empty() {
            return;
        }
        for share in &self.contents.planned[index] {
            let spec = self.contents.classes[share.class as usize];
            if let Some(taint) = blocking_taint(&claim_group.pool.taints, &spec.tolerations) {
                violations.push(Violation::UntoleratedTaint {
                    place: Place::Planned(index),
                    pod: self.contents.pod_name(share),
                    taint: taint.clone(),
                });
            }
        }
    }

    /// Checks the capacity and host ports of every option, and the requests that the NodeClaim states.
    fn sizes(
        &mut self,
        index: usize,
        node: &PlannedNode,
        claim_group: &ClaimGroup<'_>,
        options: &[usize],
        violations: &mut Vec<Violation>,
    ) {
        let shares = &self.contents.planned[index];
        self.sum.fill(0);
        for share in shares {
            for (total, amount) in self.sum.iter_mut().zip(&self.class_amounts[share.class as usize]) {
                *total = total.saturating_add(amount.saturating_mul(i64::from(share.count)));
            }
        }
        let has_ports =
            shares.iter().any(|share| !self.contents.classes[share.class as usize].host_ports.is_empty());
        if has_ports {
            port_conflicts(shares, self.contents, &[], &Place::Planned(index), violations);
        }
        let catalog_index = claim_group.pool.catalog;
        let mut smallest_overhead: Option<Amounts> = None;
        for option in options {
            let instance_type = &claim_group.catalog[*option];
            if !self.daemon_loads.contains_key(&(node.pool, *option)) {
                let load = self.daemon_load(node.pool, claim_group.pool, *option, claim_group);
                self.daemon_loads.insert((node.pool, *option), load);
            }
            let resources = &self.resources;
            let allocatable = self.allocatable.entry((catalog_index, *option)).or_insert_with(|| {
                let is_one_size = !instance_type.has_overrides();
                is_one_size.then(|| amounts(resources, &instance_type.allocatable()))
            });
            let of_offerings = allocatable.is_none().then(|| self.best_capacity(node, claim_group, *option));
            let free = of_offerings.as_ref().or(self.allocatable[&(catalog_index, *option)].as_ref());
            let load = &self.daemon_loads[&(node.pool, *option)];
            for (position, free) in free.into_iter().flatten().enumerate() {
                let wanted = self.sum[position].saturating_add(load.amounts[position]);
                if wanted > 0 && wanted > *free {
                    violations.push(Violation::OptionTooSmall {
                        node: index,
                        instance_type: instance_type.name.clone(),
                        resource: self.resources[position].clone(),
                        wanted,
                        free: *free,
                    });
                }
            }
            match &mut smallest_overhead {
                None => smallest_overhead = Some(load.amounts.clone()),
                Some(smallest) => {
                    for (least, amount) in smallest.iter_mut().zip(&load.amounts) {
                        *least = (*least).min(*amount);
                    }
                }
            }
            if has_ports && !load.ports.is_empty() {
                let mut conflicts = Vec::new();
                for share in shares {
                    let mut one = *share;
                    one.count = 1;
                    port_conflicts(
                        &[one],
                        self.contents,
                        &load.ports,
                        &Place::Planned(index),
                        &mut conflicts,
                    );
                }
                violations.extend(conflicts);
            }
        }
        let overhead = smallest_overhead.unwrap_or_default();
        for (position, resource) in self.resources.iter().enumerate() {
            let actual = self.sum[position].saturating_add(overhead.get(position).copied().unwrap_or(0));
            let stated = node.requests.get(resource);
            if stated != actual {
                violations.push(Violation::RequestsWrong {
                    node: index,
                    resource: resource.clone(),
                    stated,
                    actual,
                });
            }
        }
    }

    /// A DaemonSet pod runs on an instance type if it tolerates the NodePool's taints and one of its required affinity
    /// terms matches the NodePool and the instance type.
    fn daemon_load(
        &mut self,
        pool_index: usize,
        pool: &NodePool,
        option: usize,
        claim_group: &ClaimGroup<'_>,
    ) -> DaemonLoad<'a> {
        let problem = self.problem;
        let suited = self.pool_daemons.entry(pool_index).or_insert_with(|| {
            let mut node_side = pool_requirements(pool);
            node_side.add(Requirement::in_values(labels::REGISTERED, ["true"]));
            node_side.add(Requirement::in_values(labels::INITIALIZED, ["true"]));
            problem
                .daemons
                .iter()
                .filter(|daemon| daemon.reserves_capacity())
                .map(|daemon| &*daemon.spec)
                .filter(|spec| blocking_taint(&pool.taints, &spec.tolerations).is_none())
                .filter_map(|spec| {
                    let terms: Vec<usize> = (0..spec.required_terms.len().max(1))
                        .filter(|term| {
                            node_side.compatible(&wanted_by(spec, *term), &problem.well_known).is_ok()
                        })
                        .collect();
                    (!terms.is_empty()).then_some((spec, terms))
                })
                .collect()
        });
        let instance_type = &claim_group.catalog[option];
        let mut load = DaemonLoad { amounts: vec![0; self.resources.len()], ports: Vec::new() };
        for (spec, terms) in suited.iter() {
            let runs =
                terms.iter().any(|term| instance_type.requirements.intersects(&wanted_by(spec, *term)));
            if runs {
                for (total, resource) in load.amounts.iter_mut().zip(&self.resources) {
                    *total = total.saturating_add(spec.requests.get(resource));
                }
                load.ports.extend(spec.host_ports.iter());
            }
        }
        load
    }

    /// Checks the node selector, required affinity terms and volumes of every class, for every option in every offering
    /// that it may launch with.
    fn pods(&mut self, index: usize, frame_index: usize, options: &[usize], violations: &mut Vec<Violation>) {
        let claim_group = &self.claim_groups.claim_groups[frame_index];
        for share in &self.contents.planned[index] {
            let spec = self.contents.classes[share.class as usize];
            if spec.node_selector.is_empty()
                && spec.required_terms.is_empty()
                && spec.volumes.alternatives.is_empty()
            {
                continue;
            }
            let verdicts = self
                .verdicts
                .entry((frame_index, share.class))
                .or_insert_with(|| vec![PodVerdict::NotChecked; claim_group.catalog.len()]);
            for option in options {
                if verdicts[*option] == PodVerdict::NotChecked {
                    verdicts[*option] = pod_verdict(claim_group, *option, spec);
                }
                let verdict = verdicts[*option];
                if verdict == PodVerdict::Schedulable {
                    continue;
                }
                violations.push(self.pod_violation(index, claim_group, *option, share, verdict));
                break;
            }
        }
    }

    fn pod_violation(
        &self,
        index: usize,
        claim_group: &ClaimGroup<'_>,
        option: usize,
        share: &Share,
        verdict: PodVerdict,
    ) -> Violation {
        let place = Place::Planned(index);
        let pod = self.contents.pod_name(share);
        let instance_type = Some(claim_group.catalog[option].name.clone());
        let spec = self.contents.classes[share.class as usize];
        let unmet = match &*claim_group.option_status(option) {
            OptionStatus::Usable { offerings, .. } => offerings
                .iter()
                .find_map(|offering| claim_group.view(option, *offering).unmet(&spec.node_selector).cloned()),
            _ => None,
        };
        match (verdict, unmet) {
            (PodVerdict::Volumes, _) => Violation::VolumeTopologyUnmet { place, pod, instance_type },
            (PodVerdict::Selector, Some(requirement)) => {
                Violation::NodeSelectorUnmet { place, pod, instance_type, requirement }
            }
            _ => Violation::RequiredTermsUnmet { place, pod, instance_type },
        }
    }

    fn volume_limits(
        &self,
        index: usize,
        claim_group: &ClaimGroup<'_>,
        options: &[usize],
        violations: &mut Vec<Violation>,
    ) {
        let volumes: BTreeSet<&(Arc<str>, Arc<str>)> = self.contents.planned[index]
            .iter()
            .flat_map(|share| self.contents.classes[share.class as usize].volumes.attachments.iter())
            .collect();
        let mut per_driver: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        for (driver, _) in volumes {
            *per_driver.entry(driver).or_insert(0) += 1;
        }
        for (driver, wanted) in per_driver {
            for option in options {
                let instance_type = &claim_group.catalog[*option];
                if let Some(limit) = instance_type.volume_attachment_limits.get(driver)
                    && wanted > *limit
                {
                    violations.push(Violation::VolumeLimitExceeded {
                        place: Place::Planned(index),
                        instance_type: Some(instance_type.name.clone()),
                        driver: driver.clone(),
                        limit: *limit,
                        wanted,
                    });
                    break;
                }
            }
        }
    }

    fn min_values(
        &self,
        index: usize,
        node: &PlannedNode,
        claim_group: &ClaimGroup<'_>,
        options: &[usize],
        violations: &mut Vec<Violation>,
    ) {
        let is_relaxed =
            self.problem.options.min_values_policy == MinValuesPolicy::BestEffort && node.min_values_relaxed;
        for simulated in claim_group.pool.requirements.iter() {
            // Only label values that the NodeClaim allows count towards `minValues`.
            let Some(allowed) = claim_group.claim.get(&simulated.key) else { continue };
            // Lowered `minValues` must not exceed the number of values that the instance types have either, because the
            // launch would be rejected.
            let lowered = || node.requirements.get(&simulated.key)?.min_values;
            let Some(wanted) = (if is_relaxed { lowered() } else { simulated.min_values }) else { continue };
            let mut values: BTreeSet<&Arc<str>> = BTreeSet::new();
            for option in options {
                let instance_type = &claim_group.catalog[*option];
                // Label values that only offerings have do not count towards `minValues`.
                let own = instance_type.requirements.get(&simulated.key).filter(|own| !own.complement);
                let own = own.iter().flat_map(|own| own.values.iter());
                values.extend(own.filter(|value| allowed.has(value)));
            }
            if (values.len() as u32) < wanted {
                violations.push(Violation::MinValuesUnmet {
                    node: index,
                    key: simulated.key.clone(),
                    wanted,
                    found: values.len() as u32,
                });
            }
        }
    }
}

fn amounts(resources: &[Arc<str>], list: &ResourceList) -> Amounts {
    resources.iter().map(|resource| list.get(resource)).collect()
}

/// The node selector joined with one required affinity term; a spec without terms has one empty term, with index 0.
fn wanted_by(spec: &PodSpec, term: usize) -> karpenter_model::requirements::Requirements {
    let mut wanted = spec.node_selector.clone();
    if let Some(term) = spec.required_terms.get(term) {
        wanted.extend(term);
    }
    wanted
}

fn pod_verdict(claim_group: &ClaimGroup<'_>, option: usize, spec: &PodSpec) -> PodVerdict {
    let option_status = claim_group.option_status(option);
    let OptionStatus::Usable { offerings, .. } = &*option_status else {
        // The violation is reported for the option itself, so it is not reported for the pod again.
        return PodVerdict::Schedulable;
    };
    for offering in offerings {
        let view = claim_group.view(option, *offering);
        if !view.meets(&spec.node_selector) {
            return PodVerdict::Selector;
        }
        if !view.meets_any(&spec.required_terms) {
            return PodVerdict::Terms;
        }
        if !view.meets_any(&spec.volumes.alternatives) {
            return PodVerdict::Volumes;
        }
    }
    PodVerdict::Schedulable
}
