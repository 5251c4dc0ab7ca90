//! Starts and stops the whole control plane of an API server.

use std::sync::Arc;

use karpenter_runtime::clock::Clock;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Reconcile, Shutdown};
use kube::Client;
use tokio::task::JoinHandle;

use crate::controllers::context::Context;
use crate::controllers::cronjob::CronJobs;
use crate::controllers::daemonset::DaemonSets;
use crate::controllers::deployment::Deployments;
use crate::controllers::disruption::Budgets;
use crate::controllers::garbage::GarbageCollector;
use crate::controllers::job::Jobs;
use crate::controllers::namespaces::Namespaces;
use crate::controllers::nodes::{self, NodeLifecycle, TaintEviction};
use crate::controllers::pod_gc::PodCollector;
use crate::controllers::replicaset::ReplicaSets;
use crate::controllers::service_accounts::ServiceAccounts;
use crate::controllers::statefulset::StatefulSets;
use crate::controllers::volumes::{Attachments, Claims, Volumes};
use crate::kubelet::{self, NodeKubelets, PodKubelets};
use crate::scheduler;
use crate::stores::Stores;

/// Which parts run, and their settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// The clock of all parts. It should be the clock that the API server uses for timestamps.
    pub clock: Clock,
    pub kubelet: kubelet::Options,
    pub nodes: nodes::Options,
    pub scheduler: scheduler::Settings,
    /// Whether the scheduler runs. It is off if a real kube-scheduler runs.
    pub schedules: bool,
    /// Whether simulated kubelets run. They are off if a real kwok runs.
    pub kubelets: bool,
    /// Whether the controllers of kube-controller-manager run. They are off if a real one runs.
    pub controllers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            kubelet: kubelet::Options::default(),
            nodes: nodes::Options::default(),
            scheduler: scheduler::Settings::default(),
            schedules: true,
            kubelets: true,
            controllers: true,
        }
    }
}

/// A running control plane.
pub struct Cluster {
    context: Context,
    shutdown: Shutdown,
    workers: Vec<JoinHandle<()>>,
    watches: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts all parts; returns when all stores are synced.
    pub async fn start(client: Client, options: Options) -> Self {
        let (stores, watches) = Stores::watch(&client);
        stores.synced().await;
        let context = Context { client, stores, clock: options.clock };
        let mut cluster = Self { context, shutdown: Shutdown::default(), workers: Vec::new(), watches };
        if options.controllers {
            cluster.start_controllers(options.nodes.clone());
        }
        if options.schedules {
            cluster.start_scheduler(options.scheduler);
        }
        if options.kubelets {
            cluster.start_kubelets(Arc::new(options.kubelet));
        }
        cluster
    }

    /// The stores that all parts share.
    pub fn stores(&self) -> &Stores {
        &self.context.stores
    }

    /// Stops all workers after their current reconcile.
    pub async fn stop(self) {
        self.shutdown.request();
        for worker in self.workers {
            // A worker task that panicked has ended, so the error of joining it is ignored.
            let _ = worker.await;
        }
        for watch in &self.watches {
            watch.abort();
        }
        for watch in self.watches {
            let _ = watch.await;
        }
    }

    fn start_controllers(&mut self, options: nodes::Options) {
        let context = self.context.clone();
        self.spawn(ReplicaSets { context: context.clone() }, ReplicaSets::watch, 1);
        self.spawn(Deployments { context: context.clone() }, Deployments::watch, 1);
        self.spawn(StatefulSets { context: context.clone() }, StatefulSets::watch, 1);
        self.spawn(DaemonSets { context: context.clone() }, DaemonSets::watch, 1);
        self.spawn(Jobs::new(context.clone()), Jobs::watch, 1);
        self.spawn(CronJobs { context: context.clone() }, CronJobs::watch, 1);
        self.spawn(Budgets { context: context.clone() }, Budgets::watch, 1);
        let lifecycle = NodeLifecycle { context: context.clone(), options };
        self.spawn(lifecycle, NodeLifecycle::watch, 8);
        self.spawn(TaintEviction::new(context.clone()), TaintEviction::watch, 8);
        self.spawn(PodCollector::new(context.clone()), PodCollector::watch, 1);
        self.spawn(ServiceAccounts { context: context.clone() }, ServiceAccounts::watch, 1);
        self.spawn(Claims { context: context.clone() }, Claims::watch, 1);
        self.spawn(Volumes { context: context.clone() }, Volumes::watch, 1);
        self.spawn(Attachments { context: context.clone() }, Attachments::watch, 1);
        self.spawn(Namespaces { context: context.clone() }, Namespaces::watch, 4);

        let garbage = Arc::new(GarbageCollector::new(context));
        let queue = Queue::default();
        let follow = garbage.clone().watch_kinds(queue.clone(), self.shutdown.clone());
        self.workers.push(tokio::spawn(follow));
        let collect = worker::run(garbage, queue, 8, self.context.clock, self.shutdown.clone());
        self.workers.push(tokio::spawn(collect));
    }

    fn start_scheduler(&mut self, settings: scheduler::Settings) {
        let Context { client, stores, clock } = self.context.clone();
        let (sources, watch) = scheduler::Sources::shared(&client, &stores);
        self.watches.push(watch);
        let running = scheduler::run(client, sources, clock, settings, self.shutdown.clone());
        self.workers.push(tokio::spawn(running));
    }

    fn start_kubelets(&mut self, options: Arc<kubelet::Options>) {
        let nodes = NodeKubelets { context: self.context.clone(), options: options.clone() };
        self.spawn(nodes, NodeKubelets::watch, 8);
        self.spawn(PodKubelets::new(self.context.clone(), options), PodKubelets::watch, 8);
    }

    fn spawn<R: Reconcile>(&mut self, work: R, watch: fn(&R, &Queue), workers: usize) {
        let queue = Queue::default();
        watch(&work, &queue);
        let running = worker::run(Arc::new(work), queue, workers, self.context.clock, self.shutdown.clone());
        self.workers.push(tokio::spawn(running));
    }
}
