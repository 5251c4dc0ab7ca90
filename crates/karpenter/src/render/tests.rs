//! Snapshots of every format for a small plan.

mod machine;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::plan::{ExistingPlacement, Plan, PlanStats, PlannedNode, PodRun, Unschedulable};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Node, NodePool, PodGroup, PodNames, Problem};
use karpenter_model::reason::{Reason, Refusal, Scope};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::{Effect, Taint};

use super::terminal::Terminal;
use super::{Timings, View, write_plan};
use crate::cli::OutputFormat;

const GIB: i64 = 1 << 30;

fn amounts(pairs: &[(&str, i64)]) -> ResourceList {
    pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

fn instance_type(name: &str, cpus: i64, gib: i64, gpus: i64, price_per_hour: f64) -> InstanceType {
    let offering = |zone: &str| Offering {
        requirements: [
            Requirement::in_values(labels::ZONE, [zone]),
            Requirement::in_values(labels::CAPACITY_TYPE, ["on-demand"]),
        ]
        .into_iter()
        .collect(),
        price_per_hour,
        available: true,
        ..Offering::default()
    };
    let mut capacity = amounts(&[("cpu", cpus * 1000), ("memory", gib * GIB), ("pods", 110)]);
    if gpus > 0 {
        capacity.set("nvidia.com/gpu", gpus);
    }
    InstanceType {
        name: name.into(),
        requirements: [Requirement::in_values(labels::INSTANCE_TYPE, [name])].into_iter().collect(),
        offerings: vec![offering("zone-a"), offering("zone-b")],
        capacity,
        overhead: ResourceList::new(),
        volume_attachment_limits: BTreeMap::new(),
    }
}

fn pool(name: &str, taints: Vec<Taint>) -> NodePool {
    NodePool {
        name: name.into(),
        weight: 0,
        requirements: Requirements::new(),
        labels: [(labels::NODEPOOL.into(), name.into())].into(),
        taints,
        startup_taints: Vec::new(),
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    }
}

fn group(prefix: &str, count: u32, requests: &[(&str, i64)]) -> PodGroup {
    let spec = PodSpec { namespace: "default".into(), requests: amounts(requests), ..PodSpec::default() };
    PodGroup {
        spec: Arc::new(spec),
        names: PodNames::Numbered { prefix: prefix.into(), count },
        created_at_secs: 0,
    }
}

fn run(group: u32, start: u32, count: u32) -> PodRun {
    PodRun { group, start, count }
}

fn planned(
    instance_type: usize,
    price_per_hour: f64,
    pods: Vec<PodRun>,
    requests: ResourceList,
) -> PlannedNode {
    PlannedNode {
        pool: 0,
        instance_type,
        offering: 1,
        price_per_hour,
        instance_type_options: (instance_type..3).collect(),
        requirements: Requirements::new(),
        requests,
        pods,
        min_values_relaxed: false,
    }
}

fn sample() -> (Problem, Plan) {
    let gpu_taint = Taint { key: "gpu".into(), value: "".into(), effect: Effect::NoSchedule };
    let problem = Problem {
        catalogs: vec![Arc::new(vec![
            instance_type("small", 2, 4, 0, 0.05),
            instance_type("large", 8, 16, 0, 0.2),
            instance_type("accelerated", 8, 32, 1, 1.0),
        ])],
        pools: vec![pool("default", Vec::new()), pool("gpu", vec![gpu_taint.clone()])],
        nodes: vec![Node {
            name: "ip-10-0-0-1".into(),
            labels: [(labels::INSTANCE_TYPE.into(), "small".into()), (labels::ZONE.into(), "zone-a".into())]
                .into(),
            taints: Vec::new(),
            initialized: true,
            pool: None,
            allocatable: amounts(&[("cpu", 2000), ("memory", 4 * GIB), ("pods", 10)]),
            pods: Vec::new(),
            volume_limits: BTreeMap::new(),
            price_per_hour: None,
            is_settling: false,
        }],
        pods: vec![
            group("web", 9, &[("cpu", 900), ("memory", GIB), ("pods", 1)]),
            group("train", 1, &[("cpu", 4000), ("memory", 8 * GIB), ("nvidia.com/gpu", 1), ("pods", 1)]),
            group("huge", 12, &[("cpu", 64_000), ("memory", GIB), ("pods", 1)]),
        ],
        ..Problem::default()
    };
    let refuse = |pool: &str, reason: Reason| Refusal { scope: Scope::NodePool(pool.into()), reason };
    let too_large = Reason::TooLarge {
        requests: amounts(&[("cpu", 64_000)]),
        largest: amounts(&[("cpu", 8000)]),
        short_of: vec!["cpu".into()],
    };
    let web = |start| vec![run(0, start, 2)];
    let web_load = amounts(&[("cpu", 1800), ("memory", 2 * GIB), ("pods", 2)]);
    let plan = Plan {
        new_nodes: vec![
            planned(0, 0.05, web(2), web_load.clone()),
            planned(0, 0.05, web(4), web_load.clone()),
            planned(0, 0.05, web(6), web_load),
            planned(
                2,
                1.0,
                vec![run(0, 8, 1), run(1, 0, 1)],
                amounts(&[("cpu", 4900), ("memory", 9 * GIB), ("nvidia.com/gpu", 1), ("pods", 2)]),
            ),
        ],
        existing: vec![ExistingPlacement { node: 0, pods: vec![run(0, 0, 2)] }],
        order: vec![],
        unschedulable: vec![Unschedulable {
            pods: run(2, 0, 12),
            reasons: vec![
                Refusal { scope: Scope::ExistingNodes { count: 1 }, reason: Reason::NotEnoughRoom },
                refuse("gpu", Reason::Taint(gpu_taint)),
                refuse("default", too_large),
            ],
        }],
        price_per_hour: 1.15,
        lower_bound_per_hour: 1.1,
        compat_price_per_hour: 1.4,
        stats: PlanStats { pods: 22, classes: 3, work: 0 },
    };
    (problem, plan)
}

fn check(format: OutputFormat, explain: bool, terminal: &Terminal, expected: &Expect) {
    let (problem, plan) = sample();
    let timings = Timings { schedule: Duration::from_micros(1500), ..Timings::default() };
    let view = View::new(&problem, &plan, timings);
    let mut text = Vec::new();
    write_plan(&view, format, explain, terminal, &mut text).expect("writing to memory");
    let text = String::from_utf8(text).expect("output is UTF-8");
    expected.assert_eq(&text.replace('\u{1b}', "^"));
}

#[test]
fn table() {
    check(
        OutputFormat::Table,
        false,
        &Terminal::PLAIN,
        &expect![[r#"
        8 pods on 4 new nodes, 2 on 1 existing node, 12 do not fit
        cost         $1.1500/h  $839.50/month
        lower bound  $1.1000/h  the plan is at most 4.5% above the cheapest possible
        compat mode  $1.4000/h  17.9% saved

        NODES  TYPE         ZONE    CAPACITY   $/H EACH  CPU                MEMORY             GPU                PODS EACH  OTHER TYPES  NODEPOOL
           x1  accelerated  zone-b  on-demand    1.0000  [######....]  61%  [###.......]  28%  [##########] 100%          2            0  default
           x3  small        zone-b  on-demand    0.0500  [#########.]  90%  [#####.....]  50%  -                          2            2  default

        EXISTING NODE  TYPE   ZONE     TAKES  PODS
        ip-10-0-0-1    small  zone-a  2 pods  web x2

        DO NOT FIT
        huge (12 pods)
          nodepool default: no instance type has enough resources: cpu 64 wanted, at most 8 free
          nodepool gpu: did not tolerate taint gpu:NoSchedule
          1 existing node: not enough free resources
          hint: lower the pod's cpu request, or allow larger types in spec.template.spec.requirements of NodePool default
    "#]],
    );
}

#[test]
fn table_with_colour_and_block_characters() {
    let terminal = Terminal { colour: true, unicode: true, width: 100 };
    check(
        OutputFormat::Table,
        false,
        &terminal,
        &expect![[r#"
        ^[1m8 pods on 4 new nodes, 2 on 1 existing node, 12 do not fit^[0m
        cost         $1.1500/h  $839.50/month
        lower bound  $1.1000/h  the plan is at most 4.5% above the cheapest possible
        compat mode  $1.4000/h  17.9% saved

        ^[1mNODES^[0m  ^[1mTYPE^[0m         ^[1mZONE^[0m    ^[1mCAPACITY^[0m   ^[1m$/H EACH^[0m  ^[1mCPU^[0m         ^[1mMEMORY^[0m      ^[1mGPU^[0m         ^[1mPODS EACH^[0m
           ^[1m×1^[0m  accelerated  zone-b  on-demand    1.0000  ^[33m███▏░  61%^[0m  ^[31m█▍░░░  28%^[0m  ^[32m█████ 100%^[0m          2
           ^[1m×3^[0m  small        zone-b  on-demand    0.0500  ^[32m████▌  90%^[0m  ^[33m██▌░░  50%^[0m  -                   2

        ^[1mEXISTING NODE^[0m  ^[1mTYPE^[0m   ^[1mZONE^[0m     ^[1mTAKES^[0m  ^[1mPODS^[0m
        ip-10-0-0-1    small  zone-a  2 pods  web ×2

        ^[1mDO NOT FIT^[0m
        ^[31mhuge^[0m (12 pods)
          nodepool default: no instance type has enough resources: cpu 64 wanted, at most 8 free
          nodepool gpu: did not tolerate taint gpu:NoSchedule
          1 existing node: not enough free resources
          ^[2mhint: lower the pod's cpu request, or allow larger types in spec.template.spec.requirements of NodePool default^[0m
    "#]],
    );
}

#[test]
fn narrow_terminal_omits_bars_and_least_important_columns() {
    let terminal = Terminal { width: 60, ..Terminal::PLAIN };
    check(
        OutputFormat::Table,
        false,
        &terminal,
        &expect![[r#"
        8 pods on 4 new nodes, 2 on 1 existing node, 12 do not fit
        cost         $1.1500/h  $839.50/month
        lower bound  $1.1000/h  the plan is at most 4.5% above the cheapest possible
        compat mode  $1.4000/h  17.9% saved

        NODES  TYPE         $/H EACH  CPU   MEMORY  GPU   PODS EACH
           x1  accelerated    1.0000   61%   28%    100%          2
           x3  small          0.0500   90%   50%    -             2

        EXISTING NODE  TYPE   ZONE     TAKES  PODS
        ip-10-0-0-1    small  zone-a  2 pods  web x2

        DO NOT FIT
        huge (12 pods)
          nodepool default: no instance type has enough resources: cpu 64 wanted, at most 8 free
          nodepool gpu: did not tolerate taint gpu:NoSchedule
          1 existing node: not enough free resources
          hint: lower the pod's cpu request, or allow larger types in spec.template.spec.requirements of NodePool default
    "#]],
    );
}

#[test]
fn wide() {
    check(
        OutputFormat::Wide,
        false,
        &Terminal::PLAIN,
        &expect![[r#"
        8 pods on 4 new nodes, 2 on 1 existing node, 12 do not fit
        cost         $1.1500/h  $839.50/month
        lower bound  $1.1000/h  the plan is at most 4.5% above the cheapest possible
        compat mode  $1.4000/h  17.9% saved

        NODE       TYPE         ZONE    CAPACITY        $/H     CPU  MEMORY     GPU  OTHER  PODS
        default-1  small        zone-b  on-demand    0.0500     90%     50%       -      2  default/web-2,default/web-3
        default-2  small        zone-b  on-demand    0.0500     90%     50%       -      2  default/web-4,default/web-5
        default-3  small        zone-b  on-demand    0.0500     90%     50%       -      2  default/web-6,default/web-7
        default-4  accelerated  zone-b  on-demand    1.0000     61%     28%    100%      0  default/web-8,default/train-0

        EXISTING NODE  TYPE   ZONE     TAKES  PODS
        ip-10-0-0-1    small  zone-a  2 pods  default/web-0,default/web-1

        DO NOT FIT
        huge (12 pods)
          nodepool default: no instance type has enough resources: cpu 64 wanted, at most 8 free
          nodepool gpu: did not tolerate taint gpu:NoSchedule
          1 existing node: not enough free resources
          hint: lower the pod's cpu request, or allow larger types in spec.template.spec.requirements of NodePool default
    "#]],
    );
}

#[test]
fn explain() {
    check(
        OutputFormat::Table,
        true,
        &Terminal::PLAIN,
        &expect![[r#"
        8 pods on 4 new nodes, 2 on 1 existing node, 12 do not fit
        cost         $1.1500/h  $839.50/month
        lower bound  $1.1000/h  the plan is at most 4.5% above the cheapest possible
        compat mode  $1.4000/h  17.9% saved

        NODES  TYPE         ZONE    CAPACITY   $/H EACH  CPU                MEMORY             GPU                PODS EACH  OTHER TYPES  NODEPOOL
           x1  accelerated  zone-b  on-demand    1.0000  [######....]  61%  [###.......]  28%  [##########] 100%          2            0  default
           x3  small        zone-b  on-demand    0.0500  [#########.]  90%  [#####.....]  50%  -                          2            2  default

        EXISTING NODE  TYPE   ZONE     TAKES  PODS
        ip-10-0-0-1    small  zone-a  2 pods  web x2

        DO NOT FIT
        huge (12 pods)
          nodepool default: no instance type has enough resources: cpu 64 wanted, at most 8 free
          nodepool gpu: did not tolerate taint gpu:NoSchedule
          1 existing node: not enough free resources
          hint: lower the pod's cpu request, or allow larger types in spec.template.spec.requirements of NodePool default

        WHY
        web (9 pods, each cpu 900m, memory 1Gi)
          2 pods on existing node ip-10-0-0-1
          1 pod on 1 new node of NodePool default: accelerated in zone-b, on-demand at $1.0000/h
          6 pods on 3 new nodes of NodePool default: small in zone-b, on-demand at $0.0500/h
          not NodePool gpu: did not tolerate taint gpu:NoSchedule
        train (1 pod, each cpu 4, memory 8Gi, nvidia.com/gpu 1)
          1 pod on 1 new node of NodePool default: accelerated in zone-b, on-demand at $1.0000/h
          not NodePool gpu: did not tolerate taint gpu:NoSchedule
        huge (12 pods, each cpu 64, memory 1Gi)
          12 pods unschedulable, see above
    "#]],
    );
}

#[test]
fn empty_plan_has_every_section() {
    let (problem, plan) = (Problem::default(), Plan::default());
    let view = View::new(&problem, &plan, Timings::default());
    let mut text = Vec::new();
    write_plan(&view, OutputFormat::Json, false, &Terminal::PLAIN, &mut text).expect("writing to memory");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("valid JSON");
    for section in ["nodes", "existing", "unschedulable"] {
        assert_eq!(json[section], serde_json::json!([]), "{section}");
    }
    assert_eq!(json["cost"]["hourly"], 0.0);
    assert_eq!(json["cost"]["gapPercent"], 0.0);
}
