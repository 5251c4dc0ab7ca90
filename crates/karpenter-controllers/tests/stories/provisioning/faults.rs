//! Tests of planner faults, which the planner of these tests causes: only the affected pods are left out, and the
//! faults are reported.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mode, Problem};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validated::{Planner, PlannerPanic};
use serde_json::{Value, json};

use crate::provisioning::world::World;

/// A planner that calls `before` in front of the default planner and `after` on its plan. `before` may panic, and
/// `after` may make the plan invalid.
struct FaultyPlanner<B, A> {
    before: B,
    after: A,
}

impl<B: Fn(&Problem) + Sync, A: Fn(&Problem, &mut Plan) + Sync> Planner for FaultyPlanner<B, A> {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        (self.before)(problem);
        let mut plan = schedule(problem);
        (self.after)(problem, &mut plan);
        Ok(plan)
    }
}

/// A pod that needs a node of its own.
fn large() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "150"}}}]}})
}

async fn with_pods(world: World) -> World {
    world.pool("general", json!({})).await;
    for name in ["a", "b", "c", "d"] {
        world.pod(name, large()).await;
    }
    world.pod("odd", json!({"metadata": {"labels": {"app": "odd"}}})).await;
    world.pass(15).await;
    world
}

fn has_odd(problem: &Problem) -> bool {
    problem.pods.iter().any(|group| group.count() > 0 && group.names.name(0) == "odd")
}

fn faults_counted(world: &World) -> f64 {
    let page = world.context.metrics.render();
    let lines = page.lines().filter(|line| line.starts_with("karpenter_planner_faults_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(start_paused = true)]
async fn pods_of_invalid_planned_node_are_left_out_and_others_are_launched() {
    let corrupts = |problem: &Problem, plan: &mut Plan| {
        let has_b = |node: &karpenter_model::plan::PlannedNode| {
            node.pods.iter().any(|run| {
                let names = &problem.pods[run.group as usize].names;
                (run.start..run.start + run.count).any(|at| names.name(at) == "b")
            })
        };
        if let Some(node) = plan.new_nodes.iter_mut().find(|node| has_b(node)) {
            node.pool = 9;
        }
    };
    let world =
        World::start().await.with_planner(FaultyPlanner { before: |_: &Problem| {}, after: corrupts }).await;
    let world = with_pods(world).await;
    let nominated = world.events("Nominated").await;
    assert_eq!(nominated.len(), 4, "{nominated:?}");
    assert!(!nominated.iter().any(|line| line.starts_with("b: ")), "{nominated:?}");
    let failed = world.events("FailedScheduling").await;
    assert!(
        failed.iter().any(|line| line.starts_with("b: ") && line.contains("planner fault")),
        "{failed:?}"
    );
    assert!(faults_counted(&world) >= 1.0);
    let journal = world.context.journal.entries_after(0);
    let entry = journal.iter().find(|entry| entry.input.is_some()).expect("an entry with its input");
    assert!(entry.why.iter().any(|line| line.contains("pods left out: default/b")), "{:?}", entry.why);
    let input = entry.input.as_deref().unwrap_or_default();
    let read = karpenter_api::manifest::read("input.json", input);
    assert_eq!(read.errors, []);
    let names: Vec<String> = read
        .documents
        .iter()
        .filter_map(|document| document.value["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    for name in ["general", "a", "b", "odd"] {
        assert!(names.iter().any(|one| one == name), "{name} is in {names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn compat_mode_is_used_after_panic_in_cost_mode() {
    let in_cost = Arc::new(AtomicUsize::new(0));
    let counted = in_cost.clone();
    let before = move |problem: &Problem| {
        if problem.options.mode == Mode::Cost {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("injected");
        }
    };
    let world = World::start()
        .await
        .with_planner(FaultyPlanner { before, after: |_: &Problem, _: &mut Plan| {} })
        .await;
    let world = with_pods(world).await;
    assert_eq!(world.events("Nominated").await.len(), 5);
    assert_eq!(world.events("FailedScheduling").await, [""; 0]);
    assert!(faults_counted(&world) >= 1.0);
    world.pod("later", large()).await;
    world.pass(15).await;
    assert_eq!(world.events("Nominated").await.len(), 6);
    assert_eq!(in_cost.load(Ordering::Relaxed), 1, "cost mode is not used for an hour");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_class_that_makes_the_planner_panic_are_left_out() {
    let before = |problem: &Problem| assert!(!has_odd(problem), "injected");
    let world = World::start()
        .await
        .with_planner(FaultyPlanner { before, after: |_: &Problem, _: &mut Plan| {} })
        .await;
    let world = with_pods(world).await;
    let nominated = world.events("Nominated").await;
    assert_eq!(nominated.len(), 4, "{nominated:?}");
    let failed = world.events("FailedScheduling").await;
    assert!(failed.iter().any(|line| line.starts_with("odd: ")), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn planner_that_always_panics_is_retried_until_it_works() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let messages = Arc::new(Mutex::new(Vec::<String>::new()));
    let (broken, seen) = (is_broken.clone(), messages.clone());
    let before = move |problem: &Problem| {
        seen.lock().expect("no panic holds it").push(format!("{:?}", problem.options.mode));
        assert!(!broken.load(Ordering::Relaxed), "injected");
    };
    let world = World::start()
        .await
        .with_planner(FaultyPlanner { before, after: |_: &Problem, _: &mut Plan| {} })
        .await;
    let world = with_pods(world).await;
    assert_eq!(world.claims().await.len(), 0);
    assert!(world.events("FailedScheduling").await.len() >= 5);
    is_broken.store(false, Ordering::Relaxed);
    // The new pod triggers the next plan.
    world.pod("later", large()).await;
    world.pass(15).await;
    assert_eq!(world.events("Nominated").await.len(), 6);
    assert!(messages.lock().expect("no panic holds it").contains(&"Compat".to_owned()));
}
