//! What all tests on embedded clusters have in common: CRDs, the clock, and access to objects.

use std::fmt::Debug;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use karpenter_api::crds;
use karpenter_api::types::{Condition, NodeClaim};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_controllers::decision_journal::DecisionJournal;
use karpenter_runtime::clock::Clock;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The time at which every test starts.
pub(crate) const EPOCH: &str = "2026-01-01T12:00:00Z";
/// The maximum time that a test waits for a condition.
const WAIT_MAX: Duration = Duration::from_secs(2 * 3600);
/// How often a condition is checked: in the first minute, and in the next constant after that.
const POLL: Duration = Duration::from_millis(100);
const LATER_POLL: Duration = Duration::from_millis(500);

/// Makes the clock of the test the clock of the API server.
pub(crate) struct TokioClock(pub(crate) Clock);

impl ServerClock for TokioClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) fn clock() -> Clock {
    Clock::starting_at(epoch())
}

pub(crate) fn epoch() -> Timestamp {
    EPOCH.parse().expect("a time")
}

pub(crate) async fn define_kinds(client: &Client) {
    define(client, crds::all()).await;
}

pub(crate) async fn define(client: &Client, definitions: &[crds::Crd]) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in definitions {
        let definition: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
        let parameters = PatchParams::apply("test").force();
        api.patch(crd.name, &parameters, &Patch::Apply(&definition)).await.expect("defined");
    }
}

/// Access to the objects of a cluster. The test environments (`World`) extend it.
pub(crate) struct ClusterView {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The decision journal, which is printed if a test fails.
    pub(crate) journal: Option<DecisionJournal>,
}

impl ClusterView {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, journal: None }
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// The API of a namespaced kind in the default namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        create(&self.all(), object).await
    }

    pub(crate) async fn create_in_default<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        create(&self.api(), object).await
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().list(&ListParams::default()).await.expect("listed").items
    }

    pub(crate) async fn claim(&self, name: &str) -> Option<NodeClaim> {
        self.all::<NodeClaim>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn node(&self, name: &str) -> Option<Node> {
        self.all::<Node>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.expect("pods").items
    }

    /// The messages of events with this reason, each with the name of its object.
    pub(crate) async fn events(&self, reason: &str) -> Vec<(String, String)> {
        let events = self.list::<Event>().await;
        let of_reason = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        of_reason
            .map(|event| (event.involved_object.name.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    pub(crate) fn seconds(&self) -> i64 {
        self.clock.now().duration_since(epoch()).as_secs()
    }

    pub(crate) async fn sleep_until_second(&self, second: i64) {
        self.clock.sleep_until(epoch() + SignedDuration::from_secs(second)).await;
    }

    pub(crate) async fn sleep(&self, seconds: i64) {
        self.sleep_until_second(self.seconds() + seconds).await;
    }

    /// The decisions of a controller in the journal.
    pub(crate) fn decisions_of(&self, controller: &str) -> Vec<String> {
        let entries = self.journal.iter().flat_map(|journal| journal.entries_after(0));
        entries.filter(|entry| entry.by == controller).map(|entry| entry.what).collect()
    }

    /// Calls `read` again and again until `is` returns true for its result, and returns the result. Simulated time
    /// advances meanwhile.
    pub(crate) async fn until<T: Debug>(
        &self,
        what: &str,
        read: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        let began = tokio::time::Instant::now();
        let mut last = read().await;
        while began.elapsed() < WAIT_MAX {
            if is(&last) {
                return last;
            }
            let is_soon = began.elapsed() < Duration::from_secs(60);
            tokio::time::sleep(if is_soon { POLL } else { LATER_POLL }).await;
            last = read().await;
        }
        let decisions = self.decisions_of("disruption");
        panic!("timed out waiting until {what}; last value {last:#?}; decisions: {decisions:#?}");
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of the kind");
    api.create(&PostParams::default(), &object).await.expect("created")
}

pub(crate) fn condition<'a>(claim: &'a NodeClaim, kind: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Status and reason of a condition of a NodeClaim.
pub(crate) fn condition_of(claim: &NodeClaim, kind: &str) -> (&'static str, String) {
    condition(claim, kind).map_or(("", String::new()), |found| (found.status.as_str(), found.reason.clone()))
}

pub(crate) fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}
