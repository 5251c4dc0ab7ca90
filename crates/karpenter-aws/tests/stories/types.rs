//! Tests of the controllers of instance types: discovery, prices, discovered memory, prices that NodeOverlays state,
//! and their metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use karpenter_aws::api::AwsError;
use karpenter_aws::fake::Call;
use karpenter_aws::placement_groups::PlacementGroups;
use karpenter_aws::pricing::{PriceBook, PricingController};
use karpenter_aws::reservations::Reservations;
use karpenter_aws::types::{
    DiscoveryController, InstanceTypes, MemoryController, OfferingMetricsController, OverlayPricesController,
    TypeMetrics, TypeOptions, TypeSources,
};
use karpenter_aws::unavailable::{Scope, Unavailable, UnavailableOffering};
use karpenter_aws::zonal_shift::ZonalShifts;
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_controllers::stores::{OptionalKinds, Stores};
use karpenter_model::instance_type::InstanceType;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::edge::world::World;
use crate::log::Log;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn types_of(world: &World) -> InstanceTypes {
    let ec2 = world.aws.apis().ec2;
    world.aws.world(|cloud| cloud.types.retain(|info| ["m5.large", "c5.xlarge"].contains(&&*info.name)));
    let sources = TypeSources {
        ec2: Arc::clone(&ec2),
        clock: world.clock,
        prices: PriceBook::new("us-west-2"),
        unavailable: Unavailable::new(world.clock),
        reservations: Reservations::new(Arc::clone(&ec2), world.clock),
        placement_groups: PlacementGroups::new(ec2, world.clock),
        shifts: ZonalShifts::default(),
    };
    let options = TypeOptions {
        region: "us-west-2".to_owned(),
        vm_memory_overhead_percent: 0.075,
        reserved_enis: 0,
        uses_reservations: false,
    };
    InstanceTypes::new(options, sources)
}

fn class() -> EC2NodeClass {
    serde_json::from_value(json!({
        "metadata": {"name": "default"},
        "spec": {"amiFamily": "AL2023"},
        "status": {
            "subnets": [{"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az2"}],
            "amis": [{"id": "ami-1", "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            ]}],
        },
    }))
    .expect("a class")
}

/// A cloud provider that only lists instance types.
struct Shop(InstanceTypes);

impl CloudProvider for Shop {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        let group = labels::AWS_GROUP;
        vec![NodeClassKind { group, version: "v1", kind: "EC2NodeClass", plural: "ec2nodeclasses" }]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        Box::pin(async { Err(CloudError::Transient { message: "not here".to_owned() }) })
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(async { Err(CloudError::Transient { message: "not here".to_owned() }) })
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(async { Err(CloudError::NotFound { message: "not here".to_owned() }) })
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns an error for the NodePool `broken`, whose node class is not ready.
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        Box::pin(async move {
            if pool.metadata.name.as_deref() == Some("broken") {
                return Err(CloudError::Transient { message: "no subnets found".to_owned() });
            }
            let types = self.0.list(&class()).await;
            types.map_err(|error| CloudError::Transient { message: error.to_string() })
        })
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test(start_paused = true)]
async fn types_missing_in_tables_are_logged_in_one_warning() {
    let world = World::start().await;
    let log = Log::listen();
    let types = types_of(&world);
    let add = |name: &str| {
        world.aws.world(|cloud| {
            let mut info = cloud.types[0].clone();
            info.name = name.into();
            cloud.types.push(info);
        });
    };
    // Of these types, the second is only in a built-in table, not in the catalog's listing.
    ["m99.large", "c9g.large", "x99.metal"].into_iter().for_each(add);
    let metrics = TypeMetrics::new(world.context.metrics.registry());
    world.spawn(DiscoveryController::new(types, metrics), DiscoveryController::watch, 1);
    world.pass(MINUTE).await;
    let warned = || {
        let lines = log.lines().into_iter().filter(|line| line.level == tracing::Level::WARN);
        lines.map(|line| line.field("instance_types").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warned(), ["m99.large,x99.metal"]);
    add("m98.large");
    world.pass(25 * HOUR).await;
    assert_eq!(warned(), ["m99.large,x99.metal", "m98.large"]);
}

#[tokio::test(start_paused = true)]
async fn discovery_runs_twice_a_day_and_is_retried_after_failure() {
    let world = World::start().await;
    let types = types_of(&world);
    let metrics = TypeMetrics::new(world.context.metrics.registry());
    world.spawn(DiscoveryController::new(types.clone(), metrics), DiscoveryController::watch, 1);
    world.pass(MINUTE).await;
    let asked = || world.aws.count(Call::DescribeInstanceTypes);
    assert_eq!((asked(), types.discovered().types().len()), (1, 2));
    let cores = "karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"c5.xlarge\"}";
    assert_eq!(world.metric(cores), 4.0);

    let busy = AwsError::new("RequestLimitExceeded", "slow down");
    world.aws.fail_next(Call::DescribeInstanceTypes, [busy]);
    world.pass(12 * HOUR).await;
    assert_eq!((asked(), types.discovered().types().len()), (2, 2));
    world.aws.world(|cloud| cloud.types.retain(|info| &*info.name == "m5.large"));
    world.pass(2 * MINUTE).await;
    assert_eq!((asked(), types.discovered().types().len()), (3, 1));
    assert_eq!(world.metric(cores), 0.0, "the series is gone");
    world.pass(11 * HOUR).await;
    assert_eq!(asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn spot_and_on_demand_prices_have_separate_periods() {
    let world = World::start().await;
    let types = types_of(&world);
    let apis = world.aws.apis();
    let controller = PricingController::new(
        apis.ec2,
        apis.pricing,
        world.clock,
        "us-west-2",
        false,
        types.prices().clone(),
    );
    world.aws.fail_next(Call::GetProducts, [AwsError::new("InternalError", "later")]);
    world.spawn(controller, PricingController::watch, 2);
    world.pass(MINUTE / 2).await;
    let asked = || (world.aws.count(Call::GetProducts), world.aws.count(Call::DescribeSpotPriceHistory));
    assert_eq!(asked(), (5, 1), "two lists of instances, three of volumes");
    world.pass(MINUTE).await;
    assert_eq!(asked(), (7, 1), "one of two lists of instances failed");
    world.pass(12 * HOUR).await;
    assert_eq!(asked(), (12, 13));
}

#[tokio::test(start_paused = true)]
async fn memory_is_discovered_from_nodes() {
    let world = World::start().await;
    let types = types_of(&world);
    types.discover().await.expect("an answer");
    let status = serde_json::to_value(class().status).expect("a status");
    world.class("default", status).await;
    world.spawn(
        MemoryController::new(world.context.clone(), types.memory().clone()),
        MemoryController::watch,
        1,
    );
    let memory = || async {
        let listed = types.list(&class()).await.expect("types");
        listed.iter().find(|one| &*one.name == "m5.large").map_or(0, |one| one.capacity.get("memory"))
    };
    let computed = memory().await;
    let claim = |name: &str, instance_id: &str| {
        let (world, name, instance_id) = (&world, name.to_owned(), instance_id.to_owned());
        async move {
            let claims: Api<NodeClaim> = Api::all(world.client.clone());
            world
                .claim(
                    &name,
                    &instance_id,
                    json!({"kubernetes.io/arch": "amd64", labels::REGISTERED: "false"}),
                )
                .await;
            let image = Patch::Merge(json!({"status": {"imageID": "ami-1"}}));
            claims.patch_status(&name, &PatchParams::default(), &image).await.expect("patched");
        }
    };
    let nodes: Api<Node> = Api::all(world.client.clone());
    let update_node = |name: &str, memory: &str, registered: &str| {
        let (nodes, name) = (nodes.clone(), name.to_owned());
        let capacity = Patch::Merge(json!({"status": {"capacity": {"memory": memory}}}));
        let label = Patch::Merge(json!({"metadata": {"labels": {labels::REGISTERED: registered}}}));
        async move {
            nodes.patch_status(&name, &PatchParams::default(), &capacity).await.expect("patched");
            nodes.patch(&name, &PatchParams::default(), &label).await.expect("patched");
        }
    };
    claim("one", "i-1").await;
    update_node("one", "7700Mi", "false").await;
    world.pass(MINUTE).await;
    assert_eq!(memory().await, computed, "not before it is registered");
    update_node("one", "7700Mi", "true").await;
    world.pass(MINUTE).await;
    assert_eq!(memory().await, 7700 << 20);

    // In this test, each node becomes registered twice.
    for (name, instance_id, reported, expected_mib) in
        [("two", "i-2", "7800Mi", 7700), ("three", "i-3", "7600Mi", 7600)]
    {
        claim(name, instance_id).await;
        update_node(name, reported, "false").await;
        update_node(name, reported, "true").await;
        world.pass(MINUTE).await;
        assert_eq!(memory().await, expected_mib << 20, "the next node may be as small as the smallest");
    }
}

#[tokio::test(start_paused = true)]
async fn offering_metrics_are_updated_every_minute() {
    let world = World::start().await;
    let types = types_of(&world);
    types.discover().await.expect("an answer");
    let mut context = world.context.clone();
    context.cloud = Arc::new(Shop(types.clone()));
    for name in ["broken", "default"] {
        let template = json!({"spec": {
            "nodeClassRef": {"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": name}, "requirements": [],
        }});
        world.create::<NodePool>(json!({"metadata": {"name": name}, "spec": {"template": template}})).await;
    }
    let metrics = TypeMetrics::new(context.metrics.registry());
    let controller = OfferingMetricsController::new(context, metrics, true);
    world.spawn(controller, OfferingMetricsController::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    let series = |what: &str, capacity_type: &str| {
        world.metric(&format!(
            "karpenter_cloudprovider_instance_type_offering_{what}{{capacity_type=\"{capacity_type}\",\
             instance_type=\"m5.large\",zone=\"us-west-2a\"}}"
        ))
    };
    assert_eq!((series("available", "spot"), series("price_estimate", "on-demand")), (1.0, 0.096));
    assert_eq!(series("available", "reserved"), 0.0);
    let pool = UnavailableOffering {
        instance_type: "m5.large".to_owned(),
        zone: "us-west-2a".to_owned(),
        capacity_type: "spot".to_owned(),
        scope: Scope::AnyLaunch,
    };
    types.unavailable().mark_pool(pool, "InsufficientInstanceCapacity");
    world.pass(MINUTE).await;
    assert_eq!((series("available", "spot"), series("available", "on-demand")), (0.0, 1.0));
    world.pass(4 * MINUTE).await;
    assert_eq!(series("available", "spot"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn overlays_set_prices_of_types_without_price() {
    let world = World::start().await;
    let types = types_of(&world);
    world.aws.world(|cloud| {
        let mut info = cloud.types[0].clone();
        info.name = "x99.large".into();
        cloud.types.push(info);
        let (instance_type, zone) = ("x99.large".to_owned(), "us-west-2a".to_owned());
        cloud.offerings.push(karpenter_aws::api::ec2::TypeOffering { instance_type, zone });
    });
    types.discover().await.expect("an answer");
    let extras = OptionalKinds { node_overlays: true, ..OptionalKinds::default() };
    let (stores, _) = Stores::watch_with(&world.client, world.context.cloud.node_class_kinds(), extras);
    stores.synced().await;
    let mut context = world.context.clone();
    context.stores = stores;
    world.spawn(OverlayPricesController::new(context, types.clone()), OverlayPricesController::watch, 1);
    let is_available = || async {
        let listed = types.list(&class()).await.expect("types");
        let of_type = listed.iter().filter(|one| &*one.name == "x99.large");
        let mut offerings = of_type.flat_map(|one| &one.offerings);
        offerings.any(|one| one.available && one.instance_price() == 0.5)
    };
    let overlay = json!({
        "metadata": {"name": "x99"},
        "spec": {"price": "0.5", "requirements": [
            {"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["x99.large"]},
        ]},
    });
    world.create::<NodeOverlay>(overlay).await;
    world.pass(MINUTE).await;
    assert!(!is_available().await, "the overlay is not evaluated yet");
    let overlays: Api<NodeOverlay> = Api::all(world.client.clone());
    let checked = json!({"status": {"conditions": [{
        "type": "ValidationSucceeded", "status": "True", "reason": "ValidationSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    overlays.patch_status("x99", &PatchParams::default(), &Patch::Merge(checked)).await.expect("patched");
    world.pass(MINUTE).await;
    assert!(is_available().await);
}
