//! Tables over all nodes that pods of one workload share: results per placement, topology domains per label, matching
//! pods per node and selector.
//!
//! A table is built when a pod first needs it, updated as nodes and pods change, and dropped after many other tables
//! were used. Tables are caches and can be rebuilt at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use karpenter_model::selector::{LabelSelector, Labels};

use super::node::{NodeFacts, Verdict};
use super::pod::{AffinityTerm, Placement, PodInfo};

/// The index of a node in all tables. An index is reused after its node is gone.
pub(super) type NodeIndex = usize;
/// A value of a topology label.
pub(super) type Domain = u32;
pub(super) const NO_DOMAIN: Domain = Domain::MAX;

/// Maximum number of entries of one kind of table.
const ENTRIES_MAX: usize = 4_000_000;
const TABLES_MIN: usize = 16;

/// A cache of tables that drops the least recently used ones.
#[derive(Debug)]
pub(super) struct RecentTables<K, V> {
    tables: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for RecentTables<K, V> {
    fn default() -> Self {
        Self { tables: HashMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> RecentTables<K, V> {
    /// Marks the table as used, builds it if it is missing, and drops the least recently used tables if there are too
    /// many.
    pub(super) fn ensure(&mut self, key: &K, nodes: usize, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        let clock = self.clock;
        if !self.tables.contains_key(key) {
            let limit = (ENTRIES_MAX / nodes.max(1)).clamp(TABLES_MIN, 1024);
            while self.tables.len() >= limit {
                let oldest = self.tables.iter().min_by_key(|(_, (used, _))| *used);
                let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
                self.tables.remove(&oldest);
            }
        }
        let entry = self.tables.entry(key.clone()).or_insert_with(|| (clock, make()));
        entry.0 = clock;
        &mut entry.1
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.tables.get(key).map(|(_, table)| table)
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.tables.iter_mut().map(|(key, (_, table))| (key, table))
    }
}

/// The domain of each node for one topology label.
#[derive(Debug, Default, Clone)]
pub(super) struct Column {
    domain_of: Vec<Domain>,
    ids: HashMap<Arc<str>, Domain>,
}

impl Column {
    pub(super) fn set(&mut self, node: NodeIndex, value: Option<&Arc<str>>) {
        if self.domain_of.len() <= node {
            self.domain_of.resize(node + 1, NO_DOMAIN);
        }
        let next = Domain::try_from(self.ids.len()).unwrap_or(NO_DOMAIN);
        self.domain_of[node] = match value {
            Some(value) => *self.ids.entry(value.clone()).or_insert(next),
            None => NO_DOMAIN,
        };
    }

    pub(super) fn domain(&self, node: NodeIndex) -> Option<Domain> {
        self.domain_of.get(node).copied().filter(|domain| *domain != NO_DOMAIN)
    }

    /// One more than the largest number of a domain.
    pub(super) fn domains(&self) -> usize {
        self.ids.len()
    }
}

pub(super) type Columns = BTreeMap<Arc<str>, Column>;

/// The namespaces of a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Namespaces {
    All,
    Named(BTreeSet<Arc<str>>),
}

/// Matches pods that satisfy all terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PodQuery {
    pub(super) terms: Vec<(Namespaces, LabelSelector)>,
    pub(super) without_deleting: bool,
}

impl PodQuery {
    /// Pods of one namespace that are not terminating, as topology spread counts them.
    pub(super) fn spread(namespace: &str, selector: &LabelSelector) -> Self {
        let namespaces = Namespaces::Named([Arc::from(namespace)].into());
        Self { terms: vec![(namespaces, selector.clone())], without_deleting: true }
    }

    /// The query for pods that match all affinity terms; `None` if no pod can match.
    pub(super) fn affinity<'a>(
        terms: impl Iterator<Item = &'a AffinityTerm>,
        namespaces: &NamespaceLabels,
    ) -> Option<Self> {
        let terms = terms
            .map(|term| Some((resolve(term, namespaces), term.selector.clone()?)))
            .collect::<Option<Vec<_>>>()?;
        (!terms.is_empty()).then_some(Self { terms, without_deleting: false })
    }

    pub(super) fn matches(&self, pod: &PodInfo) -> bool {
        let in_namespace = |namespaces: &Namespaces| match namespaces {
            Namespaces::All => true,
            Namespaces::Named(names) => names.contains(pod.key.namespace.as_str()),
        };
        !(self.without_deleting && pod.deleting)
            && self
                .terms
                .iter()
                .all(|(namespaces, selector)| in_namespace(namespaces) && selector.matches(&pod.labels))
    }
}

pub(super) type NamespaceLabels = BTreeMap<Arc<str>, Labels>;

/// The namespaces of a term of the pod to schedule. As in kube-scheduler, a namespace selector that matches a namespace
/// without labels selects all namespaces.
fn resolve(term: &AffinityTerm, namespaces: &NamespaceLabels) -> Namespaces {
    let Some(selector) = &term.namespace_selector else {
        return Namespaces::Named(term.namespaces.clone());
    };
    if selector.matches(&Labels::new()) {
        return Namespaces::All;
    }
    let selected = namespaces.iter().filter(|(_, labels)| selector.matches(labels));
    let selected = selected.map(|(name, _)| name.clone());
    Namespaces::Named(term.namespaces.iter().cloned().chain(selected).collect())
}

/// The number of pods per node that match a query.
pub(super) type Tally = Vec<u32>;

pub(super) fn change_tally(tally: &mut Tally, node: NodeIndex, added: bool) {
    if tally.len() <= node {
        tally.resize(node + 1, 0);
    }
    tally[node] = if added { tally[node].saturating_add(1) } else { tally[node].saturating_sub(1) };
}

/// Terms of existing pods, with their nodes and the sum of the weights per node.
#[derive(Debug, Default, Clone)]
pub(super) struct TermIndex {
    terms: BTreeMap<AffinityTerm, BTreeMap<NodeIndex, (u32, i64)>>,
}

impl TermIndex {
    pub(super) fn change(&mut self, term: &AffinityTerm, node: NodeIndex, weight: i64, added: bool) {
        if added {
            let nodes = match self.terms.get_mut(term) {
                Some(nodes) => nodes,
                None => self.terms.entry(term.clone()).or_default(),
            };
            let entry = nodes.entry(node).or_insert((0, 0));
            *entry = (entry.0 + 1, entry.1 + weight);
            return;
        }
        let Some(nodes) = self.terms.get_mut(term) else { return };
        if let Some(entry) = nodes.get_mut(&node) {
            *entry = (entry.0.saturating_sub(1), entry.1 - weight);
            if entry.0 == 0 {
                nodes.remove(&node);
            }
        }
        if nodes.is_empty() {
            self.terms.remove(term);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&AffinityTerm, &BTreeMap<NodeIndex, (u32, i64)>)> {
        self.terms.iter()
    }
}

/// Results per placement.
pub(super) type Verdicts = RecentTables<Arc<Placement>, Vec<Verdict>>;

pub(super) fn refresh_verdicts<'a>(
    rows: &mut Vec<Verdict>,
    placement: &Placement,
    nodes: impl Iterator<Item = (NodeIndex, u64, &'a NodeFacts)>,
) {
    for (index, version, facts) in nodes {
        if rows.len() <= index {
            rows.resize(index + 1, Verdict::default());
        }
        if rows[index].version != version {
            rows[index] = Verdict::judge(version, facts, placement);
        }
    }
}
