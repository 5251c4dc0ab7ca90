//! Tests of the completely built provider, with the AWS fake.

use std::sync::Arc;
use std::time::Duration;

use karpenter_aws::amis::Amis;
use karpenter_aws::api::AwsApis;
use karpenter_aws::cluster_facts::{ClusterCidr, ClusterFacts};
use karpenter_aws::drift::LiveDrift;
use karpenter_aws::instances::Instances;
use karpenter_aws::kubelet::{ClassExpressions, Expressions};
use karpenter_aws::launch::templates::LaunchTemplates;
use karpenter_aws::launch::{LaunchMetrics, LaunchParts, LaunchSettings, Launcher};
use karpenter_aws::node_class::LiveSources;
use karpenter_aws::options::AwsFeatureGates;
use karpenter_aws::placement_groups::PlacementGroups;
use karpenter_aws::pricing::PriceBook;
use karpenter_aws::provider::{AwsProvider, ClassKubelet, Objects, ProviderParts};
use karpenter_aws::reservations::Reservations;
use karpenter_aws::subnets::Subnets;
use karpenter_aws::types::{InstanceTypes, TypeOptions, TypeSources};
use karpenter_aws::unavailable::Unavailable;
use karpenter_aws::version::{KubernetesVersion, Version};
use karpenter_aws::zonal_shift::ZonalShifts;
use karpenter_runtime::clock::Clock;
use prometheus::Registry;

pub(crate) async fn assemble(
    apis: &AwsApis,
    clock: Clock,
    gates: AwsFeatureGates,
    subnets: Arc<Subnets>,
    objects: Arc<dyn Objects>,
) -> (LiveSources, AwsProvider) {
    let ec2 = &apis.ec2;
    let unavailable = Unavailable::new(clock);
    let reservations = Reservations::new(ec2.clone(), clock);
    let placement_groups = PlacementGroups::new(ec2.clone(), clock);
    let kubelet = ClassExpressions::new(gates, Arc::new(Expressions::new(clock)));
    let options = TypeOptions {
        region: "us-west-2".to_owned(),
        vm_memory_overhead_percent: 0.075,
        reserved_enis: 0,
        uses_reservations: true,
    };
    let type_sources = TypeSources {
        ec2: ec2.clone(),
        clock,
        prices: PriceBook::new("us-west-2"),
        unavailable: unavailable.clone(),
        reservations: reservations.clone(),
        placement_groups: placement_groups.clone(),
        shifts: ZonalShifts::default(),
    };
    let types = InstanceTypes::with_expressions(options, type_sources, Some(Arc::new(kubelet.clone())));
    types.discover().await.expect("types");
    let metrics = LaunchMetrics::new(&Registry::new());
    let cluster_cidr = ClusterCidr::new(apis.eks.clone(), "cluster");
    let kubelet_configs =
        ClassKubelet { types: types.clone(), gates, expressions: Expressions::new(clock), cluster_dns: None };
    let launcher = Launcher::new(LaunchParts {
        ec2: ec2.clone(),
        clock,
        cluster: ClusterFacts {
            name: "cluster".to_owned(),
            region: "us-west-2".to_owned(),
            endpoint: "https://cluster.example".to_owned(),
            ca_bundle: Some("Q0E=".to_owned()),
            dns_ip: None,
        },
        cluster_cidr: cluster_cidr.clone(),
        subnets,
        templates: LaunchTemplates::new(ec2.clone(), clock, "cluster"),
        unavailable,
        reservations: reservations.counts().clone(),
        placement_groups,
        kubelet_configs: Arc::new(kubelet_configs),
        metrics: metrics.clone(),
        recorder: None,
        settings: LaunchSettings { reserved_capacity: true, min_values_are_strict: true },
    });
    let instances = Instances::new(ec2.clone(), clock, "cluster", ZonalShifts::default(), metrics);
    let sources = LiveSources {
        amis: Amis::new(ec2.clone(), apis.ssm.clone(), clock, Duration::from_secs(60)),
        kubernetes: KubernetesVersion::new(Version { major: 1, minor: 35 }),
        types: types.clone(),
        launcher: launcher.clone(),
        cluster_cidr,
        kubelet,
    };
    let drift = LiveDrift {
        objects: objects.clone(),
        types: types.clone(),
        instances: instances.clone(),
        recorder: None,
        reserved_capacity: true,
    };
    let provider = AwsProvider::new(ProviderParts {
        clock,
        objects,
        types,
        launcher,
        instances,
        drift: Some(Arc::new(drift)),
        overlays: None,
        hooks: Vec::new(),
        recorder: None,
        ca_bundle: Some("Q0E=".to_owned()),
        reserved_capacity: true,
    });
    (sources, provider)
}
