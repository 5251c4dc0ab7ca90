//! How nodes are called that the moves of a report launch: one name each, from the move that launches it to the last round.

use std::collections::BTreeMap;

use karpenter_disruption::cluster::Cluster;

#[derive(Debug, Clone, Default)]
pub(crate) struct Launched {
    count: usize,
    /// Of the last round, in the order in which they are launched.
    new: Vec<String>,
    /// What the cluster calls them once they are there, with what they are called here.
    names: BTreeMap<String, String>,
}

impl Launched {
    /// A name that no other replacement has.
    pub(super) fn next(&mut self) -> String {
        self.count += 1;
        format!("replacement-{}", self.count)
    }

    /// They will be part of the next round's cluster.
    pub(super) fn launch(&mut self, names: impl Iterator<Item = String>) {
        self.new.extend(names);
    }

    /// `cluster` is what the last round left behind: what was launched comes last in it.
    pub(super) fn arrive(&mut self, cluster: &Cluster) {
        let first = cluster.state_nodes.len().saturating_sub(self.new.len());
        for (state_node, name) in cluster.state_nodes[first..].iter().zip(self.new.drain(..)) {
            self.names.insert(state_node.claim.to_string(), name);
        }
    }

    pub(super) fn called(&self, name: &str) -> String {
        self.names.get(name).map_or(name, String::as_str).to_owned()
    }
}
