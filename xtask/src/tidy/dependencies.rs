//! Compares the table of allowed dependencies with `cargo metadata`. Dev-dependencies are not restricted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Findings;
use super::table::{CRATES, Crate};

/// Crates that a pure crate must not link, directly or indirectly. The `log` facade is not listed: crates that we use
/// for their data types link it without logging.
const NOT_PURE: [&str; 9] =
    ["tokio", "kube", "kube-client", "k8s-openapi", "tracing", "rand", "rand_core", "getrandom", "mio"];

/// Normal dependencies by package id, and the names of packages.
struct Graph {
    names: BTreeMap<String, String>,
    uses: BTreeMap<String, Vec<String>>,
    members: Vec<String>,
}

pub(crate) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let command = command.args(["metadata", "--format-version", "1", "--all-features"]).current_dir(root);
    let metadata: Value = serde_json::from_str(&super::output(command)?)?;
    let graph = Graph::parse(&metadata).context("cargo metadata has an unexpected shape")?;
    compare(&graph, findings);
    Ok(())
}

impl Graph {
    fn parse(metadata: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut names = BTreeMap::new();
        for package in metadata["packages"].as_array()? {
            names.insert(text(&package["id"])?, text(&package["name"])?);
        }
        let mut uses = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array()? {
            let linked = node["deps"].as_array()?.iter().filter(|dependency| {
                let kinds = dependency["dep_kinds"].as_array();
                kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
            });
            let linked = linked.filter_map(|dependency| text(&dependency["pkg"])).collect();
            uses.insert(text(&node["id"])?, linked);
        }
        let members = metadata["workspace_members"].as_array()?.iter().filter_map(text).collect();
        Some(Self { names, uses, members })
    }

    fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.names.get(id).map_or(id, String::as_str)
    }

    fn direct(&self, id: &str) -> &[String] {
        self.uses.get(id).map_or(&[], Vec::as_slice)
    }

    /// Every package that `start` links, with the chain of package names from `start` to it.
    fn closure(&self, start: &str) -> BTreeMap<String, Vec<String>> {
        let mut reached: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut open = vec![(start.to_owned(), vec![self.name(start).to_owned()])];
        while let Some((id, chain)) = open.pop() {
            for next in self.direct(&id) {
                let mut longer = chain.clone();
                longer.push(self.name(next).to_owned());
                if !reached.contains_key(next) {
                    reached.insert(next.clone(), longer.clone());
                    open.push((next.clone(), longer));
                }
            }
        }
        reached
    }
}

fn compare(graph: &Graph, findings: &mut Findings) {
    let members: BTreeSet<&str> = graph.members.iter().map(|id| graph.name(id)).collect();
    for id in &graph.members {
        let name = graph.name(id);
        let Some(rule) = CRATES.iter().find(|entry| entry.name == name) else {
            findings.error(format!(
                "{name}: not in xtask/src/tidy/table.rs; add a row there and in ARCHITECTURE.md"
            ));
            continue;
        };
        check_member(graph, id, rule, &members, findings);
    }
    for entry in CRATES.iter().filter(|entry| !members.contains(entry.name)) {
        findings.error(format!(
            "{}: listed in xtask/src/tidy/table.rs but no longer in the workspace",
            entry.name
        ));
    }
}

fn check_member(graph: &Graph, id: &str, rule: &Crate, members: &BTreeSet<&str>, findings: &mut Findings) {
    for used in graph.direct(id).iter().map(|id| graph.name(id)) {
        if members.contains(used) && !rule.may_use.contains(&used) {
            findings.error(format!("{} must not depend on {used} (see ARCHITECTURE.md)", rule.name));
        }
    }
    if !rule.pure {
        return;
    }
    for (linked, chain) in graph.closure(id) {
        if NOT_PURE.contains(&graph.name(&linked)) {
            findings.error(format!("{} is pure but links {}", rule.name, chain.join(" -> ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(scheduling_uses: &[&str], helper_uses: &[&str]) -> Vec<String> {
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let node = |name: &str, uses: &[&str]| {
            let deps: Vec<Value> = uses.iter().map(|used| dependency(used, Value::Null)).collect();
            json!({ "id": name, "deps": deps })
        };
        let members: Vec<&str> = CRATES.iter().map(|entry| entry.name).collect();
        let others = ["helper", "rand"];
        let packages: Vec<Value> =
            members.iter().chain(&others).map(|name| json!({ "id": name, "name": name })).collect();
        let mut nodes = vec![node("karpenter-scheduling", scheduling_uses), node("helper", helper_uses)];
        // Dev-dependencies are not restricted.
        nodes.push(json!({ "id": "karpenter-catalog", "deps": [dependency("rand", json!("dev"))] }));
        let metadata =
            json!({ "packages": packages, "resolve": { "nodes": nodes }, "workspace_members": members });
        let mut findings = Findings::default();
        compare(&Graph::parse(&metadata).expect("complete"), &mut findings);
        findings.errors
    }

    #[test]
    fn allowed_edges_pass() {
        assert_eq!(findings(&["karpenter-model", "helper"], &[]), Vec::<String>::new());
    }

    #[test]
    fn forbidden_and_indirect_impure_dependencies_are_errors() {
        assert_eq!(
            findings(&["karpenter-api", "helper"], &["rand"]),
            [
                "karpenter-scheduling must not depend on karpenter-api (see ARCHITECTURE.md)",
                "karpenter-scheduling is pure but links karpenter-scheduling -> helper -> rand",
            ]
        );
    }
}
