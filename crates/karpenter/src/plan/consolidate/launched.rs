//! Names the replacements in a report. A replacement has the same name in all rounds.

use std::collections::BTreeMap;

use karpenter_disruption::cluster::Cluster;

#[derive(Debug, Clone, Default)]
pub(crate) struct Launched {
    count: usize,
    /// The replacements of the last round, in the order of their launch.
    new: Vec<String>,
    /// The names in the report, by the names in the simulated cluster.
    names: BTreeMap<String, String>,
}

impl Launched {
    /// A new name.
    pub(super) fn next(&mut self) -> String {
        self.count += 1;
        format!("replacement-{}", self.count)
    }

    /// Adds replacements that the commands of this round launch and that exist in the next round's cluster.
    pub(super) fn launch(&mut self, names: impl Iterator<Item = String>) {
        self.new.extend(names);
    }

    /// `cluster` is the cluster after the last round; its replacements are the last nodes.
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
