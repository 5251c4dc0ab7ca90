//! Consolidation of the clusters of the benchmark W7: `w7 NEW|COMPAT SEEDS CASES [BUDGET_PERCENT] [SAVING_RATIO]`.
#![allow(dead_code, unused_imports, unreachable_pub)]

#[path = "../../karpenter/src/bench"]
mod bench {
    pub(crate) mod build;
    pub(crate) mod catalogs;
    #[path = "consolidation/fleets.rs"]
    pub(crate) mod fleets;
    pub(crate) mod reference;
    pub(crate) mod rng;
    pub(crate) mod workloads;
}

use std::time::Instant;

use karpenter_disruption::apply;
use karpenter_disruption::cluster::Reason;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::{Mode, Settings};

fn cpu_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|one| one.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|one| one.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let arg = |at: usize| args.get(at).map(String::as_str).unwrap_or("");
    let planners: Vec<&str> = arg(1).split(',').collect();
    let seeds: Vec<u64> = arg(2).split(',').filter_map(|one| one.parse().ok()).collect();
    let filter: Vec<&str> = arg(3).split(',').collect();
    let budget: Option<u32> = arg(4).parse().ok();
    let most = seeds.iter().max().copied().unwrap_or(0) + 1;
    for case in bench::fleets::cases(most, None) {
        if !seeds.contains(&case.seed) || !filter.iter().any(|one| case.name == *one) {
            continue;
        }
        let first = case.cluster();
        let bound = bench::fleets::lower_bound(&first);
        let price = |cluster: &karpenter_disruption::cluster::Cluster| -> f64 {
            cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum()
        };
        for planner in &planners {
            let mut cluster = first.clone();
            let settings = Settings {
                mode: if *planner == "COMPAT" { Mode::Compat } else { Mode::Cost },
                saving_ratio: arg(5).parse().unwrap_or(0.05),
                ..Settings::default()
            };
            let (mut passes, mut moved, mut launched, mut longest, mut now) =
                (0, 0, 0, 0.0_f64, price(&cluster));
            let (mut longest_cpu, mut largest, mut again) = (0.0_f64, 0, 0);
            let levels = [1.2, 1.15, 1.1, 1.07, 1.05, 1.03, 1.02];
            let mut reached: Vec<Option<usize>> = vec![None; levels.len()];
            let cpu = cpu_secs();
            let began = Instant::now();
            while passes < 400 {
                case.allow(&mut cluster);
                if let Some(percent) = budget {
                    let most = (cluster.state_nodes.len() as u32 * percent).div_ceil(100);
                    for pool in cluster.pools.values_mut() {
                        pool.allowed.insert(Reason::Underutilized, most);
                    }
                }
                let (started, cpu) = (Instant::now(), cpu_secs());
                let evaluation = evaluate(&cluster, &settings);
                longest = longest.max(started.elapsed().as_secs_f64());
                longest_cpu = longest_cpu.max(cpu_secs() - cpu);
                passes += 1;
                if evaluation.commands.is_empty() {
                    break;
                }
                for command in &evaluation.commands {
                    now -= command.saving_per_hour();
                    moved += command.pods_moved();
                    launched += command.replacements.len();
                    largest = largest.max(command.candidates.len());
                    again += command
                        .moves
                        .iter()
                        .filter(|(pod, _)| {
                            let state_node =
                                cluster.state_nodes.iter().find(|one| one.at == Some(pod.node as usize));
                            let pod = state_node.and_then(|one| one.pods.get(pod.pod as usize));
                            pod.is_some_and(|pod| pod.moved_at_secs.is_some())
                        })
                        .count();
                    for (level, reached) in levels.iter().zip(&mut reached) {
                        if now <= bound * level && reached.is_none() {
                            *reached = Some(moved);
                        }
                    }
                }
                cluster = apply::after(&cluster, &evaluation.commands);
                if std::env::var("VERBOSE").is_ok() {
                    println!("    pass {passes}: {moved} {:.2} launched {launched}", price(&cluster));
                }
            }
            let levels: Vec<String> =
                reached.iter().map(|one| one.map_or("-".to_owned(), |one| one.to_string())).collect();
            println!(
                "{:24} seed {} {:6} bound {:8.2} | {} | rest {:6} {:8.2} {:5.2} % | again {again} launched {launched} largest {largest} nodes {} passes {passes} cpu {:.1} wall {:.1} longest {:.2}/{:.2} rss {:.0}",
                case.name,
                case.seed,
                planner,
                bound,
                levels.join(" "),
                moved,
                price(&cluster),
                (price(&cluster) / bound - 1.0) * 100.0,
                cluster.state_nodes.len(),
                cpu_secs() - cpu,
                began.elapsed().as_secs_f64(),
                longest,
                longest_cpu,
                peak_mib()
            );
        }
    }
}
