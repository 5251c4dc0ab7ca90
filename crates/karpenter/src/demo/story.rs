//! The steps of the scenario.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use karpenter_api::types::{KWOKNodeClass, NodePool};
use karpenter_runtime::object::name_of;
use kube::api::{Api, PostParams};

use super::chronicle::Machine;
use super::fleet;
use super::objects;
use super::report::{ScaleOut, Summary};
use super::timeline::Actor;
use super::world::World;

const FEW: u32 = 10;
const MANY: u32 = 100;

pub(super) async fn run(world: &mut World) -> Result<Summary> {
    let create = PostParams::default();
    let classes: Api<KWOKNodeClass> = Api::all(world.client.clone());
    classes.create(&create, &objects::node_class()?).await?;
    let pools: Api<NodePool> = Api::all(world.client.clone());
    pools.create(&create, &objects::node_pool()?).await?;
    world.record(Actor::You, "apply a NodePool (spot or on-demand, linux, amd64) and its KWOKNodeClass")?;
    let deployments: Api<Deployment> = Api::default_namespaced(world.client.clone());
    deployments.create(&create, &objects::deployment()?).await?;
    world.record(Actor::You, "apply the Deployment inflate: 1 CPU and 1.5 GiB per pod, no replicas yet")?;
    world.pass(Duration::from_secs(5)).await?;

    let first = scale_out(world, 0, FEW).await?;
    world.pass(Duration::from_secs(20)).await?;
    let second = scale_out(world, FEW, MANY).await?;

    let nodes = fleet::nodes(world.context());
    let (nodes_at_peak, price_per_hour) = (nodes.len(), fleet::price_per_hour(&nodes));
    let lower_bound_per_hour = fleet::lower_bound_per_hour(world.context()).await?;
    world.pass(Duration::from_secs(20)).await?;

    let recovered_after = interrupt(world).await?;
    world.pass(Duration::from_secs(20)).await?;
    let emptied_after = scale_in(world).await?;
    Ok(Summary {
        scale_outs: vec![first, second],
        pods_at_peak: MANY as usize,
        nodes_at_peak,
        price_per_hour,
        lower_bound_per_hour,
        nodes_launched: world.nodes_launched(),
        recovered_after,
        emptied_after,
        duration: world.elapsed(),
    })
}

async fn scale_out(world: &mut World, from: u32, to: u32) -> Result<ScaleOut> {
    world.take_waited();
    world.record(Actor::You, format!("scale inflate from {from} to {to}"))?;
    world.scale(to).await?;
    let took = world.until("every pod running", |world| world.running() == to as usize).await?;
    Ok(ScaleOut { from, to, took, waited: world.take_waited() })
}

/// The simulated provider reclaims the spot node with the most pods without notice. Returns how long it takes until all
/// pods run again.
async fn interrupt(world: &mut World) -> Result<Duration> {
    let nodes = fleet::nodes(world.context());
    let pods_on = |name: &str| {
        let stores = &world.context().stores;
        stores.pods.by(karpenter_controllers::stores::BY_NODE, name).len()
    };
    let victim = nodes
        .iter()
        .filter(|node| Machine::of(&***node).capacity_type == "spot")
        .max_by_key(|node| pods_on(name_of(&***node)))
        .context("the scenario needs a spot node")?;
    let name = name_of(&**victim).to_owned();
    let provider_id = victim.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    let lost = pods_on(&name);
    world.record(Actor::Cloud, format!("reclaims spot node {name} without notice; {lost} pods ran on it"))?;
    world.kwok.terminate_externally(&provider_id).await?;
    let begin = world.elapsed();
    world.until("the lost node gone", |world| world.context().stores.nodes.get("", &name).is_none()).await?;
    world.until("every pod running again", |world| world.running() == MANY as usize).await?;
    Ok(world.elapsed() - begin)
}

async fn scale_in(world: &mut World) -> Result<Duration> {
    world.record(Actor::You, format!("scale inflate from {MANY} to 0"))?;
    world.scale(0).await?;
    world.until("no node left", |world| fleet::nodes(world.context()).is_empty()).await
}
