//! Tests that every series and label that the chart's dashboards query is in the tables of docs/metrics.md.
//!
//! The tables in docs/metrics.md are compared with a running controller by another test (`karpenter-aws`, scenario test
//! `whole::pages`).

#[path = "dashboards/promql.rs"]
mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::promql::{Expression, parse};

/// Labels that Prometheus adds to every series that it scrapes.
const OF_SCRAPES: [&str; 4] = ["job", "instance", "namespace", "pod"];

struct Series {
    kind: String,
    labels: BTreeSet<String>,
    has_more: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rows of docs/metrics.md by name.
fn documented() -> BTreeMap<String, Series> {
    let text = std::fs::read_to_string(root().join("docs/metrics.md")).expect("the page");
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [name, kind, labels, _meaning, ""] = cells[..] else { return None };
        let has_more = labels.ends_with('…');
        let is_label = |word: &&str| !["…", "–"].contains(word);
        let labels = labels.split_whitespace().filter(is_label).map(str::to_owned).collect();
        Some((name.trim_end_matches('`').to_owned(), Series { kind: kind.to_owned(), labels, has_more }))
    };
    text.lines().filter_map(row).collect()
}

/// Collects names in a query that are not documented series, and labels that their series do not have.
struct Check<'a> {
    documented: &'a BTreeMap<String, Series>,
    problems: Vec<String>,
    series: usize,
}

impl Check<'_> {
    fn series(&self, name: &str) -> Option<(&Series, &[&str])> {
        let of = |suffix: &str, kinds: &[&str]| {
            let series = self.documented.get(name.strip_suffix(suffix)?)?;
            kinds.contains(&series.kind.as_str()).then_some(series)
        };
        let plain = of("", &["counter", "gauge"]).map(|series| (series, &[][..]));
        let summary = || of("", &["summary"]).map(|series| (series, &["quantile"][..]));
        let bucket = || of("_bucket", &["histogram"]).map(|series| (series, &["le"][..]));
        let total = |suffix| of(suffix, &["histogram", "summary"]).map(|series| (series, &[][..]));
        plain.or_else(summary).or_else(bucket).or_else(|| total("_count")).or_else(|| total("_sum"))
    }

    /// Checks a selector, and returns the labels of its series; `None` if they may have other labels as well.
    fn selector(&mut self, name: &str, asked: &[String]) -> Option<BTreeSet<String>> {
        self.series += 1;
        let Some((series, of_kind)) = self.series(name) else {
            self.problems.push(format!("there is no series {name}"));
            return None;
        };
        let (has_more, mut labels) = (series.has_more, series.labels.clone());
        labels.extend(of_kind.iter().chain(&OF_SCRAPES).map(|label| (*label).to_owned()));
        for label in asked.iter().filter(|label| !labels.contains(*label)) {
            self.problems.push(format!("{name} has no label {label}"));
        }
        (!has_more).then_some(labels)
    }

    fn wants(&mut self, labels: &[String], of: Option<&BTreeSet<String>>, query: &str) {
        for label in labels {
            if of.is_some_and(|of| !of.contains(label)) {
                self.problems.push(format!("nothing has the label {label} in {query}"));
            }
        }
    }

    /// The labels of the result; `None` if they are not known.
    fn expression(&mut self, expression: &Expression, query: &str) -> Option<BTreeSet<String>> {
        let last = |check: &mut Self, arguments: &[Expression]| {
            let labels: Vec<_> = arguments.iter().map(|one| check.expression(one, query)).collect();
            labels.into_iter().next_back().flatten()
        };
        match expression {
            Expression::Number => None,
            Expression::Selector { name, labels } => self.selector(name, labels),
            Expression::Call { arguments } => last(self, arguments),
            Expression::Aggregation { by, keeps_series, arguments } => {
                let inner = last(self, arguments);
                match by {
                    Some(by) => {
                        self.wants(by, inner.as_ref(), query);
                        Some(by.iter().cloned().collect())
                    }
                    None if *keeps_series => inner,
                    None => Some(BTreeSet::new()),
                }
            }
            Expression::Binary { on, left, right } => {
                let (left, right) = (self.expression(left, query), self.expression(right, query));
                self.wants(on, left.as_ref(), query);
                self.wants(on, right.as_ref(), query);
                left.or(right)
            }
        }
    }

    fn query(&mut self, query: &str) -> Option<BTreeSet<String>> {
        match parse(query) {
            Ok(expression) => self.expression(&expression, query),
            Err(error) => {
                self.problems.push(format!("{query}: {error}"));
                None
            }
        }
    }
}

fn dashboards() -> Vec<(String, Value)> {
    let folder = std::fs::read_dir(root().join("charts/karpenter/dashboards")).expect("the folder");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).expect("JSON"))
    };
    let mut all: Vec<_> = folder.map(|entry| read(entry.expect("a file").path())).collect();
    all.sort_by(|one: &(String, Value), other| one.0.cmp(&other.0));
    all
}

#[test]
fn dashboards_ask_for_documented_series_and_labels() {
    let documented = documented();
    assert!(documented.len() > 120, "{} rows were read", documented.len());
    let mut check = Check { documented: &documented, problems: Vec::new(), series: 0 };
    let mut names = Vec::new();
    for (name, dashboard) in dashboards() {
        let panels = dashboard["panels"].as_array().expect("panels");
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let targets = panel["targets"].as_array().expect("targets");
            assert!(!targets.is_empty(), "{name}: {}", panel["title"]);
            for target in targets {
                let query = target["expr"].as_str().expect("a query");
                let labels = check.query(query);
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                let shown = legend.split("{{").skip(1).filter_map(|part| part.split("}}").next());
                let shown: Vec<String> = shown.map(str::to_owned).collect();
                check.wants(&shown, labels.as_ref(), query);
            }
        }
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("series and label");
            let labels = check.query(series);
            let known = labels.or_else(|| documented.get(series).map(|series| series.labels.clone()));
            check.wants(&[label.to_owned()], known.as_ref(), query);
        }
        names.push(name);
    }
    assert_eq!(check.problems, Vec::<String>::new());
    assert_eq!(names, ["capacity", "controllers", "disruption", "performance"]);
    assert!(check.series > 100, "{} selectors were read", check.series);
}

#[test]
fn unknown_series_and_labels_are_found() {
    let documented = documented();
    for (query, expected) in [
        ("sum by (nodepool) (karpenter_nodes_created_total)", ""),
        ("karpenter_nodes_created", "there is no series karpenter_nodes_created"),
        ("karpenter_nodes_created_total{pool=\"a\"}", "karpenter_nodes_created_total has no label pool"),
        ("sum by (pool) (rate(karpenter_nodes_created_total[5m]))", "nothing has the label pool"),
        ("sum by (zone) (sum by (nodepool) (karpenter_nodes_created_total))", "nothing has the label zone"),
        ("karpenter_pods_bound_duration_seconds", "there is no series karpenter_pods_bound_duration_seconds"),
        ("histogram_quantile(0.9, sum by (le) (rate(karpenter_pods_bound_duration_seconds_bucket[5m])))", ""),
        (
            "histogram_quantile(0.9, sum by (le) (rate(karpenter_nodes_created_total[5m])))",
            "nothing has the label le",
        ),
    ] {
        let mut check = Check { documented: &documented, problems: Vec::new(), series: 0 };
        check.query(query);
        let found = check.problems.join("; ");
        assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{query}: {found}");
    }
}
