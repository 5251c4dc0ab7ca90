use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// A reader of Prometheus' text format, strict about what a scraper is strict about.
fn parse(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut families: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut described: BTreeSet<String> = BTreeSet::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty(), "{name} has no help");
            assert!(described.insert(name.to_owned()), "{name} is described twice");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, current);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            assert!(series.starts_with(&current), "{series} is not of {current}");
            let value = value.parse().expect("a number");
            families.entry(current.clone()).or_default().push((series.to_owned(), value));
        }
    }
    families
}

#[test]
fn the_text_is_what_a_scraper_reads() {
    let metrics = Metrics::new();
    metrics.nodeclaims_created.with_label_values(&["provisioned", "a \"quoted\" \\ pool\n", "false"]).inc();
    metrics.scheduling_duration.with_label_values(&["provisioner"]).observe(0.3);
    let families = parse(&metrics.render());
    let created = &families["karpenter_nodeclaims_created_total"];
    assert_eq!(created.len(), 1);
    assert!(created[0].0.contains(r#"nodepool="a \"quoted\" \\ pool\n""#), "{}", created[0].0);
    let durations = &families["karpenter_scheduler_scheduling_duration_seconds"];
    assert_eq!(durations.len(), DURATION_BUCKETS.len() + 3, "buckets, infinity, sum and count");
    assert_eq!(families["karpenter_build_info"][0].1, 1.0);
    for process in ["process_resident_memory_bytes", "process_cpu_seconds_total", "go_gc_heap_live_bytes"] {
        assert!(families.contains_key(process), "{process} is missing");
    }
    assert!(families["go_gc_heap_live_bytes"][0].1 > 0.0);
}
