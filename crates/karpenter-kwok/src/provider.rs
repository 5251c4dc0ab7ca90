//! The cloud provider. Instances whose Node does not exist yet are kept in memory; all others are read from the API
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{
    ConditionStatus, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeClassReference, NodePool,
};
use karpenter_catalog::{CatalogError, aws, kwok as catalog};
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RepairPolicy};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::choice::{candidates, unknown_type};
use crate::ec2::EC2_NODE_CLASS_KIND;
use crate::faults::{Faults, Registration};
use crate::health;
use crate::naming;
use crate::node::{self, KWOK_NODE, KWOK_NODE_VALUE, PROVIDER_ID_PREFIX};
use crate::unavailable::UnavailableOfferings;

pub const NODE_CLASS_KIND: NodeClassKind = NodeClassKind {
    group: "karpenter.kwok.sh",
    version: "v1alpha1",
    kind: "KWOKNodeClass",
    plural: "kwoknodeclasses",
};

/// The number of Nodes per page of a list request.
const PAGE_SIZE: u32 = 500;
/// How often creating a Node is attempted, with increasing back-off, before the launch is given up.
const CREATE_ATTEMPTS_MAX: u32 = 20;
const CREATE_BACKOFF_MIN: Duration = Duration::from_millis(100);
const CREATE_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// The first delay between attempts to resume launches of an earlier process.
const RESUME_BACKOFF_MIN: Duration = Duration::from_secs(1);
const RESUME_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// The simulated cloud of one cluster. All clones share its state.
#[derive(Clone)]
pub struct Kwok {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Clock,
    well_known: BTreeSet<Arc<str>>,
    unavailable: Mutex<UnavailableOfferings>,
    /// The instance types for NodePools that use an EC2NodeClass; `None` if EC2 is not simulated.
    ec2: Option<Mutex<UnavailableOfferings>>,
    faults: Mutex<Faults>,
    /// Instances that have no Node yet, by the uid of their NodeClaim.
    launching: Mutex<BTreeMap<String, Node>>,
}

impl Kwok {
    pub fn new(client: Client, clock: Clock, types: Vec<InstanceType>) -> Self {
        Self::with_catalogs(client, clock, types, None)
    }

    /// Creates a provider with kwok's built-in instance types, and with `types` for NodePools that use an EC2NodeClass.
    /// Another component, such as [`crate::Ec2Classes`], must set these classes to ready.
    pub fn with_simulated_ec2(client: Client, clock: Clock, types: Vec<InstanceType>) -> Self {
        Self::with_catalogs(client, clock, catalog::generic(), Some(types))
    }

    fn with_catalogs(
        client: Client,
        clock: Clock,
        types: Vec<InstanceType>,
        ec2: Option<Vec<InstanceType>>,
    ) -> Self {
        let types = Arc::new(types);
        let mut well_known = catalog::well_known_labels(&types);
        if ec2.is_some() {
            well_known.extend(aws::labels::WELL_KNOWN.map(Arc::from));
        }
        let inner = Inner {
            client,
            clock,
            well_known,
            unavailable: Mutex::new(UnavailableOfferings::new(types)),
            ec2: ec2.map(|types| Mutex::new(UnavailableOfferings::new(Arc::new(types)))),
            faults: Mutex::default(),
            launching: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Creates a provider with kwok's built-in instance types.
    pub fn generic(client: Client, clock: Clock) -> Self {
        Self::new(client, clock, catalog::generic())
    }

    /// Creates a provider with instance types given in kwok's JSON format.
    pub fn from_json(client: Client, clock: Clock, text: &str) -> Result<Self, CatalogError> {
        Ok(Self::new(client, clock, catalog::parse(text)?))
    }

    /// Changes which faults are active.
    pub fn change_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut lock(&self.inner.faults))
    }

    /// Simulates that the cloud terminates an instance without a request: the Node stays, but its heartbeat stops.
    pub async fn terminate_externally(&self, provider_id: &str) -> Result<(), CloudError> {
        self.change_faults(|faults| faults.terminated_externally.insert(provider_id.to_owned()));
        let name = provider_id.strip_prefix(PROVIDER_ID_PREFIX).unwrap_or(provider_id);
        let silence = json!({"metadata": {"annotations": {"fake-kubelet/dies-at": self.inner.clock.now().to_string()}}});
        let answer = self.inner.nodes().patch(name, &PatchParams::default(), &Patch::Merge(silence)).await;
        answer.map(drop).or_else(|error| if is_code(&error, 404) { Ok(()) } else { Err(failure(error)) })
    }

    /// Sets a condition of a node that heartbeats do not reset. [`Kwok::remove_condition`] removes it.
    pub async fn inject_condition(
        &self,
        node: &str,
        condition: &str,
        status: &str,
        reason: &str,
    ) -> Result<(), CloudError> {
        let now = self.inner.clock.time();
        health::write_condition(&self.inner.nodes(), node, (condition, status, reason), now).await
    }

    /// Removes a node condition.
    pub async fn remove_condition(&self, node: &str, condition: &str) -> Result<(), CloudError> {
        health::remove_condition(&self.inner.nodes(), node, condition).await
    }

    /// Resumes launches whose process exited before it created the Node. Must be called once after the start. Launches
    /// that fail are retried in the background, without delaying the caller or other launches.
    pub async fn resume(&self) {
        if self.resume_launches().await {
            return;
        }
        let cloud = self.clone();
        tokio::spawn(async move {
            let mut pause = RESUME_BACKOFF_MIN;
            loop {
                cloud.inner.clock.sleep(pause).await;
                if cloud.resume_launches().await {
                    return;
                }
                pause = (pause * 2).min(RESUME_BACKOFF_MAX);
            }
        });
    }

    /// Resumes launches of an earlier process; returns true if none failed.
    async fn resume_launches(&self) -> bool {
        let claims: Api<NodeClaim> = Api::all(self.inner.client.clone());
        let claims = match claims.list(&ListParams::default()).await {
            Ok(claims) => claims,
            Err(error) => {
                tracing::error!(%error, "failed to list nodeclaims to resume their launch");
                return false;
            }
        };
        let mut is_all = true;
        for claim in claims.iter().filter(|claim| is_awaiting_node(claim)) {
            if let Err(error) = self.launch(claim).await {
                is_all = false;
                let name = claim.name_any();
                tracing::error!(nodeclaim = name, %error, "failed to resume launch of an earlier process");
            }
        }
        is_all
    }

    async fn launch(&self, claim: &NodeClaim) -> Result<Instance, CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.create_errors.pop_front()) {
            return Err(error);
        }
        let uid = claim.uid().unwrap_or_default();
        let name = naming::node_of(claim);
        if let Some(node) = lock(&inner.launching).get(&uid) {
            return Ok(node::instance(node));
        }
        if let Some(node) = inner.nodes().get_opt(&name).await.map_err(failure)? {
            return Ok(node::instance(&node));
        }
        let delay = self.registration_delay(claim).await?;
        let node = self.choose(claim, &uid)?;
        let instance = node::instance(&node);
        // If there are two calls for one NodeClaim at the same time, only one of them creates the Node.
        let first = lock(&inner.launching).insert(uid.clone(), node).is_none();
        let registration = lock(&inner.faults).registration;
        let wait = match registration {
            Registration::Normal => Some(delay),
            Registration::Slower(more) => Some(delay + more),
            Registration::Never => None,
        };
        if let (true, Some(wait)) = (first, wait) {
            tokio::spawn(inner.clone().create_node_after(uid, wait));
        }
        Ok(instance)
    }

    async fn registration_delay(&self, claim: &NodeClaim) -> Result<Duration, CloudError> {
        let name = &claim.spec.node_class_ref.name;
        if self.inner.is_simulated_ec2(&claim.spec.node_class_ref) {
            let classes: Api<EC2NodeClass> = Api::all(self.inner.client.clone());
            return match classes.get_opt(name).await.map_err(failure)? {
                Some(_) => Ok(Duration::ZERO),
                None => Err(CloudError::InsufficientCapacity {
                    message: format!("resolving node class from nodeclaim, EC2NodeClass {name:?} not found"),
                }),
            };
        }
        let classes: Api<KWOKNodeClass> = Api::all(self.inner.client.clone());
        let Some(class) = classes.get_opt(name).await.map_err(failure)? else {
            let message = format!(
                "resolving node class from nodeclaim, kwoknodeclasses.karpenter.kwok.sh {name:?} not found"
            );
            return Err(CloudError::InsufficientCapacity { message });
        };
        let conditions = class.status.into_iter().flat_map(|status| status.conditions);
        let refused = conditions
            .filter(|condition| condition.type_ == "Ready" && condition.status == ConditionStatus::False)
            .map(|condition| condition.message)
            .next();
        if let Some(message) = refused {
            return Err(CloudError::NodeClassNotReady { message });
        }
        let delay = class.spec.node_registration_delay.map_or(0, |delay| delay.nanos);
        Ok(Duration::from_nanos(u64::try_from(delay).unwrap_or(0)))
    }

    /// The Node for the cheapest offering that has capacity. Offerings without capacity are marked as unavailable.
    fn choose(&self, claim: &NodeClaim, uid: &str) -> Result<Node, CloudError> {
        let now = self.inner.clock.now();
        let offerings = self.inner.offerings_of(&claim.spec.node_class_ref);
        let types = lock(offerings).types(now);
        if let Some(name) = unknown_type(claim, &types) {
            return Err(CloudError::Transient { message: format!("instance type {name:?} not found") });
        }
        let faults = lock(&self.inner.faults).clone();
        for choice in candidates(claim, &types, naming::number(uid)) {
            if !faults.lacks_capacity(&choice.instance_type.name, choice.offering) {
                return Ok(node::build(claim, choice));
            }
            lock(offerings).mark_unavailable(&choice.instance_type.name, choice.offering, now);
        }
        Err(CloudError::InsufficientCapacity {
            message: "no offering that is compatible with the nodeclaim is available".to_owned(),
        })
    }

    async fn terminate(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.delete_errors.pop_front()) {
            return Err(error);
        }
        let name = naming::node_of(claim);
        // The task that would create the Node then finds no entry, and ends.
        lock(&inner.launching).retain(|_, node| node.metadata.name.as_deref() != Some(&name));
        inner.remove(&name).await.map_err(failure)?;
        Err(not_found(&name))
    }

    async fn reboot_instance(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.reboot_errors.pop_front()) {
            return Err(error);
        }
        let status = claim.status.as_ref();
        let Some(name) = status.and_then(|status| status.node_name.as_deref()) else {
            return Err(CloudError::Transient { message: "nodeclaim has no registered node".to_owned() });
        };
        let id = status.and_then(|status| status.provider_id.as_deref()).unwrap_or_default();
        let (is_gone, is_stuck) = {
            let faults = lock(&inner.faults);
            (faults.terminated_externally.contains(id), faults.stuck_reboots.contains(id))
        };
        if is_gone {
            return Err(not_found(id));
        }
        if is_stuck {
            return Ok(());
        }
        health::write_boot_id(&inner.nodes(), name, operation_id).await
    }

    async fn find(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.get_errors.pop_front()) {
            return Err(error);
        }
        let terminated_externally = lock(&inner.faults).terminated_externally.contains(provider_id);
        let Some(name) = provider_id.strip_prefix(PROVIDER_ID_PREFIX).filter(|_| !terminated_externally)
        else {
            return Err(not_found(provider_id));
        };
        let waiting = lock(&inner.launching)
            .values()
            .find(|node| node.metadata.name.as_deref() == Some(name))
            .map(node::instance);
        if let Some(instance) = waiting {
            return Ok(instance);
        }
        let node = inner.nodes().get_opt(name).await.map_err(failure)?;
        let alive = node.filter(|node| node.metadata.deletion_timestamp.is_none());
        alive.as_ref().map(node::instance).ok_or_else(|| not_found(name))
    }

    async fn list_all(&self) -> Result<Vec<Instance>, CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.list_errors.pop_front()) {
            return Err(error);
        }
        // The launches are read before the Nodes are listed. Otherwise an instance whose Node is created in between
        // would be missing.
        let waiting: Vec<Instance> = lock(&inner.launching).values().map(node::instance).collect();
        let mut found: BTreeMap<String, Instance> =
            waiting.into_iter().map(|instance| (instance.provider_id.clone(), instance)).collect();
        let mut page =
            ListParams::default().labels(&format!("{KWOK_NODE}={KWOK_NODE_VALUE}")).limit(PAGE_SIZE);
        loop {
            let nodes = inner.nodes().list(&page).await.map_err(failure)?;
            let ours = nodes
                .items
                .iter()
                .filter(|node| node::provider_id(node).is_some_and(|id| id.starts_with(PROVIDER_ID_PREFIX)));
            found.extend(ours.map(node::instance).map(|instance| (instance.provider_id.clone(), instance)));
            match nodes.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => break,
            }
        }
        let faults = lock(&inner.faults);
        Ok(found
            .into_values()
            .filter(|instance| !faults.terminated_externally.contains(&instance.provider_id))
            .collect())
    }
}

impl Inner {
    /// Whether the node class is an EC2NodeClass and EC2 is simulated.
    fn is_simulated_ec2(&self, class: &NodeClassReference) -> bool {
        self.ec2.is_some() && class.kind == EC2_NODE_CLASS_KIND.kind
    }

    fn offerings_of(&self, class: &NodeClassReference) -> &Mutex<UnavailableOfferings> {
        self.ec2.as_ref().filter(|_| self.is_simulated_ec2(class)).unwrap_or(&self.unavailable)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates the Node of a launch after the delay, unless the launch is cancelled before.
    async fn create_node_after(self: Arc<Self>, uid: String, wait: Duration) {
        self.clock.sleep(wait).await;
        let mut pause = CREATE_BACKOFF_MIN;
        let mut created = None;
        let mut refusal = None;
        for _ in 0..CREATE_ATTEMPTS_MAX {
            let Some(node) = lock(&self.launching).get(&uid).cloned() else { return };
            match self.nodes().create(&PostParams::default(), &node).await {
                Ok(node) => {
                    (created, refusal) = (node.metadata.name, None);
                    break;
                }
                Err(error) if is_code(&error, 409) => {
                    refusal = None;
                    break;
                }
                Err(error) => {
                    refusal = Some(error);
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(CREATE_BACKOFF_MAX);
                }
            }
        }
        let node = lock(&self.launching).remove(&uid);
        let called_off = node.is_none();
        if let (Some(node), Some(error)) = (node, refusal) {
            let name = node.metadata.name.unwrap_or_default();
            tracing::error!(node = name, %error, "failed to create node, launch is abandoned");
        }
        if let (true, Some(name)) = (called_off, created) {
            // The launch was cancelled while the Node was being created. If removing the Node fails, garbage collection
            // deletes it, because the NodeClaim owns it.
            let _ = self.remove(&name).await;
        }
    }

    /// Deletes a Node, unless it is already terminating.
    async fn remove(&self, name: &str) -> kube::Result<()> {
        let Some(node) = self.nodes().get_opt(name).await? else { return Ok(()) };
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let same = Preconditions { uid: node.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        match self.nodes().delete(name, &params).await {
            Err(error) if !is_code(&error, 404) && !is_code(&error, 409) => Err(error),
            _ => Ok(()),
        }
    }
}

impl CloudProvider for Kwok {
    fn name(&self) -> &'static str {
        "kwok"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        let ec2 = self.inner.ec2.as_ref().map(|_| EC2_NODE_CLASS_KIND);
        std::iter::once(NODE_CLASS_KIND).chain(ec2).collect()
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        self.inner.well_known.clone()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        Box::pin(self.launch(claim))
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(self.terminate(claim))
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(self.find(provider_id))
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(self.list_all())
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        let offerings = self.inner.offerings_of(&pool.spec.template.spec.node_class_ref);
        let types = lock(offerings).types(self.inner.clock.now());
        Box::pin(std::future::ready(Ok(types)))
    }

    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        let id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
        let reason = id.and_then(|id| lock(&self.inner.faults).drifted.get(id).cloned());
        Box::pin(std::future::ready(Ok(reason)))
    }

    fn reboot<'a>(&'a self, claim: &'a NodeClaim, operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(self.reboot_instance(claim, operation_id))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        health::repair_policies()
    }
}

/// Whether the NodeClaim has an instance of this provider, but no Node yet.
fn is_awaiting_node(claim: &NodeClaim) -> bool {
    let launched = claim.status.as_ref().is_some_and(|status| {
        status.provider_id.as_deref().is_some_and(|id| id.starts_with(PROVIDER_ID_PREFIX))
            && status.node_name.is_none()
    });
    launched && claim.metadata.deletion_timestamp.is_none()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn not_found(name: &str) -> CloudError {
    CloudError::NotFound { message: format!("instance {name} not found") }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Converts an error of the API server, which plays the part of the cloud's API.
pub(crate) fn failure(error: kube::Error) -> CloudError {
    let message = match &error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    match &error {
        kube::Error::Api(status) if status.code == 429 => CloudError::Throttled { message },
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => CloudError::Unauthorized { message },
        _ => CloudError::Transient { message },
    }
}
