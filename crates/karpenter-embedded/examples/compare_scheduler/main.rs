//! Compares the scheduler of this crate with kube-scheduler on a real API server, pod by pod on generated clusters.
//!
//! The example needs a kubeconfig for an API server with a kube-scheduler and without controllers, because controllers
//! would change objects during the comparison. kube-scheduler schedules every pod; our scheduler decides about the same
//! pod from the state before. If kube-scheduler binds the pod, its node must be one of the nodes with our highest
//! score. If the pod is unschedulable, both messages must be equal. If kube-scheduler preempts pods, node and victims
//! must be equal. `e2e/compare-scheduling` sets everything up.

mod generate;
mod world;

use k8s_openapi::api::core::v1::Pod;
use karpenter_embedded::scheduler::{Decision, PodInfo, best_nodes, schedule_one};

use crate::generate::Generator;
use crate::world::{Outcome, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let first_seed: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let clusters: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let world = World::connect().await?;
    let (mut pods, mut bound, mut refused, mut preempted, mut differences) = (0, 0, 0, 0, 0);
    // The number of bound pods for which only one node had the highest score, so that kube-scheduler had no random
    // choice among equal nodes.
    let mut unique = 0;
    for seed in first_seed..first_seed + clusters {
        let mut generator = Generator::new(seed);
        world.wipe().await?;
        world.build(&mut generator).await?;
        for index in 0..generator.pods() {
            let (difference, outcome, best) = compare(&world, &mut generator, index).await?;
            unique += usize::from(best == 1);
            pods += 1;
            match outcome {
                Outcome::Bound { .. } => bound += 1,
                Outcome::Refused { .. } => refused += 1,
                Outcome::Preempted { .. } => preempted += 1,
            }
            if let Some(difference) = difference {
                differences += 1;
                println!("seed {seed}, pod {index}: {difference}");
            }
        }
        eprintln!(
            "seed {seed} done: {pods} pods, {bound} bound, {refused} unschedulable, {preempted} preempting, {differences} differences"
        );
    }
    world.wipe().await?;
    println!(
        "{pods} pods: {bound} bound ({unique} of them with one best node), {refused} unschedulable, {preempted} preempting \
         others; {differences} differences"
    );
    if differences > 0 {
        std::process::exit(1);
    }
    Ok(())
}

async fn compare(
    world: &World,
    generator: &mut Generator,
    index: u32,
) -> kube::Result<(Option<String>, Outcome, usize)> {
    let mut snapshot = world.snapshot().await?;
    let pod = world.create_pod(generator.pod(index)).await?;
    let info = PodInfo::parse(&pod);
    let ours = schedule_one(&mut snapshot, &info);
    let best = best_nodes(&mut snapshot, &info);
    let theirs = world.outcome(&pod).await?;
    let difference = match (&ours, &theirs) {
        (Decision::Bind { .. }, Outcome::Bound { node }) => {
            let names: Vec<&str> = best.iter().map(AsRef::as_ref).collect();
            (!names.contains(&node.as_str()))
                .then(|| format!("bound to {node}, best nodes of this scheduler: {names:?}"))
        }
        (Decision::Unschedulable { failure, .. }, Outcome::Refused { message }) => (failure.message
            != *message)
            .then(|| format!("unschedulable with\n  {message}\nthis scheduler\n  {}", failure.message)),
        (
            Decision::Nominate { node, victims, failure },
            Outcome::Preempted { node: chosen, victims: gone, message },
        ) => {
            let mut expected: Vec<String> = victims.iter().map(ToString::to_string).collect();
            expected.sort();
            let same = **node == **chosen && expected == *gone && failure.message == *message;
            (!same).then(|| {
                format!(
                    "preempted {gone:?} on {chosen} ({message}), here {expected:?} on {node} ({})",
                    failure.message
                )
            })
        }
        _ => Some(format!("{theirs:?}, here {ours:?}")),
    };
    let difference = difference.map(|text| format!("{text}\n  {}", without_noise(&pod)));
    world.settle(&pod, &theirs).await?;
    Ok((difference, theirs, best.len()))
}

/// The pod without the fields that the API server sets on every pod.
fn without_noise(pod: &Pod) -> String {
    let mut pod = serde_json::json!({"labels": pod.metadata.labels, "spec": pod.spec});
    if let Some(spec) = pod["spec"].as_object_mut() {
        let noise = ["dnsPolicy", "enableServiceLinks", "restartPolicy", "securityContext", "schedulerName"];
        spec.retain(|key, _| !noise.contains(&key.as_str()) && !key.starts_with("service"));
        for containers in ["containers", "initContainers"] {
            for container in spec.get_mut(containers).and_then(|it| it.as_array_mut()).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.retain(|key, _| {
                        ["name", "resources", "ports", "restartPolicy"].contains(&key.as_str())
                    });
                }
            }
        }
        if let Some(volumes) = spec.get_mut("volumes").and_then(|it| it.as_array_mut()) {
            volumes.retain(|volume| volume.get("projected").is_none());
        }
    }
    pod.to_string()
}
