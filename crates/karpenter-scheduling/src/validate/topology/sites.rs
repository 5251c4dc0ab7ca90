//! Represents existing and planned nodes uniformly as sites, and records the domain of each site for every topology key
//! that a constraint names.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::Requirements;
use karpenter_model::spread_share::SpreadShare;
use karpenter_model::taints::{Taint, Toleration};
use rustc_hash::FxHashMap;

use super::super::claim_groups::ClaimGroups;
use super::super::contents::{Contents, Share};
use super::super::existing::blocking_taint;
use super::super::label_view::{ExistingView, Label, LabelView};
use super::super::violation::Place;

/// The domain of every site (node) for one topology key.
pub(super) struct KeyDomains {
    pub(super) names: Vec<Arc<str>>,
    /// For each site: its domain, for planned nodes that of the chosen offering.
    pub(super) of_site: Vec<Option<u32>>,
    /// For each site (node) whose NodeClaim leaves the key undecided: every allowed domain.
    pub(super) open: FxHashMap<usize, Vec<u32>>,
}

impl KeyDomains {
    /// Every domain in which the node of a site may be.
    pub(super) fn possible(&self, site: usize) -> &[u32] {
        match self.open.get(&site) {
            Some(domains) => domains,
            None => self.of_site[site].as_slice(),
        }
    }
}

/// Where the labels of a site (node) come from. Sites with equal sources have equal labels, except for the hostname.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Existing(usize),
    Planned {
        claim_group: usize,
        instance_type: usize,
        offering: usize,
    },
    /// A planned node whose NodePool, instance type or offering does not exist.
    Nowhere,
}

pub(super) struct Sites<'a> {
    problem: &'a Problem,
    claim_groups: &'a ClaimGroups<'a>,
    pub(super) places: Vec<Place>,
    sources: Vec<Source>,
    pub(super) keys: Vec<Arc<str>>,
    pub(super) domains: Vec<KeyDomains>,
    /// For each site (node): the pods that the plan places there.
    pub(super) shares: Vec<&'a [Share]>,
}

impl<'a> Sites<'a> {
    pub(super) fn build(
        problem: &'a Problem,
        plan: &Plan,
        contents: &'a Contents<'_>,
        claim_groups: &'a ClaimGroups<'a>,
    ) -> Self {
        let mut sources: Vec<Source> = (0..problem.nodes.len()).map(Source::Existing).collect();
        let mut places: Vec<Place> =
            problem.nodes.iter().map(|node| Place::Existing(node.name.clone())).collect();
        let mut shares: Vec<&[Share]> = contents.existing.iter().map(Vec::as_slice).collect();
        for (index, node) in plan.new_nodes.iter().enumerate() {
            places.push(Place::Planned(index));
            shares.push(&contents.planned[index]);
            sources.push(match claim_groups.of_node[index] {
                Some(claim_group) => Source::Planned {
                    claim_group,
                    instance_type: node.instance_type,
                    offering: node.offering,
                },
                None => Source::Nowhere,
            });
        }
        let keys: BTreeSet<Arc<str>> = contents
            .classes
            .iter()
            .flat_map(|spec| {
                let spread = spec.spread.iter().filter(|spread| spread.hard).map(|spread| &spread.key);
                let terms = spec.affinity.iter().chain(&spec.anti_affinity).map(|term| &term.key);
                spread.chain(terms).cloned()
            })
            .collect();
        let mut sites = Self {
            problem,
            claim_groups,
            places,
            sources,
            keys: keys.into_iter().collect(),
            domains: Vec::new(),
            shares,
        };
        sites.domains = sites.keys.iter().map(|key| sites.key_domains(key, plan)).collect();
        sites
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn key_index(&self, key: &str) -> usize {
        self.keys.partition_point(|known| **known < *key)
    }

    fn key_domains(&self, key: &Arc<str>, plan: &Plan) -> KeyDomains {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut by_name: FxHashMap<Arc<str>, u32> = FxHashMap::default();
        let mut intern = |name: Arc<str>| -> u32 {
            *by_name.entry(name.clone()).or_insert_with(|| {
                names.push(name);
                names.len() as u32 - 1
            })
        };
        let mut of_site = Vec::with_capacity(self.len());
        let mut open = FxHashMap::default();
        let mut memo: FxHashMap<(usize, &[usize]), Vec<Arc<str>>> = FxHashMap::default();
        for (site, source) in self.sources.iter().enumerate() {
            let domain = match *source {
                Source::Nowhere => None,
                Source::Existing(index) => {
                    let node = &self.problem.nodes[index];
                    match node.labels.get(key) {
                        Some(value) => Some(intern(value.clone())),
                        None if &**key == labels::HOSTNAME => Some(intern(node.hostname().clone())),
                        None => None,
                    }
                }
                Source::Planned { .. } if &**key == labels::HOSTNAME => {
                    // Hostnames of existing nodes contain no space, so this name never equals one.
                    Some(intern(self.places[site].to_string().into()))
                }
                Source::Planned { claim_group, instance_type, offering } => {
                    let frame_index = claim_group;
                    let claim_group = &self.claim_groups.claim_groups[claim_group];
                    let domain = match claim_group.view(instance_type, offering).label(key) {
                        Label::Value(value) => Some(Arc::from(value)),
                        Label::Open(requirement) => requirement.any_value(),
                        Label::Absent => None,
                    };
                    let pinned =
                        claim_group.claim.get(key).is_some_and(|claim| claim.single_value().is_some());
                    if !pinned {
                        let node = &plan.new_nodes[site - self.problem.nodes.len()];
                        let possible = memo
                            .entry((frame_index, node.instance_type_options.as_slice()))
                            .or_insert_with(|| {
                                let mut values = Vec::new();
                                for option in &node.instance_type_options {
                                    if *option < claim_group.catalog.len() {
                                        claim_group.possible_values(*option, key, &mut values);
                                    }
                                }
                                values.sort();
                                values
                            });
                        if possible.len() > 1 {
                            open.insert(site, possible.iter().cloned().map(&mut intern).collect());
                        }
                    }
                    domain.map(&mut intern)
                }
            };
            of_site.push(domain);
        }
        KeyDomains { names, of_site, open }
    }

    /// The sites (nodes) that a spread counts for a pod with these constraints, under the spread's policies.
    pub(super) fn included(
        &self,
        affinity: Option<(&Requirements, &[Requirements])>,
        tolerations: Option<&[Toleration]>,
    ) -> Vec<bool> {
        let affinity = affinity.filter(|(selector, terms)| !(selector.is_empty() && terms.is_empty()));
        if affinity.is_none() && tolerations.is_none() {
            return vec![true; self.len()];
        }
        let mut memo: FxHashMap<Source, bool> = FxHashMap::default();
        self.sources
            .iter()
            .map(|source| {
                *memo.entry(*source).or_insert_with(|| {
                    tolerations
                        .is_none_or(|tolerations| blocking_taint(self.taints(source), tolerations).is_none())
                        && affinity.is_none_or(|(selector, terms)| self.meets(source, selector, terms))
                })
            })
            .collect()
    }

    /// The share of a spread's pods that one site (node) may hold: that of its NodePool, or, if it has none, that of
    /// the options.
    pub(super) fn spread_share(&self, site: usize) -> SpreadShare {
        let pool = match self.sources[site] {
            Source::Existing(index) => {
                let name = self.problem.nodes[index].pool.as_ref();
                self.problem.pools.iter().find(|pool| Some(&pool.name) == name)
            }
            Source::Planned { claim_group, .. } => Some(self.claim_groups.claim_groups[claim_group].pool),
            Source::Nowhere => None,
        };
        let of_pool = pool.and_then(|pool| pool.hostname_spread_share);
        of_pool.unwrap_or(self.problem.options.hostname_spread_share)
    }

    fn taints(&self, source: &Source) -> &[Taint] {
        match *source {
            Source::Existing(index) => &self.problem.nodes[index].taints,
            Source::Planned { claim_group, .. } => &self.claim_groups.claim_groups[claim_group].pool.taints,
            Source::Nowhere => &[],
        }
    }

    fn meets(&self, source: &Source, selector: &Requirements, terms: &[Requirements]) -> bool {
        match *source {
            Source::Existing(index) => {
                let node = &self.problem.nodes[index];
                let view = ExistingView { labels: &node.labels, hostname: node.hostname() };
                view.meets(selector) && view.meets_any(terms)
            }
            Source::Planned { claim_group, instance_type, offering } => {
                let view = self.claim_groups.claim_groups[claim_group].view(instance_type, offering);
                view.meets(selector) && view.meets_any(terms)
            }
            Source::Nowhere => false,
        }
    }
}
