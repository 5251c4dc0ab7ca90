//! The provider itself: launches that are under way are held here, everything older is read from the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{
    ConditionStatus, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeClassReference, NodePool,
};
use karpenter_catalog::{CatalogError, aws, kwok as catalog};
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RepairPolicy};
use karpenter_cluster::clock::Clock;
use karpenter_model::instance_type::InstanceType;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::choice::{candidates, unknown_type};
use crate::ec2::EC2_NODE_CLASS_KIND;
use crate::faults::{Faults, Registration};
use crate::naming;
use crate::node::{self, KWOK_MARK, KWOK_MARK_VALUE, PROVIDER_ID_PREFIX};
use crate::sickness;
use crate::unavailable::Unavailable;

pub const NODE_CLASS_KIND: NodeClassKind = NodeClassKind {
    group: "karpenter.kwok.sh",
    version: "v1alpha1",
    kind: "KWOKNodeClass",
    plural: "kwoknodeclasses",
};

/// A list of nodes is read in parts of this size.
const PAGE_SIZE: u32 = 500;
/// A Node that the API server does not take is offered again, at growing distances, about this often.
const CREATE_ATTEMPTS_MAX: u32 = 20;
const CREATE_PAUSE_FIRST: Duration = Duration::from_millis(100);
const CREATE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Launches that could not be taken up again are tried again, at growing distances, until they can or are called off.
const RESUME_PAUSE_FIRST: Duration = Duration::from_secs(1);
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The simulated cloud of one cluster. Clones are the same cloud.
#[derive(Clone)]
pub struct Kwok {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Clock,
    well_known: BTreeSet<Arc<str>>,
    unavailable: Mutex<Unavailable>,
    /// What pools of an EC2NodeClass can buy, where this cloud plays EC2 as well.
    ec2: Option<Mutex<Unavailable>>,
    faults: Mutex<Faults>,
    /// Machines that have no Node yet, by the uid of their claim.
    under_way: Mutex<BTreeMap<String, Node>>,
}

impl Kwok {
    pub fn new(client: Client, clock: Clock, types: Vec<InstanceType>) -> Self {
        Self::with_markets(client, clock, types, None)
    }

    /// With the types that kwok brings along, and these for pools whose node class is an EC2NodeClass: the classes have
    /// to be said to be ready by somebody, such as [`crate::Ec2Classes`].
    pub fn playing_ec2(client: Client, clock: Clock, types: Vec<InstanceType>) -> Self {
        Self::with_markets(client, clock, catalog::generic(), Some(types))
    }

    fn with_markets(
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
            unavailable: Mutex::new(Unavailable::new(types)),
            ec2: ec2.map(|types| Mutex::new(Unavailable::new(Arc::new(types)))),
            faults: Mutex::default(),
            under_way: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// With the types that kwok brings along.
    pub fn generic(client: Client, clock: Clock) -> Self {
        Self::new(client, clock, catalog::generic())
    }

    /// With types in kwok's JSON format.
    pub fn from_json(client: Client, clock: Clock, text: &str) -> Result<Self, CatalogError> {
        Ok(Self::new(client, clock, catalog::parse(text)?))
    }

    /// Changes what goes wrong from now on.
    pub fn change_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut lock(&self.inner.faults))
    }

    /// Ends a machine as a cloud does that asks nobody: its node stays behind and falls silent.
    pub async fn vanish(&self, provider_id: &str) -> Result<(), CloudError> {
        self.change_faults(|faults| faults.vanished.insert(provider_id.to_owned()));
        let name = provider_id.strip_prefix(PROVIDER_ID_PREFIX).unwrap_or(provider_id);
        let silence = json!({"metadata": {"annotations": {"fake-kubelet/dies-at": self.inner.clock.now().to_string()}}});
        let answer = self.inner.nodes().patch(name, &PatchParams::default(), &Patch::Merge(silence)).await;
        answer.map(drop).or_else(|error| if is_code(&error, 404) { Ok(()) } else { Err(failure(error)) })
    }

    /// Gives a node a condition that says it is sick, until [`Kwok::heal`] takes it off; a heartbeat leaves it alone.
    pub async fn sicken(
        &self,
        node: &str,
        condition: &str,
        status: &str,
        reason: &str,
    ) -> Result<(), CloudError> {
        let now = self.inner.clock.time();
        sickness::write_condition(&self.inner.nodes(), node, (condition, status, reason), now).await
    }

    /// Takes a condition off a node.
    pub async fn heal(&self, node: &str, condition: &str) -> Result<(), CloudError> {
        sickness::remove_condition(&self.inner.nodes(), node, condition).await
    }

    /// Takes launches up again whose process ended before their Node existed. To be called once after a restart. What
    /// fails is tried again behind the caller's back, and holds up neither the caller nor the other launches.
    pub async fn resume(&self) {
        if self.take_up_all().await {
            return;
        }
        let cloud = self.clone();
        tokio::spawn(async move {
            let mut pause = RESUME_PAUSE_FIRST;
            loop {
                cloud.inner.clock.sleep(pause).await;
                if cloud.take_up_all().await {
                    return;
                }
                pause = (pause * 2).min(RESUME_PAUSE_MAX);
            }
        });
    }

    /// Whether nothing is left that an earlier process began.
    async fn take_up_all(&self) -> bool {
        let claims: Api<NodeClaim> = Api::all(self.inner.client.clone());
        let claims = match claims.list(&ListParams::default()).await {
            Ok(claims) => claims,
            Err(error) => {
                tracing::error!(%error, "listing nodeclaims whose launch an earlier process began");
                return false;
            }
        };
        let mut is_all = true;
        for claim in claims.iter().filter(|claim| is_half_launched(claim)) {
            if let Err(error) = self.launch(claim).await {
                is_all = false;
                let name = claim.name_any();
                tracing::error!(nodeclaim = name, %error, "taking up a launch that an earlier process began");
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
        if let Some(node) = lock(&inner.under_way).get(&uid) {
            return Ok(node::instance(node));
        }
        if let Some(node) = inner.nodes().get_opt(&name).await.map_err(failure)? {
            return Ok(node::instance(&node));
        }
        let delay = self.registration_delay(claim).await?;
        let node = self.choose(claim, &uid)?;
        let instance = node::instance(&node);
        // Of two callers that came this far together, one launches.
        let first = lock(&inner.under_way).insert(uid.clone(), node).is_none();
        let registration = lock(&inner.faults).registration;
        let wait = match registration {
            Registration::Normal => Some(delay),
            Registration::Slower(more) => Some(delay + more),
            Registration::Never => None,
        };
        if let (true, Some(wait)) = (first, wait) {
            tokio::spawn(inner.clone().bring_up(uid, wait));
        }
        Ok(instance)
    }

    async fn registration_delay(&self, claim: &NodeClaim) -> Result<Duration, CloudError> {
        let name = &claim.spec.node_class_ref.name;
        if self.inner.plays(&claim.spec.node_class_ref) {
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

    /// The Node of the cheapest offering that is not sold out. Those that are get remembered.
    fn choose(&self, claim: &NodeClaim, uid: &str) -> Result<Node, CloudError> {
        let now = self.inner.clock.now();
        let market = self.inner.market(&claim.spec.node_class_ref);
        let types = lock(market).types(now);
        if let Some(name) = unknown_type(claim, &types) {
            return Err(CloudError::Transient { message: format!("instance type {name:?} not found") });
        }
        let faults = lock(&self.inner.faults).clone();
        for choice in candidates(claim, &types, naming::number(uid)) {
            if !faults.is_sold_out(&choice.instance_type.name, choice.offering) {
                return Ok(node::build(claim, choice));
            }
            lock(market).refuse(&choice.instance_type.name, choice.offering, now);
        }
        Err(CloudError::InsufficientCapacity {
            message: "no offering that the claim allows is available".to_owned(),
        })
    }

    async fn end(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.delete_errors.pop_front()) {
            return Err(error);
        }
        let name = naming::node_of(claim);
        // A task that still waits to bring the Node up finds nothing to do.
        lock(&inner.under_way).retain(|_, node| node.metadata.name.as_deref() != Some(&name));
        inner.remove(&name).await.map_err(failure)?;
        Err(not_found(&name))
    }

    async fn restart(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.reboot_errors.pop_front()) {
            return Err(error);
        }
        let status = claim.status.as_ref();
        let Some(name) = status.and_then(|status| status.node_name.as_deref()) else {
            return Err(CloudError::Transient { message: "the node is not registered".to_owned() });
        };
        let id = status.and_then(|status| status.provider_id.as_deref()).unwrap_or_default();
        let (is_gone, is_stuck) = {
            let faults = lock(&inner.faults);
            (faults.vanished.contains(id), faults.stuck_reboots.contains(id))
        };
        if is_gone {
            return Err(not_found(id));
        }
        if is_stuck {
            return Ok(());
        }
        sickness::write_boot_id(&inner.nodes(), name, operation_id).await
    }

    async fn find(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let inner = &self.inner;
        if let Some(error) = self.change_faults(|faults| faults.get_errors.pop_front()) {
            return Err(error);
        }
        let vanished = lock(&inner.faults).vanished.contains(provider_id);
        let Some(name) = provider_id.strip_prefix(PROVIDER_ID_PREFIX).filter(|_| !vanished) else {
            return Err(not_found(provider_id));
        };
        let waiting = lock(&inner.under_way)
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
        // Before the list: a Node that appears in between is then seen twice, not never.
        let waiting: Vec<Instance> = lock(&inner.under_way).values().map(node::instance).collect();
        let mut found: BTreeMap<String, Instance> =
            waiting.into_iter().map(|instance| (instance.provider_id.clone(), instance)).collect();
        let mut page =
            ListParams::default().labels(&format!("{KWOK_MARK}={KWOK_MARK_VALUE}")).limit(PAGE_SIZE);
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
        Ok(found.into_values().filter(|instance| !faults.vanished.contains(&instance.provider_id)).collect())
    }
}

impl Inner {
    /// Whether the class is one of EC2's that this cloud has taken on.
    fn plays(&self, class: &NodeClassReference) -> bool {
        self.ec2.is_some() && class.kind == EC2_NODE_CLASS_KIND.kind
    }

    fn market(&self, class: &NodeClassReference) -> &Mutex<Unavailable> {
        self.ec2.as_ref().filter(|_| self.plays(class)).unwrap_or(&self.unavailable)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates the Node of a launch once its time has come, unless the launch was called off.
    async fn bring_up(self: Arc<Self>, uid: String, wait: Duration) {
        self.clock.sleep(wait).await;
        let mut pause = CREATE_PAUSE_FIRST;
        let mut created = None;
        let mut refusal = None;
        for _ in 0..CREATE_ATTEMPTS_MAX {
            let Some(node) = lock(&self.under_way).get(&uid).cloned() else { return };
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
                    pause = (pause * 2).min(CREATE_PAUSE_MAX);
                }
            }
        }
        let node = lock(&self.under_way).remove(&uid);
        let called_off = node.is_none();
        if let (Some(node), Some(error)) = (node, refusal) {
            let name = node.metadata.name.unwrap_or_default();
            tracing::error!(node = name, %error, "a node could not be created; its machine is given up");
        }
        if let (true, Some(name)) = (called_off, created) {
            // Called off while the Node was being created. It belongs to its claim, so a failure here leaves nothing
            // behind for long.
            let _ = self.remove(&name).await;
        }
    }

    /// Deletes a Node unless that is under way.
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
        Box::pin(self.end(claim))
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(self.find(provider_id))
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(self.list_all())
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        let market = self.inner.market(&pool.spec.template.spec.node_class_ref);
        let types = lock(market).types(self.inner.clock.now());
        Box::pin(std::future::ready(Ok(types)))
    }

    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        let id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
        let reason = id.and_then(|id| lock(&self.inner.faults).drifted.get(id).cloned());
        Box::pin(std::future::ready(Ok(reason)))
    }

    fn reboot<'a>(&'a self, claim: &'a NodeClaim, operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(self.restart(claim, operation_id))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        sickness::repair_policies()
    }
}

/// Whether the claim has a machine of ours and waits for its node.
fn is_half_launched(claim: &NodeClaim) -> bool {
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
    CloudError::NotFound { message: format!("there is no instance {name}") }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The API server plays the cloud, so its refusals are the cloud's.
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
