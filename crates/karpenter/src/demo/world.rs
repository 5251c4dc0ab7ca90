//! The cluster of the scenario.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::Context;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{self, Cluster};
use karpenter_embedded::kubelet;
use karpenter_kwok::Kwok;
use karpenter_runtime::clock::{Clock, since};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::chronicle::{Chronicle, ClusterChange, Machine};
use super::objects::DEPLOYMENT;
use super::timeline::{Actor, Timeline};
use crate::render::dollars;
use crate::render::view::counted;
use crate::up::{SharedClock, install};

/// A fixed start time, so that runs are comparable.
const EPOCH: &str = "2026-01-01T09:00:00Z";
/// How often the scenario checks the cluster.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum simulated duration of a step, after which the scenario fails.
const PATIENCE: Duration = Duration::from_secs(1800);

pub(super) struct World {
    pub(super) client: Client,
    pub(super) kwok: Kwok,
    clock: Clock,
    began: Timestamp,
    cluster: Cluster,
    operator: Operator,
    chronicle: Chronicle,
    timeline: Timeline,
    /// How long pods were pending, for the pods that were bound since the last call of [`World::take_waited`].
    waited: Vec<Duration>,
    nodes_launched: usize,
}

impl World {
    pub(super) async fn start(seed: u64, timeline: Timeline) -> Result<Self> {
        let began: Timestamp = EPOCH.parse().context("the epoch is a time")?;
        let clock = Clock::starting_at(began);
        let config = Config { clock: Arc::new(SharedClock(clock)), seed, ..Config::default() };
        let client = Client::new(ApiServer::new(config), "default");
        install::definitions(&client, false).await?;
        let kubelet = kubelet::Options {
            boot: Duration::from_secs(5),
            pod_start: Duration::from_secs(2),
            ..kubelet::Options::default()
        };
        let options = control_plane::Options { clock, kubelet, ..control_plane::Options::default() };
        let cluster = Cluster::start(client.clone(), options).await;
        let kwok = Kwok::generic(client.clone(), clock);
        let mut operator = Operator::watch(client.clone(), Arc::new(kwok.clone()), clock, Options::default());
        operator.start().await;
        let chronicle = Chronicle::start(&operator.context().stores, clock);
        Ok(Self {
            client,
            kwok,
            clock,
            began,
            cluster,
            operator,
            chronicle,
            timeline,
            waited: Vec::new(),
            nodes_launched: 0,
        })
    }

    pub(super) async fn stop(self) -> Timeline {
        self.operator.stop().await;
        self.cluster.stop().await;
        self.timeline
    }

    pub(super) fn context(&self) -> &Context {
        self.operator.context()
    }

    /// The simulated time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        since(self.clock.now(), self.began)
    }

    pub(super) fn running(&self) -> usize {
        self.chronicle.running()
    }

    pub(super) fn nodes_launched(&self) -> usize {
        self.nodes_launched
    }

    /// The time that pods were pending, for pods that were bound since the last call; shortest first.
    pub(super) fn take_waited(&mut self) -> Vec<Duration> {
        let mut waited = std::mem::take(&mut self.waited);
        waited.sort_unstable();
        waited
    }

    pub(super) fn record(&mut self, actor: Actor, text: impl Into<String>) -> Result<()> {
        Ok(self.timeline.record(self.elapsed(), actor, text)?)
    }

    pub(super) async fn scale(&mut self, replicas: u32) -> Result<()> {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch(DEPLOYMENT, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Advances the clock by `duration`, and prints what changed in the cluster.
    pub(super) async fn pass(&mut self, duration: Duration) -> Result<()> {
        let end = self.elapsed() + duration;
        while self.elapsed() < end {
            self.look().await?;
        }
        Ok(())
    }

    /// Advances the clock until the condition holds, and prints what changed in the cluster. Returns how much simulated
    /// time passed.
    pub(super) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<Duration> {
        let begin = self.elapsed();
        loop {
            let took = self.elapsed() - begin;
            if holds(self) {
                return Ok(took);
            }
            if took > PATIENCE {
                bail!("timeout after {} s: {what}", took.as_secs());
            }
            self.look().await?;
        }
    }

    async fn look(&mut self) -> Result<()> {
        self.clock.sleep(LOOK).await;
        let changes = self.chronicle.take();
        for change in &changes {
            match change {
                ClusterChange::PodRunning { waited, .. } => self.waited.push(*waited),
                ClusterChange::ClaimLaunched { .. } => self.nodes_launched += 1,
                _ => {}
            }
        }
        if self.timeline.is_verbose() {
            for change in &changes {
                let (actor, text) = in_full(change);
                self.record(actor, text)?;
            }
        } else {
            for (actor, text) in in_short(&changes, self.running()) {
                self.record(actor, text)?;
            }
        }
        Ok(())
    }
}

/// The actor and the text of one change, for `--verbose`, which prints a line for every change.
fn in_full(change: &ClusterChange) -> (Actor, String) {
    match change {
        ClusterChange::ClaimCreated { claim } => (Actor::Karpenter, format!("creates nodeclaim {claim}")),
        ClusterChange::ClaimLaunched { claim, machine } => {
            (Actor::Karpenter, format!("launches {} for {claim}", described(machine)))
        }
        ClusterChange::ClaimDeleted { claim } => (Actor::Karpenter, format!("deletes nodeclaim {claim}")),
        ClusterChange::NodeAppeared { node, .. } => (Actor::Cloud, format!("node {node} appears")),
        ClusterChange::NodeReady { node, .. } => (Actor::Cluster, format!("node {node} is ready")),
        ClusterChange::NodeNotReady { node } => (Actor::Cluster, format!("node {node} is not ready")),
        ClusterChange::NodeDeleted { node, .. } => (Actor::Cluster, format!("node {node} was deleted")),
        ClusterChange::PodBound { pod, node } => (Actor::Cluster, format!("pod {pod} is bound to {node}")),
        ClusterChange::PodRunning { pod, waited } => {
            (Actor::Cluster, format!("pod {pod} runs after {:.1} s", waited.as_secs_f64()))
        }
        ClusterChange::PodDeleted { pod } => (Actor::Cluster, format!("pod {pod} was deleted")),
    }
}

/// The lines without `--verbose`: one for each kind of change, in the order of the first change of that kind.
fn in_short(changes: &[ClusterChange], running: usize) -> Vec<(Actor, String)> {
    let mut kinds: Vec<(Actor, &str, Vec<&ClusterChange>)> = Vec::new();
    for change in changes {
        let (actor, verb) = match change {
            ClusterChange::ClaimLaunched { .. } => (Actor::Karpenter, "launches"),
            ClusterChange::ClaimDeleted { .. } => (Actor::Karpenter, "deletes"),
            ClusterChange::NodeReady { .. } => (Actor::Cluster, "ready"),
            ClusterChange::NodeNotReady { .. } => (Actor::Cluster, "not ready"),
            ClusterChange::NodeDeleted { .. } => (Actor::Cluster, "deleted"),
            ClusterChange::PodBound { .. } => (Actor::Cluster, "bound"),
            ClusterChange::PodRunning { .. } => (Actor::Cluster, "running"),
            ClusterChange::ClaimCreated { .. }
            | ClusterChange::NodeAppeared { .. }
            | ClusterChange::PodDeleted { .. } => {
                continue;
            }
        };
        match kinds.iter_mut().find(|(_, known, _)| *known == verb) {
            Some((.., of_kind)) => of_kind.push(change),
            None => kinds.push((actor, verb, vec![change])),
        }
    }
    kinds
        .into_iter()
        .map(|(actor, verb, of_kind)| {
            let count = of_kind.len() as u64;
            let text = match verb {
                "launches" => format!("launches {}: {}", counted(count, "node"), launched_types(&of_kind)),
                "deletes" => format!("deletes {}", counted(count, "node")),
                "bound" => format!("{} bound", counted(count, "pod")),
                "running" => format!("{} started, {running} running", counted(count, "pod")),
                verb => format!("{} {verb}", counted(count, "node")),
            };
            (actor, text)
        })
        .collect()
}

/// The launched instances as text, with the number of equal ones.
fn launched_types(launches: &[&ClusterChange]) -> String {
    let mut machines: BTreeMap<(&str, &str), (usize, f64)> = BTreeMap::new();
    for launch in launches {
        if let ClusterChange::ClaimLaunched { machine, .. } = launch {
            let key = (machine.instance_type.as_str(), machine.capacity_type.as_str());
            let (count, price_per_hour) = machines.entry(key).or_default();
            *count += 1;
            *price_per_hour += machine.price_per_hour;
        }
    }
    let parts: Vec<String> = machines
        .into_iter()
        .map(|((instance_type, capacity_type), (count, price_per_hour))| {
            let times = if count == 1 { String::new() } else { format!("{count} x ") };
            format!("{times}{instance_type} {capacity_type}, {}/h", dollars(price_per_hour))
        })
        .collect();
    parts.join("; ")
}

fn described(machine: &Machine) -> String {
    let Machine { instance_type, capacity_type, zone, price_per_hour } = machine;
    format!("{instance_type} {capacity_type} in {zone} at {}/h", dollars(*price_per_hour))
}
