//! Whether a planned node is one of those that a spread looks at.
//!
//! A spread that honours node affinity counts pods only on nodes that suit its owner. A planned node may still be open
//! between instance types and offerings of which some do and some do not; then nothing is known yet, and [`settle`]
//! decides. Upstream counts such a node as soon as its claim does not rule the owner out.
//!
//! [`settle`]: crate::settle

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::requirements::{Incompatible, Operator, Requirement, Requirements};

use super::Ledger;
use crate::states::StateId;
use crate::topology::{GroupId, keeps_away};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Whatever the node becomes, the spread looks at it.
    In,
    Out,
    Open,
}

/// What a spread makes of the nodes of a state.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) standing: Standing,
    /// A node that meets this too has the same standing, whatever else is asked of it.
    pub(crate) keeps: Requirements,
}

/// What a claim, an instance type and an offering of it say about a node.
struct Launch<'a>([&'a Requirements; 3]);

impl Launch<'_> {
    /// What is known of a label; `None`: there will be none.
    fn label(&self, key: &str) -> Option<Requirement> {
        let mut known = self.0.iter().filter_map(|requirements| requirements.get(key));
        let first = known.next()?.clone();
        Some(known.fold(first, |all, one| all.intersection(one)))
    }
}

impl Ledger {
    /// Whether a node in this state counts for a group. A host of which it is not known does.
    pub(crate) fn filter_accepts(&mut self, group: GroupId, state: StateId) -> bool {
        if self.topology.group(group).id.filter.is_all() {
            return true;
        }
        match self.look(group, state).standing {
            Standing::In => true,
            Standing::Out => false,
            Standing::Open => self.topology.group(group).is_hostname,
        }
    }

    pub(crate) fn look(&mut self, group: GroupId, state: StateId) -> Arc<Look> {
        if let Some(known) = self.filters.get(&(group, state)) {
            return known.clone();
        }
        let look = Arc::new(self.look_closely(group, state));
        self.filters.insert((group, state), look.clone());
        look
    }

    fn look_closely(&self, group: GroupId, state: StateId) -> Look {
        let filter = &self.topology.group(group).id.filter;
        let mut keeps = Requirements::new();
        if let Some(tolerations) = &filter.tolerations {
            // Taints are the pool's.
            self.keep_pool(state, &mut keeps);
            let data = self.states.get(state);
            let taints = &self.problem.pools[self.prepared.templates[data.template].pool].taints;
            if keeps_away(taints, tolerations) {
                return Look { standing: Standing::Out, keeps };
            }
        }
        let Some(terms) = &filter.terms else { return Look { standing: Standing::In, keeps } };
        let mut standing = Standing::Out;
        for term in terms {
            match self.standing_by(state, term) {
                Standing::In => {
                    keeps.extend(term);
                    return Look { standing: Standing::In, keeps };
                }
                Standing::Open => standing = Standing::Open,
                Standing::Out => {}
            }
        }
        if standing == Standing::Out {
            terms.iter().for_each(|term| self.keep_out(state, term, &mut keeps));
        }
        Look { standing, keeps }
    }

    pub(crate) fn standing_by(&self, state: StateId, term: &Requirements) -> Standing {
        let requirements = &self.states.get(state).requirements;
        if term.iter().all(|wanted| requirements.get(&wanted.key).is_some_and(|own| is_sure(own, wanted))) {
            return Standing::In;
        }
        if requirements.compatible(term, &self.problem.well_known).is_err() {
            return Standing::Out;
        }
        let (mut any_in, mut any_out) = (false, false);
        for launch in self.launches(state) {
            let labels = || term.iter().map(|wanted| (wanted, launch.label(&wanted.key)));
            if labels().all(|(wanted, own)| own.map_or(only_excludes(wanted), |own| is_sure(&own, wanted))) {
                any_in = true;
            } else if labels().any(|(wanted, own)| !may_be(own.as_ref(), wanted)) {
                any_out = true;
            } else {
                return Standing::Open;
            }
        }
        match (any_in, any_out) {
            (true, false) => Standing::In,
            (true, true) => Standing::Open,
            (false, _) => Standing::Out,
        }
    }

    /// What makes a node that a term rules out stay so.
    fn keep_out(&self, state: StateId, term: &Requirements, keeps: &mut Requirements) {
        let requirements = &self.states.get(state).requirements;
        let conflict = match requirements.compatible(term, &self.problem.well_known) {
            Err(Incompatible::Conflict { wanted, .. }) => Some(wanted),
            Err(Incompatible::Undefined { .. }) => None,
            Ok(()) => {
                let may = |wanted: &Requirement| {
                    self.launches(state).any(|launch| may_be(launch.label(&wanted.key).as_ref(), wanted))
                };
                term.iter().find(|wanted| !may(wanted)).cloned()
            }
        };
        match conflict.as_ref().and_then(opposite) {
            Some(opposite) => keeps.add(opposite),
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

    /// Every instance type and offering the node may become.
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

    /// Ways to make a node one that a spread looks at, or one that it does not; the former come first.
    pub(crate) fn ways_to_decide(&mut self, group: GroupId, state: StateId) -> Vec<StateId> {
        let terms = self.topology.group(group).id.filter.terms.clone().unwrap_or_default();
        let mut ways = Vec::new();
        for term in &terms {
            let added = self.states.intern(term);
            ways.extend(self.states.add(state, added));
        }
        ways.extend(terms.iter().try_fold(state, |state, term| self.without_term(state, term)));
        ways.retain(|way| self.look(group, *way).standing != Standing::Open);
        ways
    }

    /// The state narrowed to nodes that a term rules out.
    fn without_term(&mut self, state: StateId, term: &Requirements) -> Option<StateId> {
        if self.standing_by(state, term) == Standing::Out {
            return Some(state);
        }
        term.iter().filter_map(opposite).find_map(|opposite| {
            let added = self.states.intern(&[opposite].into_iter().collect());
            self.states.add(state, added).filter(|state| self.standing_by(*state, term) == Standing::Out)
        })
    }
}

/// What excludes exactly the values that are wanted, where that can be said.
fn opposite(wanted: &Requirement) -> Option<Requirement> {
    (wanted.operator() == Operator::In)
        .then(|| Requirement::new(wanted.key.clone(), Operator::NotIn, wanted.values.iter().cloned()))
}

fn only_excludes(wanted: &Requirement) -> bool {
    matches!(wanted.operator(), Operator::NotIn | Operator::DoesNotExist)
}

/// Whether every label that `own` allows is wanted.
fn is_sure(own: &Requirement, wanted: &Requirement) -> bool {
    match own.operator() {
        Operator::In => own.values.iter().all(|value| wanted.has(value)),
        Operator::DoesNotExist => only_excludes(wanted),
        _ => {
            let is_within = wanted.gte.is_none_or(|bound| own.gte.is_some_and(|own| own >= bound))
                && wanted.lte.is_none_or(|bound| own.lte.is_some_and(|own| own <= bound));
            wanted.complement && is_within && wanted.values.iter().all(|value| !own.has(value))
        }
    }
}

/// Whether some label that `own` allows is wanted; `None`: there is no label.
fn may_be(own: Option<&Requirement>, wanted: &Requirement) -> bool {
    match own {
        Some(own) if own.operator() != Operator::DoesNotExist => own.has_intersection(wanted),
        _ => only_excludes(wanted),
    }
}
