//! An embedded cluster with the NodeClaim controllers and the kwok provider.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels::FINALIZER_TERMINATION;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::CloudProvider;
use karpenter_controllers::Context;
use karpenter_controllers::claims::hooks::{Hooks, LifecycleOutcome};
use karpenter_controllers::evictions::EvictionQueue;
use karpenter_controllers::node::{NodeHydration, NodeTermination};
use karpenter_controllers::nodeclaim::consistency::ConsistencyController;
use karpenter_controllers::nodeclaim::disruption::DisruptionConditions;
use karpenter_controllers::nodeclaim::expiration::ExpirationController;
use karpenter_controllers::nodeclaim::garbage_collection::GarbageCollection;
use karpenter_controllers::nodeclaim::hydration::HydrationController;
use karpenter_controllers::nodeclaim::lifecycle::Lifecycle;
use karpenter_controllers::nodeclaim::pod_events::PodEventsController;
use karpenter_controllers::registration_health::RegistrationHealth;
use karpenter_controllers::stores::Stores;
use karpenter_embedded::control_plane::{Cluster, Options};
use karpenter_kwok::Kwok;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Reconcile, Requeue, Shutdown};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

pub(crate) use crate::embedded::condition;
use crate::embedded::{ClusterView, TokioClock, clock, define_kinds};

type Outcomes = Arc<Mutex<Vec<(String, LifecycleOutcome)>>>;

pub(crate) struct World {
    view: ClusterView,
    pub(crate) cloud: Kwok,
    pub(crate) context: Context,
    pub(crate) server: ApiServer,
    outcomes: Outcomes,
    shutdown: Shutdown,
    cluster: Option<Cluster>,
}

impl Deref for World {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(Hooks::default(), |server| Client::new(server, "default")).await
    }

    /// Starts a test environment with these hooks, and with a client that only the controllers use.
    pub(crate) async fn with(hooks: Hooks, connect: impl FnOnce(ApiServer) -> Client) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server.clone(), "default");
        define_kinds(&client).await;
        let cluster = Cluster::start(client.clone(), Options { clock, ..Options::default() }).await;
        let cloud = Kwok::generic(client.clone(), clock);
        let controllers = connect(server.clone());
        let (stores, _) = Stores::watch(&controllers, cloud.node_class_kinds());
        stores.synced().await;
        let context = Context::new(controllers, stores, Arc::new(cloud.clone()), clock);
        let (outcomes, shutdown) = (Outcomes::default(), Shutdown::default());
        let view = ClusterView::new(client, clock);
        let world = Self { view, cloud, context, server, outcomes, shutdown, cluster: Some(cluster) };
        world.start_controllers(hooks);
        world
    }

    /// Starts another process, which knows only what the API server stores, and which drains nodes.
    pub(crate) async fn take_over(&mut self, client: Client) {
        self.shutdown.request();
        self.shutdown = Shutdown::default();
        self.cloud = Kwok::generic(client.clone(), self.clock);
        let (stores, _) = Stores::watch(&client, self.cloud.node_class_kinds());
        stores.synced().await;
        self.context = Context::new(client, stores, Arc::new(self.cloud.clone()), self.clock);
        let (hooks, context) = (Hooks::default(), || self.context.clone());
        let lifecycle = Lifecycle::new(
            context().reads(),
            context().writes(),
            context().cloud.clone(),
            hooks.clone(),
            RegistrationHealth::default(),
        );
        self.spawn(lifecycle, Lifecycle::watch);
        self.spawn(
            GarbageCollection::new(context().reads(), context().writes(), context().cloud.clone(), hooks),
            GarbageCollection::watch,
        );
        let evictions = EvictionQueue::default();
        self.spawn(
            NodeTermination {
                reads: context().reads(),
                writes: context().writes(),
                cloud: context().cloud.clone(),
                evictions,
            },
            NodeTermination::watch,
        );
        self.spawn(
            NodeHydration { reads: context().reads(), writes: context().writes() },
            NodeHydration::watch,
        );
        let cloud = self.cloud.clone();
        // Resumes launches, as the provider does when a process starts. This runs in a task, because the process may
        // crash meanwhile.
        tokio::spawn(async move { cloud.resume().await });
    }

    fn start_controllers(&self, hooks: Hooks) {
        let outcomes = self.outcomes.clone();
        let on_outcome = move |claim: &NodeClaim, outcome: &LifecycleOutcome| {
            let name = claim.metadata.name.clone().unwrap_or_default();
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((name, outcome.clone()));
        };
        let hooks = Hooks { on_outcome: Arc::new(on_outcome), ..hooks };
        let context = || self.context.clone();
        let health = RegistrationHealth::default();
        self.spawn(
            Lifecycle::new(
                context().reads(),
                context().writes(),
                context().cloud.clone(),
                hooks.clone(),
                health,
            ),
            Lifecycle::watch,
        );
        self.spawn(
            ExpirationController {
                reads: context().reads(),
                writes: context().writes(),
                hooks: hooks.clone(),
            },
            ExpirationController::watch,
        );
        self.spawn(
            GarbageCollection::new(context().reads(), context().writes(), context().cloud.clone(), hooks),
            GarbageCollection::watch,
        );
        self.spawn(
            ConsistencyController::new(context().reads(), context().writes()),
            ConsistencyController::watch,
        );
        self.spawn(
            HydrationController { reads: context().reads(), writes: context().writes() },
            HydrationController::watch,
        );
        self.spawn(
            PodEventsController::new(context().reads(), context().writes()),
            PodEventsController::watch,
        );
        self.spawn(
            DisruptionConditions::new(context().reads(), context().writes(), context().cloud.clone()),
            DisruptionConditions::watch,
        );
        self.spawn(ToyTermination { context: context() }, ToyTermination::watch);
    }

    fn spawn<R: Reconcile>(&self, work: R, watch: fn(&R, &Queue)) {
        let queue = Queue::default();
        watch(&work, &queue);
        tokio::spawn(worker::run(Arc::new(work), queue, 8, self.clock, self.shutdown.clone()));
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.request();
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
    }

    pub(crate) async fn node_class(&self, spec: Value) {
        let class = json!({"metadata": {"name": "default"}, "spec": spec});
        self.create::<karpenter_api::types::KWOKNodeClass>(class).await;
    }

    /// A NodeClaim for a small on-demand Linux instance; `spec` is merged into its spec.
    pub(crate) async fn claim(&self, name: &str, spec: Value) -> NodeClaim {
        let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let mut object = json!({"metadata": {"name": name}, "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                requirement("node.kubernetes.io/instance-type", "c-2x-amd64-linux"),
                requirement("karpenter.sh/capacity-type", "on-demand"),
            ],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
            "expireAfter": "Never",
        }});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        self.create(object).await
    }

    pub(crate) async fn find(&self, name: &str) -> Option<NodeClaim> {
        self.all::<NodeClaim>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn node_of(&self, claim: &NodeClaim) -> Option<Node> {
        let id = claim.status.as_ref().and_then(|status| status.provider_id.clone())?;
        let nodes: Vec<Node> = self.list().await;
        nodes
            .into_iter()
            .find(|node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()) == Some(&id))
    }

    /// Waits until the condition has the status.
    pub(crate) async fn until_condition(&self, name: &str, kind: &str, status: ConditionStatus) -> NodeClaim {
        let is = |claim: &Option<NodeClaim>| {
            claim
                .as_ref()
                .and_then(|claim| condition(claim, kind))
                .is_some_and(|found| found.status == status)
        };
        let what = format!("{kind} of {name} is {status:?}");
        self.until(&what, async || self.find(name).await, is).await.expect("the claim")
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(&format!("{name} is gone"), async || self.find(name).await, Option::is_none).await;
    }

    /// What the controllers recorded about a NodeClaim.
    pub(crate) fn outcomes(&self, name: &str) -> Vec<LifecycleOutcome> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.iter().filter(|(claim, _)| claim == name).map(|(_, outcome)| outcome.clone()).collect()
    }
}

/// Status, reason and message of a condition.
pub(crate) fn condition_of(claim: &NodeClaim, kind: &str) -> (String, String, String) {
    let found = condition(claim, kind).cloned().unwrap_or_default();
    (found.status.as_str().to_owned(), found.reason, found.message)
}

/// A controller that removes the finalizers of deleted nodes at once, without a drain.
struct ToyTermination {
    context: Context,
}

impl ToyTermination {
    fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.nodes.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
    }
}

impl Reconcile for ToyTermination {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(node) = self.context.stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let finalizers = node.metadata.finalizers.clone().unwrap_or_default();
        let is_ours = finalizers.iter().any(|finalizer| finalizer == FINALIZER_TERMINATION);
        if node.metadata.deletion_timestamp.is_none() || !is_ours {
            return Ok(Requeue::No);
        }
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        for claim in self.context.stores.node_claims.list() {
            let is_owner =
                claim.status.as_ref().is_some_and(|status| status.provider_id.as_ref() == Some(&id));
            if is_owner && claim.metadata.deletion_timestamp.is_none() {
                let claims: Api<NodeClaim> = Api::all(self.context.client.clone());
                claims
                    .delete(claim.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default())
                    .await?;
            }
        }
        let nodes: Api<Node> = Api::all(self.context.client.clone());
        let left: Vec<&String> =
            finalizers.iter().filter(|finalizer| *finalizer != FINALIZER_TERMINATION).collect();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": left}}));
        nodes.patch(&key.name, &PatchParams::default(), &patch).await?;
        Ok(Requeue::No)
    }
}
