//! Distinct spread constraints and distinct lists of affinity terms, with the classes of pods that state them or that
//! they count.

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec};
use karpenter_model::requirements::Requirements;
use karpenter_model::selector::LabelSelector;
use karpenter_model::taints::Toleration;
use rustc_hash::FxHashMap;

use super::super::contents::Contents;
use super::super::violation::Violation;
use super::anti_affinity::term_matches;
use super::sites::Sites;

/// The properties that determine which pods and nodes a spread constraint counts; constraints with equal properties
/// share their counts.
#[derive(PartialEq, Eq, Hash)]
struct SpreadIdentity<'a> {
    key: &'a str,
    max_skew: u32,
    min_domains: Option<u32>,
    selector: Option<&'a LabelSelector>,
    namespace: &'a str,
    affinity: Option<(&'a Requirements, &'a [Requirements])>,
    tolerations: Option<&'a [Toleration]>,
    /// The label keys of all hard spreads of the pod. A spread counts only nodes that have all of these labels.
    hard_keys: Vec<usize>,
}

pub(super) struct SpreadGroup {
    pub(super) key: usize,
    pub(super) max_skew: u32,
    /// Whether the minimum is 0 because fewer domains exist than `minDomains` requires.
    pub(super) floor_is_zero: bool,
    /// For each site (node): whether the spread counts its pods and includes its domain in the minimum.
    pub(super) eligible: Vec<bool>,
    pub(super) eligible_domains: Vec<bool>,
    /// For each domain: the number of bound pods that the spread selects.
    pub(super) initial: Vec<u32>,
    /// For each hostname: the maximum number of selected pods, which is `maxSkew` or the spread share of all selected
    /// pods. Empty for other topology keys.
    pub(super) limits: Vec<u32>,
}

/// All required affinity terms of a pod. The affinity is met only by pods that match all of the terms.
pub(super) struct AffinityGroup {
    pub(super) keys: Vec<usize>,
    /// For each term and domain: the number of bound pods that match.
    pub(super) initial: Vec<Vec<u32>>,
}

#[derive(Default, Clone)]
pub(super) struct ClassTopology {
    /// The spread groups that pods of the class must satisfy, each with whether it counts these pods.
    pub(super) spreads: Vec<(usize, bool)>,
    pub(super) affinity: Option<(usize, bool)>,
    pub(super) counted_by_spread: Vec<usize>,
    pub(super) counted_by_affinity: Vec<usize>,
}

impl ClassTopology {
    pub(super) fn is_bound_by_rules(&self) -> bool {
        !self.spreads.is_empty() || self.affinity.is_some()
    }

    pub(super) fn is_relevant(&self) -> bool {
        self.is_bound_by_rules() || !self.counted_by_spread.is_empty() || !self.counted_by_affinity.is_empty()
    }
}

pub(super) struct Groups {
    pub(super) spreads: Vec<SpreadGroup>,
    pub(super) affinities: Vec<AffinityGroup>,
    pub(super) classes: Vec<ClassTopology>,
}

impl Groups {
    /// Builds the groups. Also reports pods on nodes that lack the topology label, or that leave the domain of a spread
    /// undecided.
    pub(super) fn build(contents: &Contents<'_>, sites: &Sites<'_>, violations: &mut Vec<Violation>) -> Self {
        let mut is_planned = vec![false; contents.classes.len()];
        for share in sites.shares.iter().flat_map(|shares| shares.iter()) {
            is_planned[share.class as usize] = true;
        }
        report_unusable_domains(contents, sites, violations);
        let mut classes = vec![ClassTopology::default(); contents.classes.len()];
        let mut counted = Counted::default();
        for (class, spec) in contents.classes.iter().enumerate() {
            if is_planned[class] {
                counted.add_class(spec, sites, &mut classes[class]);
            }
        }
        for (class, spec) in contents.classes.iter().enumerate() {
            let topology = &mut classes[class];
            for (group, (namespace, selector)) in counted.spread_subjects.iter().enumerate() {
                if spread_counts(namespace, *selector, spec) {
                    topology.counted_by_spread.push(group);
                }
            }
            for (group, terms) in counted.affinity_subjects.iter().enumerate() {
                if terms.iter().all(|term| term_matches(term, spec)) {
                    topology.counted_by_affinity.push(group);
                }
            }
        }
        let Counted { mut spreads, mut affinities, .. } = counted;
        for (site, bound) in contents.bound.iter().enumerate() {
            for (class, terminating) in bound {
                if *terminating {
                    continue;
                }
                let topology = &classes[*class as usize];
                for group in &topology.counted_by_spread {
                    let group = &mut spreads[*group];
                    if let Some(domain) = sites.domains[group.key].of_site[site]
                        && group.eligible[site]
                    {
                        group.initial[domain as usize] += 1;
                    }
                }
                for group in &topology.counted_by_affinity {
                    let group = &mut affinities[*group];
                    for (key, counts) in group.keys.iter().zip(&mut group.initial) {
                        if let Some(domain) = sites.domains[*key].of_site[site] {
                            counts[domain as usize] += 1;
                        }
                    }
                }
            }
        }
        limit_hosts(&mut spreads, &classes, sites);
        Self { spreads, affinities, classes }
    }
}

/// For each hostname spread: counts its bound and planned pods, and computes the limit of every node from their number.
fn limit_hosts(spreads: &mut [SpreadGroup], classes: &[ClassTopology], sites: &Sites<'_>) {
    let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    let mut counted: Vec<u64> = spreads.iter().map(|group| sum(&group.initial)).collect();
    for site in 0..sites.len() {
        for share in sites.shares[site] {
            for group in &classes[share.class as usize].counted_by_spread {
                let SpreadGroup { key, eligible, .. } = &spreads[*group];
                if eligible[site] && sites.domains[*key].of_site[site].is_some() {
                    counted[*group] += u64::from(share.count);
                }
            }
        }
    }
    for (group, counted) in spreads.iter_mut().zip(counted) {
        if &*sites.keys[group.key] != labels::HOSTNAME {
            continue;
        }
        group.limits = vec![group.max_skew; group.initial.len()];
        for (site, domain) in sites.domains[group.key].of_site.iter().enumerate() {
            let Some(domain) = domain else { continue };
            // The share is rounded up: 10 % of 15 pods are 2.
            let hundredths = counted * u64::from(sites.spread_share(site).percent());
            let share = hundredths / 100 + u64::from(hundredths % 100 > 0);
            let limit = &mut group.limits[*domain as usize];
            *limit = (*limit).max(u32::try_from(share).unwrap_or(u32::MAX));
        }
    }
}

fn spread_counts(namespace: &Arc<str>, selector: Option<&LabelSelector>, spec: &PodSpec) -> bool {
    spec.namespace == *namespace && selector.is_some_and(|selector| selector.matches(&spec.labels))
}

#[derive(Default)]
struct Counted<'a> {
    spreads: Vec<SpreadGroup>,
    spread_subjects: Vec<(&'a Arc<str>, Option<&'a LabelSelector>)>,
    spread_known: FxHashMap<SpreadIdentity<'a>, usize>,
    affinities: Vec<AffinityGroup>,
    affinity_subjects: Vec<&'a [PodAffinityTerm]>,
    affinity_known: FxHashMap<&'a [PodAffinityTerm], usize>,
}

impl<'a> Counted<'a> {
    fn add_class(&mut self, spec: &'a PodSpec, sites: &Sites<'_>, topology: &mut ClassTopology) {
        let mut hard_keys: Vec<usize> = spec
            .spread
            .iter()
            .filter(|spread| spread.hard)
            .map(|spread| sites.key_index(&spread.key))
            .collect();
        hard_keys.sort_unstable();
        hard_keys.dedup();
        for spread in spec.spread.iter().filter(|spread| spread.hard) {
            let identity = SpreadIdentity {
                key: &spread.key,
                max_skew: spread.max_skew,
                min_domains: spread.min_domains,
                selector: spread.selector.as_ref(),
                namespace: &spec.namespace,
                affinity: spread
                    .honor_affinity
                    .then_some((&spec.node_selector, spec.required_terms.as_slice())),
                tolerations: spread.honor_taints.then_some(spec.tolerations.as_slice()),
                hard_keys: hard_keys.clone(),
            };
            let group = match self.spread_known.get(&identity) {
                Some(group) => *group,
                None => {
                    self.spreads.push(spread_group(&identity, sites));
                    self.spread_subjects.push((&spec.namespace, spread.selector.as_ref()));
                    self.spread_known.insert(identity, self.spreads.len() - 1);
                    self.spreads.len() - 1
                }
            };
            let counts_itself = spread_counts(&spec.namespace, spread.selector.as_ref(), spec);
            topology.spreads.push((group, counts_itself));
        }
        if spec.affinity.is_empty() {
            return;
        }
        let group = *self.affinity_known.entry(&spec.affinity).or_insert_with(|| {
            let keys: Vec<usize> = spec.affinity.iter().map(|term| sites.key_index(&term.key)).collect();
            let initial = keys.iter().map(|key| vec![0; sites.domains[*key].names.len()]).collect();
            self.affinities.push(AffinityGroup { keys, initial });
            self.affinity_subjects.push(&spec.affinity);
            self.affinities.len() - 1
        });
        let matches_itself = spec.affinity.iter().all(|term| term_matches(term, spec));
        topology.affinity = Some((group, matches_itself));
    }
}

fn spread_group(identity: &SpreadIdentity<'_>, sites: &Sites<'_>) -> SpreadGroup {
    let key = sites.key_index(identity.key);
    let mut eligible = sites.included(identity.affinity, identity.tolerations);
    for (site, eligible) in eligible.iter_mut().enumerate() {
        *eligible &= identity.hard_keys.iter().all(|key| sites.domains[*key].of_site[site].is_some());
    }
    let domains = &sites.domains[key];
    let mut eligible_domains = vec![false; domains.names.len()];
    for (site, domain) in domains.of_site.iter().enumerate() {
        if let Some(domain) = domain
            && eligible[site]
        {
            eligible_domains[*domain as usize] = true;
        }
    }
    let present = eligible_domains.iter().filter(|eligible| **eligible).count() as u32;
    SpreadGroup {
        key,
        max_skew: identity.max_skew,
        floor_is_zero: present == 0 || identity.min_domains.is_some_and(|wanted| present < wanted),
        eligible,
        initial: vec![0; eligible_domains.len()],
        eligible_domains,
        limits: Vec::new(),
    }
}

fn report_unusable_domains(contents: &Contents<'_>, sites: &Sites<'_>, violations: &mut Vec<Violation>) {
    for site in 0..sites.len() {
        for share in sites.shares[site] {
            let spec = contents.classes[share.class as usize];
            let place = || sites.places[site].clone();
            let spread_keys =
                spec.spread.iter().filter(|spread| spread.hard).map(|spread| (&spread.key, true));
            let affinity_keys = spec.affinity.iter().map(|term| (&term.key, false));
            for (key, is_spread) in spread_keys.chain(affinity_keys) {
                let domains = &sites.domains[sites.key_index(key)];
                if domains.of_site[site].is_none() {
                    violations.push(Violation::TopologyKeyMissing {
                        place: place(),
                        pod: contents.pod_name(share),
                        key: key.clone(),
                    });
                } else if let Some(open) = domains.open.get(&site)
                    && is_spread
                {
                    violations.push(Violation::DomainOpen {
                        place: place(),
                        pod: contents.pod_name(share),
                        key: key.clone(),
                        domains: open.iter().map(|domain| domains.names[*domain as usize].clone()).collect(),
                    });
                }
            }
        }
    }
}
