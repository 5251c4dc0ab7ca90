//! Explorations.
#![allow(clippy::disallowed_methods)]

#[path = "support/fragmented.rs"]
mod fragmented;

use std::collections::BTreeMap;
use std::time::Instant;

use karpenter_disruption::carried_out;
use karpenter_disruption::rebalance;
use karpenter_disruption::settings::Settings;
use karpenter_scheduling::simulate::Simulator;

#[test]
#[ignore]
fn explore() {
    let pods: u32 = std::env::var("PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let seed: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let effort: u64 = std::env::var("EFFORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let started = Instant::now();
    let mut fleet = fragmented::fragmented(pods, seed);
    eprintln!("built in {:?}", started.elapsed());
    let bound = fragmented::bound(&fleet);
    let left: usize = fleet.problem.nodes.iter().map(|node| node.pods.len()).sum();
    eprintln!(
        "{} nodes {} pods {:.2} $/h, bound {bound:.2}: +{:.1} %",
        fleet.machines.len(),
        left,
        fragmented::price(&fleet),
        (fragmented::price(&fleet) / bound - 1.0) * 100.0
    );
    let mut moved = 0;
    let settings = Settings { effort, ..Settings::default() };
    for pass in 0..12 {
        let started = Instant::now();
        let candidates = fragmented::candidates(&fleet);
        let simulator = Simulator::new(&fleet.problem);
        let plan = rebalance::plan(&fleet, &simulator, &candidates, &BTreeMap::new(), &settings);
        let took = started.elapsed();
        drop(simulator);
        for (number, step) in plan.steps.iter().enumerate() {
            if number % (plan.steps.len() / 8 + 1) == 0 || number + 1 == plan.steps.len() {
                eprintln!(
                    "   {} pods: +{:.2} %",
                    moved + step.pods_moved,
                    (step.price_per_hour / bound - 1.0) * 100.0
                );
            }
        }
        moved += plan.steps.last().map_or(0, |step| step.pods_moved);
        fleet = carried_out::after(&fleet, &plan.commands);
        eprintln!(
            "pass {pass}: {took:?} {} commands ({} replace), {} nodes, moved {moved}, {:.2} $/h +{:.2} %",
            plan.commands.len(),
            plan.commands.iter().filter(|c| !c.replacements.is_empty()).count(),
            fleet.machines.len(),
            fragmented::price(&fleet),
            (fragmented::price(&fleet) / bound - 1.0) * 100.0
        );
        if plan.commands.is_empty() {
            break;
        }
    }
}

#[test]
#[ignore]
fn bounds() {
    for seed in 0..5 {
        let fleet = fragmented::fragmented(2000, seed);
        for effort in [1000, 10_000, 100_000] {
            let started = Instant::now();
            eprint!("seed {seed} effort {effort} ");
            fragmented::bound_with(&fleet, effort);
            eprintln!("   {:?}", started.elapsed());
        }
    }
}

#[test]
#[ignore]
fn worths() {
    for seed in [1, 2, 4] {
        let fleet = fragmented::fragmented(2000, seed);
        let mut counts: BTreeMap<_, u32> = BTreeMap::new();
        for pod in fleet.problem.nodes.iter().flat_map(|node| &node.pods) {
            *counts.entry(pod.spec.clone()).or_default() += 1;
        }
        let specs: Vec<_> = counts.into_iter().collect();
        for effort in [1000, 10_000, 100_000] {
            let started = Instant::now();
            let worth = karpenter_scheduling::simulate::worth(&fleet.problem, &specs, effort);
            let total: f64 = specs
                .iter()
                .zip(&worth.dual_price_per_spec)
                .map(|((_, count), price)| price * f64::from(*count))
                .sum();
            eprintln!(
                "seed {seed} effort {effort} bound {:.2} duals {total:.2} {:?}",
                worth.lower_bound_per_hour,
                started.elapsed()
            );
        }
    }
}
