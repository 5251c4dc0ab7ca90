//! Required anti-affinity: no pod may share a domain with a pod that either its own terms or the terms of the other pod
//! exclude.
//!
//! Whichever of two such pods is bound second is rejected, so the order does not matter. Pairs of pods that are both
//! already bound are not reported, because the plan did not cause them.

use std::collections::BTreeMap;

use karpenter_model::pod::{PodAffinityTerm, PodSpec};
use rustc_hash::FxHashMap;

use super::super::contents::Contents;
use super::super::violation::Violation;
use super::sites::Sites;

pub(super) fn term_matches(term: &PodAffinityTerm, spec: &PodSpec) -> bool {
    term.namespaces.contains(&spec.namespace)
        && term.selector.as_ref().is_some_and(|selector| selector.matches(&spec.labels))
}

#[derive(Default)]
struct Tally {
    holders_planned: u64,
    holders_bound: u64,
    matches_planned: u64,
    matches_bound: u64,
    /// The number of planned pods that state the term and are selected by it.
    selves_planned: u64,
    /// A planned pod as the example in the message: its site (node), and its position among the pods of the site.
    example: Option<(usize, usize)>,
}

pub(super) fn check(contents: &Contents<'_>, sites: &Sites<'_>, violations: &mut Vec<Violation>) {
    let mut terms: Vec<&PodAffinityTerm> = Vec::new();
    let mut known: FxHashMap<&PodAffinityTerm, usize> = FxHashMap::default();
    let mut held: Vec<Vec<usize>> = Vec::with_capacity(contents.classes.len());
    for spec in &contents.classes {
        let mut of_class: Vec<usize> = spec
            .anti_affinity
            .iter()
            .map(|term| {
                *known.entry(term).or_insert_with(|| {
                    terms.push(term);
                    terms.len() - 1
                })
            })
            .collect();
        of_class.sort_unstable();
        of_class.dedup();
        held.push(of_class);
    }
    if terms.is_empty() {
        return;
    }
    let matched: Vec<Vec<usize>> = contents
        .classes
        .iter()
        .map(|spec| (0..terms.len()).filter(|index| term_matches(terms[*index], spec)).collect())
        .collect();
    let keys: Vec<usize> = terms.iter().map(|term| sites.key_index(&term.key)).collect();

    let mut tallies: BTreeMap<(usize, u32), Tally> = BTreeMap::new();
    for site in 0..sites.len() {
        if let Some(bound) = contents.bound.get(site) {
            for (class, terminating) in bound {
                if *terminating {
                    continue;
                }
                for term in &held[*class as usize] {
                    for domain in sites.domains[keys[*term]].possible(site) {
                        tallies.entry((*term, *domain)).or_default().holders_bound += 1;
                    }
                }
                for term in &matched[*class as usize] {
                    for domain in sites.domains[keys[*term]].possible(site) {
                        tallies.entry((*term, *domain)).or_default().matches_bound += 1;
                    }
                }
            }
        }
        for (position, share) in sites.shares[site].iter().enumerate() {
            let class = share.class as usize;
            let count = u64::from(share.count);
            for term in &held[class] {
                let is_self = matched[class].contains(term);
                for domain in sites.domains[keys[*term]].possible(site) {
                    let tally = tallies.entry((*term, *domain)).or_default();
                    tally.holders_planned += count;
                    tally.selves_planned += if is_self { count } else { 0 };
                    tally.example = Some((site, position));
                }
            }
            for term in &matched[class] {
                for domain in sites.domains[keys[*term]].possible(site) {
                    let tally = tallies.entry((*term, *domain)).or_default();
                    tally.matches_planned += count;
                    tally.example.get_or_insert((site, position));
                }
            }
        }
    }
    for ((term, domain), tally) in tallies {
        let pairs = tally.holders_planned * (tally.matches_planned + tally.matches_bound)
            + tally.holders_bound * tally.matches_planned;
        if pairs <= tally.selves_planned {
            continue;
        }
        let Some((site, position)) = tally.example else { continue };
        let term = terms[term];
        violations.push(Violation::AntiAffinityBroken {
            place: sites.places[site].clone(),
            pod: contents.pod_name(&sites.shares[site][position]),
            key: term.key.clone(),
            domain: sites.domains[sites.key_index(&term.key)].names[domain as usize].clone(),
            other: match &term.selector {
                Some(selector) => format!("a pod matching {selector}"),
                None => "another pod".to_owned(),
            },
        });
    }
}
