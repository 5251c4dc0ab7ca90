//! Decides whether one more pod fits on a planned node, and how many copies of the pod fit.

use karpenter_model::pod::HostPort;
use karpenter_model::resources::ResourceList;
use smallvec::SmallVec;

use super::{Claim, Fit, Ledger};
use crate::bits::Bits;
use crate::classes::Owned;
use crate::reservations::ReservationFull;
use crate::states::{StateId, StateType};
use crate::templates::Amounts;
use crate::topology::{Kind, Slot, node_terms};

impl Ledger {
    /// Checks whether one more pod of a variant of a pod class fits on a planned node.
    pub(crate) fn fit_claim(&mut self, variant: usize, claim: usize) -> Option<Fit> {
        let state = self.claims[claim].state;
        let template = self.states.get(state).template;
        if !self.classes.variants[variant].tolerated.contains(template) {
            return None;
        }
        let slot = self.claim_slot(claim);
        let total = self.total_with(variant, Some(claim));
        if !self.host_allows(variant, slot) || !self.ports_allow(variant, claim) {
            return None;
        }
        self.fit_in_state(variant, Some(claim), state, &total)
    }

    /// Checks whether a pod of a variant of a pod class fits on a new node of a NodePool template, within the remaining
    /// limits of the NodePool.
    pub(crate) fn fit_new(&mut self, variant: usize, template: usize) -> Option<Fit> {
        self.slots.reservation_was_full = false;
        if !self.classes.variants[variant].tolerated.contains(template)
            || self.nodes_left[template].is_some_and(|n| n <= 0)
        {
            return None;
        }
        let state = self.states.base(template)?;
        let slot = self.claim_slot(self.claims.len());
        if !self.host_allows(variant, slot) {
            return None;
        }
        let total = self.total_with(variant, None);
        self.fit_in_state(variant, None, state, &total)
    }

    fn fit_in_state(
        &mut self,
        variant: usize,
        claim: Option<usize>,
        state: StateId,
        total: &Amounts,
    ) -> Option<Fit> {
        // Resources are checked first, because that is the cheapest check and the most frequent obstacle.
        if !self.any_maximal_holds(state, total) {
            return None;
        }
        let state = self.states.add(state, self.classes.variants[variant].added)?;
        for position in 0..self.classes.variants[variant].alternatives.len() {
            let alternative = self.classes.variants[variant].alternatives[position];
            let Some(state) = self.states.add(state, alternative) else { continue };
            let found = self.narrow_by_topology(variant, state, 0, &mut |ledger, state| match ledger
                .witness(variant, claim, state, total)
            {
                Witness::Holds { index, relaxed_min_values } => Some((index, relaxed_min_values)),
                Witness::None => None,
                Witness::ReservationFull => {
                    ledger.slots.reservation_was_full = true;
                    None
                }
            });
            if let Some((state, (witness, relaxed_min_values))) = found {
                return Some(Fit { state, alternative: position as u8, witness, relaxed_min_values });
            }
        }
        None
    }

    /// For each zone-like key that constrains a variant of a pod class, tries domains in order of preference; returns
    /// the result for the first requirement state that `accept` accepts.
    fn narrow_by_topology<T>(
        &mut self,
        variant: usize,
        state: StateId,
        from_key: usize,
        accept: &mut dyn FnMut(&mut Self, StateId) -> Option<T>,
    ) -> Option<(StateId, T)> {
        let data = &self.classes.variants[variant];
        let bound = |key: usize| {
            data.owned.iter().any(|owned| !owned.is_hostname && owned.key == key)
                || data.repelled_by.iter().any(|group| self.topology.group(*group).id.key == key)
        };
        let Some(key) = (from_key..self.topology.keys.len()).find(|key| bound(*key)) else {
            return accept(self, state).map(|found| (state, found));
        };
        let possible = self.domains(state, key);
        let allowed = self.allowed_domains(variant, key, &possible);
        let choice = self.rank_domains(variant, key, allowed);
        let name = self.topology.keys[key].clone();
        match choice {
            Choice::One(domains) => domains.into_iter().find_map(|domain| {
                let value = self.topology.domains[key][domain].clone();
                let narrowed = if possible.single() == Some(domain) {
                    Some(state)
                } else {
                    self.states.narrow(state, &name, [&value])
                };
                self.narrow_by_topology(variant, narrowed?, key + 1, accept)
            }),
            Choice::AnyOf(domains) if domains.is_empty() => None,
            Choice::AnyOf(domains) if domains == possible => {
                self.narrow_by_topology(variant, state, key + 1, accept)
            }
            Choice::AnyOf(domains) => {
                let values: Vec<_> =
                    domains.iter().map(|domain| self.topology.domains[key][domain].clone()).collect();
                let narrowed = self.states.narrow(state, &name, values.iter())?;
                self.narrow_by_topology(variant, narrowed, key + 1, accept)
            }
        }
    }

    /// The domains of a key in which every constraint of a variant of a pod class holds.
    pub(crate) fn allowed_domains(&self, variant: usize, key: usize, possible: &Bits) -> Bits {
        let data = &self.classes.variants[variant];
        let mut allowed = possible.clone();
        let mut keep = |test: &dyn Fn(usize) -> bool| {
            let mut kept = Bits::empty(self.topology.domains[key].len());
            allowed.iter().filter(|domain| test(*domain)).for_each(|domain| kept.insert(domain));
            allowed = kept;
        };
        for owned in data.owned.iter().filter(|owned| !owned.is_hostname && owned.key == key) {
            let group = self.topology.group(owned.group);
            match owned.kind {
                Kind::Spread { max_skew, .. } => {
                    let minimum = if data.is_last_resort {
                        self.topology
                            .spread_minimum(owned.group, &self.allowed_domains_with_nodes(variant, owned))
                    } else {
                        self.topology.spread_minimum(owned.group, &owned.pod_allows)
                    };
                    let own = u32::from(owned.selects_itself);
                    let holds = |domain: usize| {
                        self.topology.counts(owned.group, domain)
                            && (group.matched[domain] + own).saturating_sub(minimum) <= max_skew
                    };
                    let is_vacated = |domain: usize| group.vacated[domain] > 0 && holds(domain);
                    if self.only_vacated_domains && (0..group.vacated.len()).any(is_vacated) {
                        keep(&is_vacated);
                    } else {
                        keep(&holds);
                    }
                }
                Kind::Affinity => {
                    if !self.may_choose_first_domain(owned) {
                        keep(&|domain| group.matched[domain] > 0);
                    }
                }
                Kind::AntiAffinity => keep(&|domain| group.matched[domain] == 0),
            }
        }
        for id in &data.repelled_by {
            let group = self.topology.group(*id);
            if group.id.key == key {
                keep(&|domain| group.owners[domain] == 0);
            }
        }
        allowed
    }

    /// The domains that the required term of this variant of the pod allows, plus domains that other required terms of
    /// the pod allow and in which a node is planned.
    fn allowed_domains_with_nodes(&self, variant: usize, owned: &Owned) -> Bits {
        let mut allows = owned.pod_allows.clone();
        let (name, domains) = (&self.topology.keys[owned.key], &self.topology.domains[owned.key]);
        let terms = node_terms(&self.classes.classes[self.classes.variants[variant].class].spec);
        for claim in &self.claims {
            let requirements = &self.states.get(claim.state).requirements;
            if let Some(domain) = requirements.get(name).and_then(|requirement| requirement.single_value())
                && let Ok(position) = domains.binary_search(domain)
                && owned.other_terms_allow.contains(position)
                && terms.iter().any(|term| requirements.intersects(term))
            {
                allows.insert(position);
            }
        }
        allows
    }

    /// Whether a simulation removed pods that a spread of a variant of a pod class counts, and their domains do not
    /// have as many pods again.
    pub(crate) fn has_vacated_domains(&self, variant: usize) -> bool {
        let mut spreads = self.classes.variants[variant]
            .owned
            .iter()
            .filter(|owned| !owned.is_hostname && matches!(owned.kind, Kind::Spread { .. }));
        spreads.any(|owned| self.topology.group(owned.group).vacated.iter().any(|count| *count > 0))
    }

    /// Whether the pod is the first of an affinity that selects the pod itself; such a pod may choose its domain
    /// freely.
    fn may_choose_first_domain(&self, owned: &Owned) -> bool {
        let group = self.topology.group(owned.group);
        owned.selects_itself && group.matched_total == 0
    }

    fn rank_domains(&self, variant: usize, key: usize, allowed: Bits) -> Choice {
        let data = &self.classes.variants[variant];
        let of_key = || data.owned.iter().filter(move |owned| !owned.is_hostname && owned.key == key);
        if let Some(spread) = of_key().find(|owned| matches!(owned.kind, Kind::Spread { .. })) {
            let counts = &self.topology.group(spread.group).matched;
            let mut domains: SmallVec<[usize; 4]> = allowed.iter().collect();
            domains.sort_by_key(|domain| (counts[*domain], *domain));
            return Choice::One(domains);
        }
        if of_key().any(|owned| owned.kind == Kind::Affinity && self.may_choose_first_domain(owned)) {
            return Choice::One(allowed.iter().collect());
        }
        Choice::AnyOf(allowed)
    }

    /// Whether the hostname constraints allow one more copy of a variant of a pod class on a node.
    pub(crate) fn host_allows(&self, variant: usize, slot: Slot) -> bool {
        self.host_copies(variant, slot) > 0
    }

    /// How many copies of the variant the hostname constraints allow on a node.
    pub(crate) fn host_copies(&self, variant: usize, slot: Slot) -> u32 {
        let data = &self.classes.variants[variant];
        let mut copies = u32::MAX;
        for owned in data.owned.iter().filter(|owned| owned.is_hostname) {
            let present = self.topology.on_host(owned.group, slot);
            let here = match (owned.kind, owned.selects_itself) {
                (Kind::Spread { max_skew, .. }, true) => max_skew.saturating_sub(present),
                (Kind::Spread { max_skew, .. }, false) => u32::from(present <= max_skew) * u32::MAX,
                (Kind::AntiAffinity, own) => match (present, own) {
                    (0, true) => 1,
                    (0, false) => u32::MAX,
                    _ => 0,
                },
                (Kind::Affinity, own) => {
                    let first = own && self.topology.group(owned.group).matched_total == 0;
                    u32::from(present > 0 || first) * u32::MAX
                }
            };
            copies = copies.min(here);
        }
        if data.repelled_by_on_host.iter().any(|group| self.topology.owners_on_host(*group, slot) > 0) {
            return 0;
        }
        copies
    }

    fn ports_allow(&self, variant: usize, claim: usize) -> bool {
        let wanted = &self.classes.variants[variant].spec.host_ports;
        wanted.is_empty()
            || self.claims[claim].content.iter().all(|(other, _, _)| {
                !any_conflict(wanted.iter(), self.classes.variants[*other].spec.host_ports.iter())
            })
    }

    pub(super) fn total_with(&self, variant: usize, claim: Option<usize>) -> Amounts {
        let requests = &self.classes.variants[variant].requests;
        match claim {
            Some(claim) => self.claims[claim]
                .used
                .iter()
                .zip(requests)
                .map(|(used, more)| used.saturating_add(*more))
                .collect(),
            None => requests.clone(),
        }
    }

    fn any_maximal_holds(&self, state: StateId, total: &Amounts) -> bool {
        let state = self.states.get(state);
        let types = &self.prepared.templates[state.template].types;
        state.maximal.iter().any(|index| holds(&types[*index].free, total))
    }

    /// Finds an instance type of the requirement state that holds `total`, and whether `minValues` had to be lowered
    /// for this.
    fn witness(&self, variant: usize, claim: Option<usize>, state: StateId, total: &Amounts) -> Witness {
        let data = self.states.get(state);
        let template = data.template;
        let held = claim.map_or(&[][..], |claim| &self.claims[claim].reservations);
        let may_matter = !data.reserved.is_empty() || !held.is_empty();
        if (!may_matter || self.cannot_use_reservations(held))
            && !self.needs_full_scan(variant, claim, template)
        {
            let types = &self.prepared.templates[template].types;
            let largest = if data.reserved.is_empty() { &data.maximal } else { &data.maximal_unreserved };
            return match largest.iter().find(|index| holds(&types[**index].free, total)) {
                Some(index) => Witness::Holds { index: *index, relaxed_min_values: false },
                None if data.reserved.is_empty() || !self.any_maximal_holds(state, total) => Witness::None,
                None => Witness::ReservationFull,
            };
        }
        let mut survivors = self.survivors(variant, claim, state, total);
        if survivors.is_empty() {
            return Witness::None;
        }
        if may_matter {
            match self.reservations_for(state, &survivors, held) {
                Ok(held) => survivors = self.usable(state, &survivors, &held),
                Err(ReservationFull) => return Witness::ReservationFull,
            }
        }
        let Some(first) = survivors.first().map(|entry| entry.index) else { return Witness::None };
        let lowered = claim.map_or(&[][..], |claim| &self.claims[claim].lowered_min_values);
        if !self.prepared.templates[template].has_min_values
            || self.min_values_short(state, &survivors, lowered).next().is_none()
        {
            return Witness::Holds { index: first, relaxed_min_values: false };
        }
        // A planned node keeps meeting the `minValues` that it meets; only a new node may start with lowered
        // `minValues`.
        if self.may_relax_min_values() && claim.is_none() {
            return Witness::Holds { index: first, relaxed_min_values: true };
        }
        Witness::None
    }

    /// Whether a planned node that holds no reservation would hold one after one more pod was added.
    fn takes_slots(&self, variant: usize, claim: Option<usize>, state: StateId) -> bool {
        let held = claim.map_or(&[][..], |claim| &self.claims[claim].reservations);
        if !held.is_empty() || self.cannot_use_reservations(held) {
            return false;
        }
        let survivors = self.survivors(variant, claim, state, &self.total_with(variant, claim));
        self.reservations_for(state, &survivors, held).is_ok_and(|held| !held.is_empty())
    }

    fn needs_full_scan(&self, variant: usize, claim: Option<usize>, template: usize) -> bool {
        let data = &self.prepared.templates[template];
        data.has_min_values
            || !self.classes.variants[variant].spec.host_ports.is_empty()
            || !self.classes.variants[variant].spec.volumes.attachments.is_empty()
            || match claim {
                Some(claim) => {
                    self.claims[claim].limit.is_some()
                        || self.claims[claim].content.iter().any(|(other, _, _)| {
                            let spec = &self.classes.variants[*other].spec;
                            !spec.host_ports.is_empty() || !spec.volumes.attachments.is_empty()
                        })
                }
                None => !data.limited.is_empty(),
            }
    }

    /// All instance types of a requirement state that hold `total` and respect NodePool limits, host ports and volume
    /// attachments. Reservations are not checked.
    pub(crate) fn survivors(
        &self,
        variant: usize,
        claim: Option<usize>,
        state: StateId,
        total: &Amounts,
    ) -> Vec<StateType> {
        let limit: Option<&[i64]> = match claim {
            Some(claim) => self.claims[claim].limit.as_deref(),
            None => Some(&self.limits_left[self.states.get(state).template]),
        };
        let content = claim.map_or(&[][..], |claim| &self.claims[claim].content[..]);
        let variants: Vec<usize> = content.iter().map(|(v, _, _)| *v).chain([variant]).collect();
        self.holding(state, total, limit, &variants)
    }

    /// All instance types that hold the pods of a planned node and can launch into the reservations that it holds.
    pub(crate) fn survivors_of(&self, claim: &Claim) -> Vec<StateType> {
        let types = self.holding_of(claim);
        if self.states.get(claim.state).reserved.is_empty() {
            return types;
        }
        self.usable(claim.state, &types, &claim.reservations)
    }

    /// All instance types that hold the pods of a planned node, with or without its reservations.
    pub(crate) fn holding_of(&self, claim: &Claim) -> Vec<StateType> {
        let variants: Vec<usize> = claim.content.iter().map(|(v, _, _)| *v).collect();
        self.holding(claim.state, &claim.used, claim.limit.as_deref(), &variants)
    }

    /// The lowest price at which a planned node can be launched.
    pub(crate) fn cheapest_price(&self, claim: &Claim) -> Option<f64> {
        self.cheapest(claim).map(|entry| entry.price)
    }

    pub(crate) fn cheapest_type(&self, claim: &Claim) -> Option<usize> {
        self.cheapest(claim).map(|entry| entry.index)
    }

    fn cheapest(&self, claim: &Claim) -> Option<StateType> {
        self.survivors_of(claim)
            .into_iter()
            .min_by(|a, b| a.price.total_cmp(&b.price).then(a.index.cmp(&b.index)))
    }

    fn holding(
        &self,
        state: StateId,
        total: &Amounts,
        limit: Option<&[i64]>,
        variants: &[usize],
    ) -> Vec<StateType> {
        let data = self.states.get(state);
        let template = &self.prepared.templates[data.template];
        let attachments = self.attachments(variants.iter().copied());
        data.types
            .iter()
            .filter(|entry| {
                let of_type = &template.types[entry.index];
                holds(&of_type.free, total)
                    && limit
                        .is_none_or(|limit| of_type.limited_capacity.iter().zip(limit).all(|(c, l)| c <= l))
                    && (of_type.daemon_ports.is_empty()
                        || variants.iter().all(|other| {
                            !any_conflict(
                                of_type.daemon_ports.iter(),
                                self.classes.variants[*other].spec.host_ports.iter(),
                            )
                        }))
                    && attachments.iter().all(|(driver, count)| {
                        let limits =
                            &self.states.instance_type(data.template, entry.index).volume_attachment_limits;
                        limits.get(&**driver).is_none_or(|limit| *count as u32 <= *limit)
                    })
            })
            .copied()
            .collect()
    }

    /// The number of distinct volumes that the pods of some variants of pod classes attach, per CSI driver.
    pub(crate) fn attachments(
        &self,
        variants: impl Iterator<Item = usize>,
    ) -> Vec<(std::sync::Arc<str>, usize)> {
        let mut all = std::collections::BTreeSet::new();
        for variant in variants {
            all.extend(self.classes.variants[variant].spec.volumes.attachments.iter().cloned());
        }
        let mut counts: Vec<(std::sync::Arc<str>, usize)> = Vec::new();
        for (driver, _) in all {
            match counts.last_mut() {
                Some((last, count)) if *last == driver => *count += 1,
                _ => counts.push((driver, 1)),
            }
        }
        counts
    }

    /// How many copies of a bulk variant fit on a planned node for which `fit` was computed; at least one.
    pub(crate) fn copies_on_claim(&self, variant: usize, claim: Option<usize>, fit: Fit, slot: Slot) -> u32 {
        let data = &self.classes.variants[variant];
        let state = self.states.get(fit.state);
        // Only the first pod of a new node may lower `minValues`.
        if !data.is_bulk || fit.relaxed_min_values {
            return 1;
        }
        let types = &self.prepared.templates[state.template].types;
        let none: Amounts = SmallVec::from_elem(0, data.requests.len());
        let used = claim.map_or(&none, |claim| &self.claims[claim].used);
        let by_room =
            state.maximal.iter().map(|index| copies(&types[*index].free, used, &data.requests)).max();
        let most = by_room.unwrap_or(1).min(self.host_copies(variant, slot)).max(1);
        if state.reserved.is_empty() {
            if !self.needs_full_scan(variant, claim, state.template) {
                return most;
            }
        } else if self.takes_slots(variant, claim, fit.state) {
            // A further pod could make the node lose its reservation, which must not happen, so further pods are placed
            // one by one.
            return 1;
        }
        // With more copies, fewer instance types remain. So if some number of copies fits, every smaller number fits as
        // well, and a binary search finds the maximum.
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let total: Amounts = used
                .iter()
                .zip(&data.requests)
                .map(|(used, one)| used.saturating_add(one.saturating_mul(i64::from(middle))))
                .collect();
            match self.witness(variant, claim, fit.state, &total) {
                Witness::Holds { relaxed_min_values: false, .. } => low = middle,
                _ => high = middle - 1,
            }
        }
        low
    }

    /// Counts a new node towards the limits of its NodePool, as if it were the largest instance type that it may launch
    /// as.
    pub(crate) fn charge_limits(&mut self, claim: usize) {
        let state = self.claims[claim].state;
        let template = self.states.get(state).template;
        if self.prepared.templates[template].limited.is_empty() {
            return;
        }
        let left = self.limits_left[template].clone();
        let types = &self.prepared.templates[template].types;
        let fitting = |index: usize| {
            holds(&types[index].free, &self.claims[claim].used)
                && types[index].limited_capacity.iter().zip(&left).all(|(capacity, left)| capacity <= left)
        };
        let mut most: SmallVec<[i64; 2]> = SmallVec::from_elem(0, left.len());
        let mut binding = false;
        for entry in &self.states.get(state).types {
            if !fitting(entry.index) {
                binding |= holds(&types[entry.index].free, &self.claims[claim].used);
                continue;
            }
            for (most, capacity) in most.iter_mut().zip(&types[entry.index].limited_capacity) {
                *most = (*most).max(*capacity);
            }
        }
        if binding {
            self.claims[claim].limit = Some(left);
        }
        for (left, most) in self.limits_left[template].iter_mut().zip(most) {
            *left -= most;
        }
        self.update_reservations(claim);
    }

    pub(crate) fn list(&self, amounts: &[i64]) -> ResourceList {
        self.prepared.dimensions.list(amounts)
    }
}

/// The result of searching for an instance type that holds a total of requests.
enum Witness {
    Holds {
        index: usize,
        relaxed_min_values: bool,
    },
    None,
    /// Instance types hold the total, but only in reservations that have no free slot.
    ReservationFull,
}

enum Choice {
    /// The node must be in exactly one of these domains, which are in order of preference.
    One(SmallVec<[usize; 4]>),
    /// The node may launch in any of these domains.
    AnyOf(Bits),
}

pub(crate) fn holds(free: &[i64], total: &[i64]) -> bool {
    free.iter().zip(total).all(|(free, total)| total <= free)
}

pub(crate) fn copies(free: &[i64], used: &[i64], requests: &[i64]) -> u32 {
    let mut copies = u32::MAX;
    for ((free, used), request) in free.iter().zip(used).zip(requests) {
        if *request > 0 {
            let room = free.saturating_sub(*used).max(0) / request;
            copies = copies.min(u32::try_from(room).unwrap_or(u32::MAX));
        } else if used > free {
            return 0;
        }
    }
    copies
}

pub(crate) fn any_conflict<'a>(
    a: impl Iterator<Item = &'a HostPort>,
    b: impl Iterator<Item = &'a HostPort> + Clone,
) -> bool {
    let mut a = a;
    a.any(|a| b.clone().any(|b| a.conflicts_with(b)))
}
