//! Decides whether a topology spread counts the pods of a planned node.
//!
//! A spread with `nodeAffinityPolicy: Honor` counts only nodes that match the node affinity of the pod that states the
//! spread. A planned node may still be able to launch as instance types and offerings of which some match and some do
//! not. Then the result is undecided, and [`pin`] restricts the node. Upstream counts such a node unless its NodeClaim
//! excludes the pod.
//!
//! [`pin`]: crate::pin

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::requirements::{Incompatible, Operator, Requirement, Requirements};

use super::Ledger;
use crate::states::StateId;
use crate::topology::{GroupId, keeps_away};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eligibility {
    /// The spread counts the node, regardless of the instance type and offering that it launches as.
    Included,
    Excluded,
    Undecided,
}

/// Whether a spread counts planned nodes that have the requirements of a state.
#[derive(Debug, Clone)]
pub(crate) struct FilterResult {
    pub(crate) eligibility: Eligibility,
    /// Requirements that keep the result valid: a node that gets further requirements but still meets these has the
    /// same result.
    pub(crate) keeps: Requirements,
}

/// One way to launch a planned node: the requirements of its NodeClaim, of an instance type, and of one of its
/// offerings.
struct Launch<'a>([&'a Requirements; 3]);

impl Launch<'_> {
    /// The requirement on a label of the launched node; `None` if the node will not have the label.
    fn label(&self, key: &str) -> Option<Requirement> {
        let mut known = self.0.iter().filter_map(|requirements| requirements.get(key));
        let first = known.next()?.clone();
        Some(known.fold(first, |all, one| all.intersection(one)))
    }
}

impl Ledger {
    /// Whether a topology group counts planned nodes of this requirement state. If the result is undecided, hostname
    /// groups count the node and others do not.
    pub(crate) fn filter_accepts(&mut self, group: GroupId, state: StateId) -> bool {
        if self.topology.group(group).id.filter.is_all() {
            return true;
        }
        match self.filter_result(group, state).eligibility {
            Eligibility::Included => true,
            Eligibility::Excluded => false,
            Eligibility::Undecided => self.topology.group(group).is_hostname,
        }
    }

    pub(crate) fn filter_result(&mut self, group: GroupId, state: StateId) -> Arc<FilterResult> {
        if let Some(known) = self.filters.get(&(group, state)) {
            return known.clone();
        }
        let filter_result = Arc::new(self.evaluate_filter(group, state));
        self.filters.insert((group, state), filter_result.clone());
        filter_result
    }

    fn evaluate_filter(&self, group: GroupId, state: StateId) -> FilterResult {
        let filter = &self.topology.group(group).id.filter;
        let mut keeps = Requirements::new();
        if let Some(tolerations) = &filter.tolerations {
            // The NodePool determines the taints, so the result holds only for nodes of the same NodePool.
            self.keep_pool(state, &mut keeps);
            let data = self.states.get(state);
            let taints = &self.problem.pools[self.prepared.templates[data.template].pool].taints;
            if keeps_away(taints, tolerations) {
                return FilterResult { eligibility: Eligibility::Excluded, keeps };
            }
        }
        let Some(terms) = &filter.terms else {
            return FilterResult { eligibility: Eligibility::Included, keeps };
        };
        let mut eligibility = Eligibility::Excluded;
        for term in terms {
            match self.eligibility_by_term(state, term) {
                Eligibility::Included => {
                    keeps.extend(term);
                    return FilterResult { eligibility: Eligibility::Included, keeps };
                }
                Eligibility::Undecided => eligibility = Eligibility::Undecided,
                Eligibility::Excluded => {}
            }
        }
        if eligibility == Eligibility::Excluded {
            terms.iter().for_each(|term| self.keep_excluded(state, term, &mut keeps));
        }
        FilterResult { eligibility, keeps }
    }

    pub(crate) fn eligibility_by_term(&self, state: StateId, term: &Requirements) -> Eligibility {
        let requirements = &self.states.get(state).requirements;
        if term
            .iter()
            .all(|wanted| requirements.get(&wanted.key).is_some_and(|own| all_values_match(own, wanted)))
        {
            return Eligibility::Included;
        }
        if requirements.compatible(term, &self.problem.well_known).is_err() {
            return Eligibility::Excluded;
        }
        let (mut any_in, mut any_out) = (false, false);
        for launch in self.launches(state) {
            let labels = || term.iter().map(|wanted| (wanted, launch.label(&wanted.key)));
            if labels().all(|(wanted, own)| {
                own.map_or(holds_without_label(wanted), |own| all_values_match(&own, wanted))
            }) {
                any_in = true;
            } else if labels().any(|(wanted, own)| !some_value_matches(own.as_ref(), wanted)) {
                any_out = true;
            } else {
                return Eligibility::Undecided;
            }
        }
        match (any_in, any_out) {
            (true, false) => Eligibility::Included,
            (true, true) => Eligibility::Undecided,
            (false, _) => Eligibility::Excluded,
        }
    }

    /// Adds to `keeps` the requirements under which the selector term keeps excluding the node.
    fn keep_excluded(&self, state: StateId, term: &Requirements, keeps: &mut Requirements) {
        let requirements = &self.states.get(state).requirements;
        let conflict = match requirements.compatible(term, &self.problem.well_known) {
            Err(Incompatible::Conflict { wanted, .. }) => Some(wanted),
            Err(Incompatible::Undefined { .. }) => None,
            Ok(()) => {
                let may = |wanted: &Requirement| {
                    self.launches(state)
                        .any(|launch| some_value_matches(launch.label(&wanted.key).as_ref(), wanted))
                };
                term.iter().find(|wanted| !may(wanted)).cloned()
            }
        };
        match conflict.as_ref().and_then(complement_of) {
            Some(complement_of) => keeps.add(complement_of),
            None => {
                self.keep_pool(state, keeps);
                let own = term.keys().filter_map(|key| requirements.get(key));
                own.for_each(|own| keeps.add(own.clone().with_min_values(None)));
            }
        }
    }

    fn keep_pool(&self, state: StateId, keeps: &mut Requirements) {
        if let Some(pool) = self.states.get(state).requirements.get(labels::NODEPOOL) {
            keeps.add(pool.clone());
        }
    }

    /// All instance types and offerings that the node may launch as.
    fn launches(&self, state: StateId) -> impl Iterator<Item = Launch<'_>> {
        let data = self.states.get(state);
        data.types.iter().flat_map(move |entry| {
            let instance_type = self.states.instance_type(data.template, entry.index);
            self.states.offers(state, entry).iter().map(move |offering| {
                let offered = &instance_type.offerings[*offering as usize].requirements;
                Launch([&data.requirements, &instance_type.requirements, offered])
            })
        })
    }

    /// Narrower states in which it is decided whether the spread counts the node. States in which the spread counts the
    /// node come first.
    pub(crate) fn states_that_decide(&mut self, group: GroupId, state: StateId) -> Vec<StateId> {
        let terms = self.topology.group(group).id.filter.terms.clone().unwrap_or_default();
        let mut ways = Vec::new();
        for term in &terms {
            let added = self.states.intern(term);
            ways.extend(self.states.add(state, added));
        }
        ways.extend(terms.iter().try_fold(state, |state, term| self.excluded_by_term(state, term)));
        ways.retain(|way| self.filter_result(group, *way).eligibility != Eligibility::Undecided);
        ways
    }

    /// The state, narrowed to launches that the selector term excludes.
    fn excluded_by_term(&mut self, state: StateId, term: &Requirements) -> Option<StateId> {
        if self.eligibility_by_term(state, term) == Eligibility::Excluded {
            return Some(state);
        }
        term.iter().filter_map(complement_of).find_map(|complement_of| {
            let added = self.states.intern(&[complement_of].into_iter().collect());
            self.states
                .add(state, added)
                .filter(|state| self.eligibility_by_term(*state, term) == Eligibility::Excluded)
        })
    }
}

/// The requirement that allows exactly the values that `wanted` does not; only for the operator `In`.
fn complement_of(wanted: &Requirement) -> Option<Requirement> {
    (wanted.operator() == Operator::In)
        .then(|| Requirement::new(wanted.key.clone(), Operator::NotIn, wanted.values.iter().cloned()))
}

fn holds_without_label(wanted: &Requirement) -> bool {
    matches!(wanted.operator(), Operator::NotIn | Operator::DoesNotExist)
}

/// Whether `wanted` allows every label value that `own` allows.
fn all_values_match(own: &Requirement, wanted: &Requirement) -> bool {
    match own.operator() {
        Operator::In => own.values.iter().all(|value| wanted.has(value)),
        Operator::DoesNotExist => holds_without_label(wanted),
        _ => {
            let is_within = wanted.gte.is_none_or(|bound| own.gte.is_some_and(|own| own >= bound))
                && wanted.lte.is_none_or(|bound| own.lte.is_some_and(|own| own <= bound));
            wanted.complement && is_within && wanted.values.iter().all(|value| !own.has(value))
        }
    }
}

/// Whether `wanted` allows some label value that `own` allows; an `own` of `None` means that the node lacks the label.
fn some_value_matches(own: Option<&Requirement>, wanted: &Requirement) -> bool {
    match own {
        Some(own) if own.operator() != Operator::DoesNotExist => own.has_intersection(wanted),
        _ => holds_without_label(wanted),
    }
}
