//! The whole control plane around an API server, started and stopped as one.

use std::sync::Arc;

use kube::Client;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::controllers::context::Context;
use crate::controllers::daemonset::DaemonSets;
use crate::controllers::deployment::Deployments;
use crate::controllers::replicaset::ReplicaSets;
use crate::controllers::statefulset::StatefulSets;
use crate::harness::{self, Queue, Reconcile, Stop};
use crate::kubelet::{self, NodeKubelets, PodKubelets};
use crate::mirrors::Mirrors;

/// What runs, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time on which everything runs. Should be the one that the API server stamps on objects.
    pub clock: Clock,
    pub kubelet: kubelet::Options,
    /// Whether fake nodes get kubelets. Off where a real kwok does it.
    pub kubelets: bool,
    /// Whether the controllers of kube-controller-manager run. Off where a real one does.
    pub controllers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            kubelet: kubelet::Options::default(),
            kubelets: true,
            controllers: true,
        }
    }
}

/// A running control plane.
pub struct Cluster {
    context: Context,
    stop: Stop,
    workers: Vec<JoinHandle<()>>,
    watches: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts everything; returns when all mirrors have taken in what the server holds.
    pub async fn start(client: Client, options: Options) -> Self {
        let (mirrors, watches) = Mirrors::watch(&client);
        mirrors.synced().await;
        let context = Context { client, mirrors, clock: options.clock };
        let mut cluster = Self { context, stop: Stop::default(), workers: Vec::new(), watches };
        if options.controllers {
            cluster.start_controllers();
        }
        if options.kubelets {
            cluster.start_kubelets(Arc::new(options.kubelet));
        }
        cluster
    }

    /// The mirrors that everything here reads.
    pub fn mirrors(&self) -> &Mirrors {
        &self.context.mirrors
    }

    /// Lets what is under way finish, then ends all of it.
    pub async fn stop(self) {
        self.stop.stop();
        for worker in self.workers {
            // A worker that panicked is over too.
            let _ = worker.await;
        }
        for watch in &self.watches {
            watch.abort();
        }
        for watch in self.watches {
            let _ = watch.await;
        }
    }

    fn start_controllers(&mut self) {
        let context = self.context.clone();
        self.spawn(ReplicaSets { context: context.clone() }, ReplicaSets::watch, 1);
        self.spawn(Deployments { context: context.clone() }, Deployments::watch, 1);
        self.spawn(StatefulSets { context: context.clone() }, StatefulSets::watch, 1);
        self.spawn(DaemonSets { context }, DaemonSets::watch, 1);
    }

    fn start_kubelets(&mut self, options: Arc<kubelet::Options>) {
        let nodes = NodeKubelets { context: self.context.clone(), options: options.clone() };
        self.spawn(nodes, NodeKubelets::watch, 8);
        self.spawn(PodKubelets::new(self.context.clone(), options), PodKubelets::watch, 8);
    }

    fn spawn<R: Reconcile>(&mut self, work: R, watch: fn(&R, &Queue), workers: usize) {
        let queue = Queue::default();
        watch(&work, &queue);
        let running = harness::run(Arc::new(work), queue, workers, self.context.clock, self.stop.clone());
        self.workers.push(tokio::spawn(running));
    }
}
