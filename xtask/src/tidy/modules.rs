//! Checks which modules of karpenter-controllers use each other. A module may use the modules of lower layers; modules
//! of one layer must not use each other, so that there are no cycles and controllers share only the cluster state. Only
//! the operator may use controllers.
//!
//! `module_exceptions.txt` lists the uses that currently violate the rule. The list may only get shorter: a violation
//! without an entry is an error, and so is an entry without a violation. Tests may use every module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use crate::rust_text;

const SOURCES: &str = "crates/karpenter-controllers/src";
const EXCEPTIONS: &str = "xtask/src/tidy/module_exceptions.txt";

struct Layer {
    name: &'static str,
    /// Whether only the operator may use the modules of this layer.
    is_of_controllers: bool,
    modules: &'static [&'static str],
}

/// The layers from the lowest to the highest. A path belongs to the module with the longest name that is a prefix of
/// the path.
const LAYERS: [Layer; 8] = [
    Layer {
        name: "settings and readings",
        is_of_controllers: false,
        modules: &["annotations", "condition_transitions", "pods", "recent", "settings"],
    },
    Layer {
        name: "reports and writes",
        is_of_controllers: false,
        modules: &["decision_journal", "events", "log_throttle", "logs", "metrics", "writes"],
    },
    Layer {
        name: "stores and state",
        is_of_controllers: false,
        modules: &["compute", "offerings", "state", "stores"],
    },
    Layer { name: "inputs of controllers", is_of_controllers: false, modules: &["inputs"] },
    Layer {
        name: "shared services",
        is_of_controllers: false,
        modules: &[
            "buffers",
            "claims",
            "evictions",
            "node_health",
            "nominations",
            "planner_faults",
            "registration_health",
        ],
    },
    Layer { name: "input of the planner", is_of_controllers: false, modules: &["planner_input"] },
    Layer {
        name: "controllers",
        is_of_controllers: true,
        modules: &[
            "capacity_buffer",
            "disruption",
            "legacy",
            "legacy::adoption",
            "legacy::emptiness",
            "legacy::revert",
            "metrics_export",
            "node",
            "node::eviction",
            "node::hydration",
            "node::legacy_repair",
            "node::termination",
            "node_overlay",
            "nodeclaim",
            "nodeclaim::consistency",
            "nodeclaim::disruption",
            "nodeclaim::expiration",
            "nodeclaim::garbage_collection",
            "nodeclaim::hydration",
            "nodeclaim::lifecycle",
            "nodeclaim::pod_events",
            "nodeclaim::reboot",
            "nodepool",
            "nodepool::conditions",
            "nodepool::counter",
            "nodepool::hash",
            "nomination",
            "pod_deletion_cost",
            "provisioning",
            "static_capacity",
            "static_capacity::deprovisioning",
            "static_capacity::provisioning",
            "status_events",
        ],
    },
    Layer { name: "operator", is_of_controllers: false, modules: &["operator"] },
];

/// A module, and a module that it uses.
type Edge = (String, String);

pub(crate) fn check(root: &Path, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    let edges = edges(root, files, findings);
    let text = std::fs::read_to_string(root.join(EXCEPTIONS)).context(EXCEPTIONS)?;
    compare(&edges, &exceptions(&text)?, findings);
    Ok(())
}

/// Removes the exceptions that are no longer needed. It never adds one.
pub(crate) fn shorten(root: &Path, files: &[PathBuf]) -> Result<()> {
    let text = std::fs::read_to_string(root.join(EXCEPTIONS)).context(EXCEPTIONS)?;
    let edges = edges(root, files, &mut Findings::default());
    let listed = exceptions(&text)?;
    let comments = text.lines().filter(|line| line.starts_with('#')).map(str::to_owned);
    let left =
        listed.iter().filter(|edge| edges.contains_key(*edge)).map(|(from, to)| format!("{from} -> {to}"));
    let lines: Vec<String> = comments.chain(left).collect();
    std::fs::write(root.join(EXCEPTIONS), lines.join("\n") + "\n").context(EXCEPTIONS)
}

/// Parses lines of the form `from -> to`, and skips comments.
fn exceptions(text: &str) -> Result<BTreeSet<Edge>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    rows.map(|line| {
        let (from, to) = line.split_once(" -> ").with_context(|| format!("{EXCEPTIONS}: no edge: {line}"))?;
        Ok((from.trim().to_owned(), to.trim().to_owned()))
    })
    .collect()
}

/// The uses that violate the rule, each with the first place in the code where it occurs.
fn edges(root: &Path, files: &[PathBuf], findings: &mut Findings) -> BTreeMap<Edge, String> {
    let mut found = BTreeMap::new();
    for file in files {
        let Ok(inside) = file.strip_prefix(SOURCES) else { continue };
        let module = module_of(inside);
        if module.is_empty() || module.iter().any(|part| part == "tests") {
            continue;
        }
        let Some(from) = in_table(&module) else {
            findings.error(format!(
                "{}: add its module to the layers in xtask/src/tidy/modules.rs",
                file.display()
            ));
            continue;
        };
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        for (line, path) in references(&rust_text::code(&text), &module) {
            let Some(to) = in_table(&path) else { continue };
            if !is_allowed(from, to) {
                found
                    .entry((from.to_owned(), to.to_owned()))
                    .or_insert_with(|| format!("{}:{line}", file.display()));
            }
        }
    }
    found
}

fn compare(edges: &BTreeMap<Edge, String>, exceptions: &BTreeSet<Edge>, findings: &mut Findings) {
    for ((from, to), place) in edges {
        if !exceptions.contains(&(from.clone(), to.clone())) {
            findings.error(format!(
                "{place}: {from} ({}) must not use {to} ({}): move what both need to a lower layer or to karpenter-state",
                layer(from).map_or("", |layer| LAYERS[layer].name),
                layer(to).map_or("", |layer| LAYERS[layer].name),
            ));
        }
    }
    for (from, to) in exceptions {
        if !edges.contains_key(&(from.clone(), to.clone())) {
            findings.error(format!(
                "{EXCEPTIONS}: {from} -> {to} is gone: remove the line, or run cargo run -p xtask -- shorten-exceptions"
            ));
        }
    }
}

fn is_allowed(from: &str, to: &str) -> bool {
    let is_lower = layer(to) < layer(from);
    let is_of_controllers = layer(to).is_some_and(|layer| LAYERS[layer].is_of_controllers);
    from == to || is_lower && (!is_of_controllers || from == "operator")
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.modules.contains(&module))
}

/// The module of [`LAYERS`] that a path belongs to.
fn in_table(path: &[String]) -> Option<&'static str> {
    let modules = LAYERS.iter().flat_map(|layer| layer.modules);
    let has = |module: &&&str| {
        let parts: Vec<&str> = module.split("::").collect();
        path.len() >= parts.len() && parts.iter().zip(path).all(|(part, other)| part == other)
    };
    modules.filter(has).max_by_key(|module| module.len()).copied()
}

/// The path of a module: `a/b.rs` is the module `a::b`, and `lib.rs` is the root.
fn module_of(file: &Path) -> Vec<String> {
    let path = file.with_extension("");
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts == ["lib"] { Vec::new() } else { parts }
}

/// Paths that start with `crate::` or `super::` in code before the first inline test module, with their line.
fn references(code: &str, module: &[String]) -> Vec<(usize, Vec<String>)> {
    let code = &code[..inline_tests(code)];
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("crate").chain(code.match_indices("super")) {
        let before = &code[..at];
        let is_start = !before.ends_with(|end: char| end.is_alphanumeric() || matches!(end, '_' | ':' | '$'));
        let mut rest = &code[at + keyword.len()..];
        if !is_start || !rest.starts_with("::") {
            continue;
        }
        let mut base: &[String] = &[];
        if keyword == "super" {
            base = parent(module);
            while let Some(further) = rest.strip_prefix("::super") {
                base = parent(base);
                rest = further;
            }
        }
        let line = before.matches('\n').count() + 1;
        let mut paths = Vec::new();
        tree(rest.strip_prefix("::").unwrap_or_default(), base, &mut paths);
        found.extend(paths.into_iter().map(|path| (line, path)));
    }
    found
}

/// Where the first inline test module begins. A declaration such as `mod tests;` is not one: code follows it.
fn inline_tests(code: &str) -> usize {
    let is_inline =
        |at: usize| code[at..].find([';', '{']).is_some_and(|end| code[at + end..].starts_with('{'));
    let mut starts = code.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
    starts.find(|at| is_inline(*at)).unwrap_or(code.len())
}

fn parent(module: &[String]) -> &[String] {
    module.split_last().map_or(&[], |(_, rest)| rest)
}

/// Parses a path with groups, such as `a::{b, c::{d}}`, into `found`; returns the text after it.
fn tree<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest, base, found).trim_start();
            let Some(next) = rest.strip_prefix(',') else { break };
            rest = next;
        }
        return rest.trim_start().strip_prefix('}').unwrap_or(rest);
    }
    let end = text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut path = base.to_vec();
    if !name.is_empty() && name != "self" {
        path.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(next) if !name.is_empty() => tree(next, &path, found),
        _ => {
            found.push(path);
            rest.strip_prefix('*').unwrap_or(rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|part| (*part).to_owned()).collect();
        let found = references(&rust_text::code(code), &module);
        found.into_iter().map(|(line, path)| format!("{line} {}", path.join("::"))).collect()
    }

    #[test]
    fn groups_supers_and_expressions_are_read_but_comments_and_tests_are_not() {
        let code = "// crate::no\nuse crate::{a::{self, B}, c};\nfn f() { crate::d::e(\"crate::no\") }\n\
                    use super::super::x::Y;\nuse super::*;\npub(crate) fn g() {}\n#[cfg(test)]\nmod tests { use crate::z; }\n";
        assert_eq!(paths(code, &["m", "n"]), ["2 a", "2 a::B", "2 c", "3 d::e", "4 x::Y", "5 m"]);
    }

    #[test]
    fn code_after_the_declaration_of_a_test_module_is_read() {
        let code =
            "#[cfg(test)]\nmod tests;\nuse crate::a::B;\n#[cfg(test)]\nmod more {\n    use crate::c;\n}\n";
        assert_eq!(paths(code, &["m"]), ["3 a::B"]);
    }

    #[test]
    fn lower_layers_may_be_used_and_neighbours_may_not() {
        assert!(is_allowed("provisioning", "claims"));
        assert!(is_allowed("claims", "offerings"));
        assert!(is_allowed("operator", "provisioning"));
        assert!(!is_allowed("offerings", "claims"));
        assert!(!is_allowed("provisioning", "nomination"));
        assert!(!is_allowed("node_overlay", "operator"));
        assert!(!is_allowed("claims", "provisioning"));
        assert!(!is_allowed("node::termination", "node::eviction"));
    }

    #[test]
    fn paths_belong_to_the_longest_module_of_the_table() {
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(in_table(&path("node::termination::Drain")), Some("node::termination"));
        assert_eq!(in_table(&path("node::Helper")), Some("node"));
        assert_eq!(in_table(&path("node_overlay")), Some("node_overlay"));
        assert_eq!(in_table(&path("Context")), None);
    }

    #[test]
    fn new_edges_and_listed_edges_that_are_gone_are_errors() {
        let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let edges = BTreeMap::from([
            (edge("provisioning", "nomination"), "a.rs:1".to_owned()),
            (edge("node", "nodepool"), "b.rs:2".to_owned()),
        ]);
        let listed = exceptions("# comment\nnode -> nodepool\nlegacy -> node\n").unwrap_or_default();
        let mut findings = Findings::default();
        compare(&edges, &listed, &mut findings);
        assert_eq!(findings.errors.len(), 2, "{:?}", findings.errors);
        assert!(findings.errors[0].starts_with("a.rs:1: provisioning (controllers) must not use nomination"));
        assert!(findings.errors[1].contains("legacy -> node is gone"));
    }
}
