//! Snapshot tests of the text for one small report that was written by hand.

use expect_test::expect;

use super::*;
use crate::plan::consolidate::launched::Launched;
use crate::plan::consolidate::report::{CostReport, MoveReport, NodeReport, StatsReport};

fn node(name: &str, kind: &str, price: f64) -> NodeFacts {
    NodeFacts {
        node: Some(format!("node-{name}")),
        node_claim: name.to_owned(),
        node_pool: Some("general".to_owned()),
        instance_type: Some(kind.to_owned()),
        zone: Some("zone-a".to_owned()),
        capacity_type: Some("on-demand".to_owned()),
        price: Some(price),
        instance_price: Some(price),
    }
}

fn report() -> Report {
    let replaced = CommandReport {
        round: 1,
        method: "Rebalance".to_owned(),
        reason: "Underutilized",
        decision: "replace",
        dry_run: false,
        candidates: vec![node("a", "m5.2xlarge", 0.384), node("b", "m5.2xlarge", 0.384)],
        replacements: vec![ReplacementReport {
            name: "replacement-1".to_owned(),
            node_pool: "general".to_owned(),
            instance_type: Some("m5.xlarge".to_owned()),
            zone: Some("zone-b".to_owned()),
            capacity_type: Some("on-demand".to_owned()),
            price: 0.192,
            instance_price: Some(0.192),
            instance_type_options: vec!["m5.xlarge".to_owned(), "m5a.xlarge".to_owned()],
        }],
        moves: vec![
            MoveReport {
                pod: "default/web-1".to_owned(),
                from: "node-a".to_owned(),
                to: "replacement-1".to_owned(),
            },
            MoveReport {
                pod: "default/web-2".to_owned(),
                from: "node-b".to_owned(),
                to: "node-c".to_owned(),
            },
        ],
        pods_moved: 2,
        hourly_before: 0.768,
        hourly_after: 0.192,
        saving: 0.576,
        saving_percent: 75.0,
    };
    let rehearsed = CommandReport {
        round: 2,
        method: "Emptiness".to_owned(),
        reason: "Empty",
        decision: "delete",
        dry_run: true,
        candidates: vec![node("d", "m5.large", 0.096)],
        replacements: Vec::new(),
        moves: Vec::new(),
        pods_moved: 0,
        hourly_before: 0.096,
        hourly_after: 0.0,
        saving: 0.096,
        saving_percent: 100.0,
    };
    Report {
        now: "2026-01-01T12:00:00Z".to_owned(),
        mode: "cost",
        commands: vec![replaced, rehearsed],
        staying: vec![NodeReport {
            facts: node("c", "m5.large", 0.096),
            reason: "PodAnnotated",
            message: "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/db-0)".to_owned(),
        }],
        cost: CostReport {
            hourly_before: 0.96,
            hourly_after: 0.384,
            saving: 0.576,
            saving_percent: 60.0,
            lower_bound: Some(0.3),
            gap_percent: Some(28.0),
        },
        stats: StatsReport {
            nodes_before: 4,
            nodes_after: 3,
            pods: 7,
            pods_moved: 2,
            rounds: 1,
            ..StatsReport::default()
        },
        launched: Launched::default(),
    }
}

fn rendered(report: &Report, format: OutputFormat) -> String {
    let mut out = Vec::new();
    write_report(report, format, &Terminal::PLAIN, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn table_has_every_command_and_why_other_nodes_stay() {
    expect![[r#"
        1 command: 2 of 4 nodes disrupted, 1 new, 2 pods rescheduled
        cost now     $0.9600/h  $700.80/month
        afterwards   $0.3840/h  $280.32/month  60.0% saved
        dry run      $0.0960/h  would be saved by 1 command of NodePools with a dry run
        lower bound  $0.3000/h  at most 28.0% above the cheapest possible
        as of        2026-01-01T12:00:00Z

        1  Underutilized: 2 nodes replaced by 1, saves $0.5760/h (75.0%), 2 pods moved
           NODE           NODEPOOL  TYPE                  ZONE    CAPACITY       $/H
        -  node-a         general   m5.2xlarge            zone-a  on-demand  $0.3840
        -  node-b         general   m5.2xlarge            zone-a  on-demand  $0.3840
        +  replacement-1  general   m5.xlarge or 1 other  zone-b  on-demand  $0.1920

        2  Empty (dry run): 1 node removed in pass 2, saves $0.0960/h (100.0%), 0 pods moved
           NODE    NODEPOOL  TYPE      ZONE    CAPACITY       $/H
        -  node-d  general   m5.large  zone-a  on-demand  $0.0960

        STAYS   NODEPOOL  TYPE          $/H  WHY
        node-c  general   m5.large  $0.0960  Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/db-0)
    "#]].assert_eq(&rendered(&report(), OutputFormat::Table));
}

#[test]
fn wide_table_has_target_of_each_pod() {
    let wide = rendered(&report(), OutputFormat::Wide);
    assert!(wide.contains("     default/web-2  node-b -> node-c\n"), "{wide}");
}

#[test]
fn more_expensive_replacement_is_not_shown_as_saving() {
    let mut report = report();
    let drifted = &mut report.commands[0];
    (drifted.reason, drifted.saving, drifted.saving_percent) = ("Drifted", -0.192, -25.0);
    (report.cost.saving, report.cost.saving_percent, report.cost.hourly_after) = (-0.192, -20.0, 1.152);
    let table = rendered(&report, OutputFormat::Table);
    assert!(table.contains("afterwards   $1.1520/h  $840.96/month  20.0% more\n"), "{table}");
    assert!(table.contains("2 nodes replaced by 1, costs $0.1920/h more (25.0%), 2 pods moved\n"), "{table}");
}

#[test]
fn empty_consolidation_says_nothing_to_do() {
    let mut report = report();
    report.commands.clear();
    report.staying.clear();
    expect![[r#"
        nothing to do for 4 nodes
        cost now     $0.9600/h  $700.80/month
        lower bound  $0.3000/h  at most 28.0% above the cheapest possible
        as of        2026-01-01T12:00:00Z
    "#]]
    .assert_eq(&rendered(&report, OutputFormat::Table));
}

#[test]
fn json_and_yaml_are_equal_and_have_documented_names() {
    expect![[r#"
        now: "2026-01-01T12:00:00Z"
        mode: cost
        commands:
        - round: 1
          method: Rebalance
          reason: Underutilized
          decision: replace
          dryRun: false
          candidates:
          - node: node-a
            nodeClaim: a
            nodePool: general
            instanceType: m5.2xlarge
            zone: zone-a
            capacityType: on-demand
            price: 0.384
            instancePrice: 0.384
          - node: node-b
            nodeClaim: b
            nodePool: general
            instanceType: m5.2xlarge
            zone: zone-a
            capacityType: on-demand
            price: 0.384
            instancePrice: 0.384
          replacements:
          - name: replacement-1
            nodePool: general
            instanceType: m5.xlarge
            zone: zone-b
            capacityType: on-demand
            price: 0.192
            instancePrice: 0.192
            instanceTypeOptions:
            - m5.xlarge
            - m5a.xlarge
          moves:
          - pod: default/web-1
            from: node-a
            to: replacement-1
          - pod: default/web-2
            from: node-b
            to: node-c
          podsMoved: 2
          hourlyBefore: 0.768
          hourlyAfter: 0.192
          saving: 0.576
          savingPercent: 75.0
        - round: 2
          method: Emptiness
          reason: Empty
          decision: delete
          dryRun: true
          candidates:
          - node: node-d
            nodeClaim: d
            nodePool: general
            instanceType: m5.large
            zone: zone-a
            capacityType: on-demand
            price: 0.096
            instancePrice: 0.096
          replacements: []
          moves: []
          podsMoved: 0
          hourlyBefore: 0.096
          hourlyAfter: 0.0
          saving: 0.096
          savingPercent: 100.0
        staying:
        - node: node-c
          nodeClaim: c
          nodePool: general
          instanceType: m5.large
          zone: zone-a
          capacityType: on-demand
          price: 0.096
          instancePrice: 0.096
          reason: PodAnnotated
          message: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/db-0)
        cost:
          hourlyBefore: 0.96
          hourlyAfter: 0.384
          saving: 0.576
          savingPercent: 60.0
          lowerBound: 0.3
          gapPercent: 28.0
        stats:
          nodesBefore: 4
          nodesAfter: 3
          pods: 7
          podsMoved: 2
          rounds: 1
          timings:
            readMs: 0.0
            assembleMs: 0.0
            decideMs: 0.0
            totalMs: 0.0
    "#]]
    .assert_eq(&rendered(&report(), OutputFormat::Yaml));
    let json: serde_json::Value =
        serde_json::from_str(&rendered(&report(), OutputFormat::Json)).expect("valid JSON");
    let yaml: serde_json::Value =
        serde_saphyr::from_str(&rendered(&report(), OutputFormat::Yaml)).expect("valid YAML");
    assert_eq!(json, yaml);
}
