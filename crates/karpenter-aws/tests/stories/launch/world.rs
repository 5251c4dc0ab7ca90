//! A test environment with a ready node class, a few instance types, and a provider that is built as in the controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use karpenter_api::types::{EC2NodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_aws::api::ec2::{CreateFleet, LaunchTemplateData};
use karpenter_aws::cluster_facts::{ClusterCidr, ClusterFacts};
use karpenter_aws::drift::LiveDrift;
use karpenter_aws::fake::FakeAws;
use karpenter_aws::instances::Instances;
use karpenter_aws::kubelet::Expressions;
use karpenter_aws::launch::templates::LaunchTemplates;
use karpenter_aws::launch::{LaunchMetrics, LaunchParts, LaunchSettings, Launcher};
use karpenter_aws::node_class::Lookup;
use karpenter_aws::options::AwsFeatureGates;
use karpenter_aws::placement_groups::PlacementGroups;
use karpenter_aws::pricing::PriceBook;
use karpenter_aws::provider::{AwsProvider, ClassKubelet, Objects, ProviderParts};
use karpenter_aws::reservations::Reservations;
use karpenter_aws::subnets::Subnets;
use karpenter_aws::types::{InstanceTypes, TypeOptions, TypeSources};
use karpenter_aws::unavailable::Unavailable;
use karpenter_aws::zonal_shift::ZonalShifts;
use karpenter_cloud::{CloudError, CloudProvider, Instance};
use karpenter_controllers::events::Recorder;
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

pub(crate) const REGION: &str = "us-west-2";

/// Instance types of different sizes and architectures, with and without accelerators.
const TYPES: [&str; 13] = [
    "c5.large",
    "c5.xlarge",
    "g4dn.xlarge",
    "inf2.xlarge",
    "m5.2xlarge",
    "m5.large",
    "m5.metal",
    "m5.xlarge",
    "m6g.large",
    "p4d.24xlarge",
    "r5.large",
    "t3.large",
    "t3.medium",
];

/// The NodePools and node classes that the provider sees; there is no cluster.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) classes: Mutex<BTreeMap<String, Arc<EC2NodeClass>>>,
    pub(crate) pools: Mutex<BTreeMap<String, Arc<NodePool>>>,
}

impl Objects for Stored {
    fn class(&self, name: &str) -> Lookup {
        self.classes.lock().unwrap().get(name).cloned().map_or(Lookup::Missing, Lookup::Found)
    }

    fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.pools.lock().unwrap().get(name).cloned()
    }
}

pub(crate) struct World {
    pub(crate) cloud: Arc<FakeAws>,
    pub(crate) provider: AwsProvider,
    pub(crate) launcher: Launcher,
    pub(crate) objects: Arc<Stored>,
    pub(crate) subnets: Arc<Subnets>,
    pub(crate) shifts: ZonalShifts,
    pub(crate) metrics: LaunchMetrics,
    pub(crate) clock: Clock,
    pub(crate) drift: Arc<LiveDrift>,
    client: Client,
    claims: Mutex<u32>,
}

pub(crate) struct Setup {
    pub(crate) reserved_capacity: bool,
    pub(crate) min_values_are_strict: bool,
    pub(crate) dns_ip: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { reserved_capacity: true, min_values_are_strict: true, dns_ip: Some("10.100.0.10") }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let cloud = FakeAws::new(clock, REGION);
        cloud.world(|world| {
            world.types.retain(|info| TYPES.contains(&&*info.name));
            world.offerings.retain(|offering| TYPES.contains(&offering.instance_type.as_str()));
            world.add_al2023_images("1.35");
        });
        let (apis, registry) = (cloud.apis(), prometheus::Registry::new());
        let ec2 = &apis.ec2;
        let shifts = ZonalShifts::default();
        let unavailable = Unavailable::new(clock);
        let reservations = Reservations::new(Arc::clone(ec2), clock);
        let placement_groups = PlacementGroups::new(Arc::clone(ec2), clock);
        let prices = PriceBook::new(REGION);
        let history = apis.ec2.describe_spot_price_history(clock.now()).await.unwrap();
        prices.update(|known| known.with_spot(&history));
        let options = TypeOptions {
            region: REGION.to_owned(),
            vm_memory_overhead_percent: 0.075,
            reserved_enis: 0,
            uses_reservations: setup.reserved_capacity,
        };
        let sources = TypeSources {
            ec2: Arc::clone(ec2),
            clock,
            prices,
            unavailable: unavailable.clone(),
            reservations: reservations.clone(),
            placement_groups: placement_groups.clone(),
            shifts: shifts.clone(),
        };
        let types = InstanceTypes::new(options, sources);
        types.discover().await.unwrap();
        let cluster = ClusterFacts {
            name: "cluster".to_owned(),
            region: REGION.to_owned(),
            endpoint: "https://cluster.eks.example".to_owned(),
            ca_bundle: Some("Y2x1c3Rlci1jYQ==".to_owned()),
            dns_ip: setup.dns_ip.map(|ip| ip.parse().unwrap()),
        };
        let cluster_cidr = ClusterCidr::new(Arc::clone(&apis.eks), "cluster");
        cluster_cidr.resolve().await.unwrap();
        let subnets = Arc::new(Subnets::new(Arc::clone(ec2), clock, Duration::from_secs(60)));
        let metrics = LaunchMetrics::new(&registry);
        let kubelet_configs = ClassKubelet {
            types: types.clone(),
            gates: AwsFeatureGates::default(),
            expressions: Expressions::new(clock),
            cluster_dns: cluster.dns_ip.map(|ip| ip.to_string()),
        };
        let client = Client::new(ApiServer::new(Config::default()), "default");
        let recorder = Recorder::new(client.clone(), clock);
        let ca_bundle = cluster.ca_bundle.clone();
        let launcher = Launcher::new(LaunchParts {
            ec2: Arc::clone(ec2),
            clock,
            cluster,
            cluster_cidr,
            subnets: Arc::clone(&subnets),
            templates: LaunchTemplates::new(Arc::clone(ec2), clock, "cluster"),
            unavailable,
            reservations: reservations.counts().clone(),
            placement_groups,
            kubelet_configs: Arc::new(kubelet_configs),
            metrics: metrics.clone(),
            recorder: Some(recorder.clone()),
            settings: LaunchSettings {
                reserved_capacity: setup.reserved_capacity,
                min_values_are_strict: setup.min_values_are_strict,
            },
        });
        let instances = Instances::new(Arc::clone(ec2), clock, "cluster", shifts.clone(), metrics.clone());
        let objects = Arc::new(Stored::default());
        let drift = Arc::new(LiveDrift {
            objects: Arc::clone(&objects) as _,
            types: types.clone(),
            instances: instances.clone(),
            recorder: Some(recorder.clone()),
            reserved_capacity: setup.reserved_capacity,
        });
        let provider = AwsProvider::new(ProviderParts {
            clock,
            objects: Arc::clone(&objects) as _,
            types,
            launcher: launcher.clone(),
            instances,
            drift: Some(Arc::clone(&drift) as _),
            overlays: None,
            hooks: Vec::new(),
            recorder: Some(recorder),
            ca_bundle,
            reserved_capacity: setup.reserved_capacity,
        });
        let claims = Mutex::default();
        let world = Self {
            cloud,
            provider,
            launcher,
            objects,
            subnets,
            shifts,
            metrics,
            clock,
            drift,
            client,
            claims,
        };
        world.change_class(|_| ());
        let pool = json!({
            "metadata": {"name": "general", "uid": "pool-uid"},
            "spec": {"template": {"spec": {"nodeClassRef": reference()}}},
        });
        let pool: NodePool = serde_json::from_value(pool).unwrap();
        world.objects.pools.lock().unwrap().insert("general".to_owned(), Arc::new(pool));
        world.learn_addresses().await;
        world.cloud.forget_calls();
        world
    }

    /// Changes the stored node class and sets all its conditions to true.
    pub(crate) fn change_class(&self, change: impl FnOnce(&mut Value)) {
        let mut class = ready_class(&self.cloud);
        change(&mut class);
        let class: EC2NodeClass = serde_json::from_value(class).unwrap();
        self.objects.classes.lock().unwrap().insert("default".to_owned(), Arc::new(class));
    }

    pub(crate) fn class(&self) -> Arc<EC2NodeClass> {
        Arc::clone(&self.objects.classes.lock().unwrap()["default"])
    }

    pub(crate) fn pool(&self) -> NodePool {
        NodePool::clone(&self.objects.pools.lock().unwrap()["general"])
    }

    /// Updates the free addresses in the status, as the nodeclass controller does every minute.
    pub(crate) async fn learn_addresses(&self) {
        self.subnets.list(&self.class()).await.unwrap();
    }

    /// Updates the reservation counts as the nodeclass controller does.
    pub(crate) async fn learn_reservations(&self) {
        let class = self.class();
        let terms = &class.spec.capacity_reservation_selector_terms;
        self.provider.types().reservations().status(terms).await.unwrap();
    }

    /// A NodeClaim of the NodePool with requirements `key In values`.
    pub(crate) fn claim(&self, requirements: &[(&str, &[&str])]) -> NodeClaim {
        let requirements: Vec<Value> = requirements
            .iter()
            .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}))
            .collect();
        self.claim_with(|claim| claim["spec"]["requirements"] = json!(requirements))
    }

    pub(crate) fn claim_with(&self, change: impl FnOnce(&mut Value)) -> NodeClaim {
        let number = {
            let mut claims = self.claims.lock().unwrap();
            *claims += 1;
            *claims
        };
        let mut claim = json!({
            "metadata": {
                "name": format!("general-{number}"), "uid": format!("uid-{number}"),
                "labels": {"karpenter.sh/nodepool": "general"}, "annotations": {},
            },
            "spec": {
                "requirements": [], "nodeClassRef": reference(),
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
            },
        });
        change(&mut claim);
        serde_json::from_value(claim).unwrap()
    }

    pub(crate) async fn launch(&self, requirements: &[(&str, &[&str])]) -> Result<Instance, CloudError> {
        self.provider.create(&self.claim(requirements)).await
    }

    /// The published events, in order, as `type kind name reason: note`.
    pub(crate) async fn events(&self) -> Vec<String> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = api.list(&ListParams::default()).await.unwrap().items.into_iter();
        let mut lines: Vec<String> = events
            .map(|event| {
                let about = event.regarding.unwrap_or_default();
                let words = [event.type_, about.kind, about.name, event.reason, event.note];
                let [level, kind, name, reason, note] = words.map(Option::unwrap_or_default);
                format!("{level} {kind} {name} {reason}: {note}")
            })
            .collect();
        lines.sort();
        lines
    }

    pub(crate) fn fleets(&self) -> Vec<CreateFleet> {
        self.cloud.world(|world| world.fleets.clone())
    }

    pub(crate) fn templates(&self) -> Vec<LaunchTemplateData> {
        self.cloud.world(|world| world.created_templates.iter().map(|made| made.data.clone()).collect())
    }

    /// The overrides of the last fleet, as `type zone`.
    pub(crate) fn offers(&self) -> Vec<String> {
        let fleets = self.fleets();
        let configs = fleets.last().map(|fleet| fleet.launch_template_configs.clone()).unwrap_or_default();
        let offers = configs.iter().flat_map(|config| &config.overrides);
        let mut texts: Vec<String> = offers
            .map(|offer| {
                let zone = offer.zone.as_deref().unwrap_or_default();
                format!("{} {}", offer.instance_type, zone.strip_prefix(REGION).unwrap_or(zone))
            })
            .collect();
        texts.sort();
        texts
    }
}

pub(crate) fn zone(letter: &str) -> String {
    format!("{REGION}{letter}")
}

fn reference() -> Value {
    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"})
}

fn ready_class(cloud: &FakeAws) -> Value {
    let subnets: Vec<Value> = cloud.world(|world| {
        let subnets = world.subnets.values();
        subnets
            .map(|subnet| json!({"id": subnet.id, "zone": subnet.zone, "zoneID": subnet.zone_id}))
            .collect()
    });
    let arch = |value: &str| json!({"key": "kubernetes.io/arch", "operator": "In", "values": [value]});
    let has = |what: &str, operator: &str| json!({"key": format!("karpenter.k8s.aws/instance-{what}-count"), "operator": operator});
    let plain = || [has("gpu", "DoesNotExist"), has("accelerator", "DoesNotExist")];
    let with = |first: Value, rest: Vec<Value>| [vec![first], rest].concat();
    json!({
        "metadata": {"name": "default", "uid": "class-uid", "generation": 1},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "cluster"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "cluster"}}],
            "role": "KarpenterNodeRole-cluster",
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1, "httpTokens": "required",
            },
        },
        "status": {
            "instanceProfile": "cluster_profile",
            "subnets": subnets,
            "securityGroups": [{"id": "sg-nodes", "name": "nodes"}],
            "amis": [
                {"id": "ami-x8664standard", "name": "x86", "requirements": with(arch("amd64"), plain().to_vec())},
                {"id": "ami-arm64standard", "name": "arm", "requirements": with(arch("arm64"), plain().to_vec())},
                {"id": "ami-x8664nvidia", "name": "gpu", "requirements": with(arch("amd64"), vec![has("gpu", "Exists")])},
                {"id": "ami-x8664neuron", "name": "neuron", "requirements": with(arch("amd64"), vec![has("accelerator", "Exists")])},
            ],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}
