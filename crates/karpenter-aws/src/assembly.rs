//! Builds the AWS provider and its controllers from AWS clients, options and the Kubernetes client. This module makes
//! no other decisions.
//!
//! [`Assembly::build`] makes the AWS calls that are required at start; its errors state a fix. The operator's stores
//! are created with the provider, but the provider reads these stores, so [`Assembly::attach`] connects the two
//! afterwards. [`Assembly::start`] starts the controllers of the AWS provider; the operator starts all others.
//!
//! Upstream: `pkg/operator/operator.go`, `pkg/controllers/controllers.go`

mod deferred;
mod retry;

use std::sync::Arc;

use karpenter_controllers::events::Recorder;
use karpenter_controllers::operator::Operator;
use karpenter_controllers::{Context, FeatureGates};
use karpenter_runtime::clock::Clock;
use kube::Client;
use prometheus::Registry;

use crate::amis::{AmiInvalidation, Amis};
use crate::api::{AwsApis, AwsError};
use crate::call_metrics::CallMetrics;
use crate::cluster_facts::{self, ClusterCidr, ClusterFacts};
use crate::drift::LiveDrift;
use crate::garbage_collection::{InstanceCollector, LaunchTemplateCollector, ProfileCollector};
use crate::instance_status::InstanceStatusPoller;
use crate::instances::Instances;
use crate::interruption::Handler;
use crate::interruption::queue::{InterruptionQueue, RECEIVERS};
use crate::kubelet::{ClassExpressions, Expressions};
use crate::launch::templates::LaunchTemplates;
use crate::launch::{LaunchMetrics, LaunchParts, LaunchSettings, Launcher};
use crate::node_class::{
    ClassParts, ClassSettings, LiveSources, NodeClassHash, NodeClassStatus, NodeClasses,
};
use crate::options::{AwsOptions, InvalidOptions};
use crate::placement_groups::PlacementGroups;
use crate::pricing::{PriceBook, PricingController};
use crate::profiles::Profiles;
use crate::provider::{AwsProvider, ClassKubelet, PartitionHook, ProviderParts, WatchedObjects};
use crate::reservations::Reservations;
use crate::reserved_claims::{CapacityTypeController, ReservationExpiration};
use crate::security_groups::SecurityGroups;
use crate::subnets::Subnets;
use crate::tagging::Tagging;
use crate::types::{
    DiscoveryController, InstanceTypes, MemoryController, OfferingMetricsController, OverlayPricesController,
    TypeMetrics, TypeOptions, TypeSources, TypesError,
};
use crate::unavailable::Unavailable;
use crate::version::{KubernetesVersion, VersionController, VersionError, VersionSource};
use crate::zonal_shift::{ShiftSource, ZonalShiftController, ZonalShifts};
use deferred::{DeferredObjects, DeferredOverlays, Forwarded};
use retry::with_retries;

/// The maximum number of EC2NodeClasses that are reconciled at the same time.
const CONCURRENT_CLASSES_MAX: usize = 10;

/// The inputs of [`Assembly::build`].
#[derive(Clone)]
pub struct AssemblyInputs {
    pub apis: AwsApis,
    pub region: String,
    pub client: Client,
    pub clock: Clock,
    pub options: AwsOptions,
    pub gates: FeatureGates,
    /// Whether a launch fails if its instance types do not satisfy `minValues` (option `--min-values-policy` is
    /// `Strict`).
    pub min_values_are_strict: bool,
    /// The CA certificates, in base64, with which this process verifies the API server.
    pub own_ca_bundle: Option<String>,
    /// The metrics of AWS calls, which the SDK client records.
    pub calls: CallMetrics,
}

/// Why the controller cannot start, with a hint on how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    #[error("cannot access EC2 in {region}: {error}; {}", advice(.error))]
    Access { region: String, error: AwsError },
    #[error("cannot read the endpoint of cluster {cluster}: {error}; set --cluster-endpoint, or {}", advice(.error))]
    Endpoint { cluster: String, error: AwsError },
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("cannot discover instance types: {0}")]
    Types(#[from] TypesError),
}

fn advice(error: &AwsError) -> &'static str {
    use crate::api::ErrorKind;
    match error.kind {
        ErrorKind::Unauthorized => "grant the permissions that `karpenter bootstrap aws` prints",
        ErrorKind::BadCredentials => "check the credentials of this process",
        ErrorKind::Transient => "check the region and the network connection to AWS",
        _ => "check region, credentials and cluster name",
    }
}

/// The AWS provider and the parts that it consists of.
pub struct Assembly {
    inputs: AssemblyInputs,
    facts: ClusterFacts,
    version: KubernetesVersion,
    version_source: VersionSource,
    shifts: ZonalShifts,
    /// Reads zonal shifts; `None` if the feature is disabled.
    shift_source: Option<ShiftSource>,
    amis: Amis,
    subnets: Arc<Subnets>,
    profiles: Arc<Profiles>,
    cluster_cidr: ClusterCidr,
    expressions: ClassExpressions,
    provider: AwsProvider,
    objects: DeferredObjects,
    overlays: DeferredOverlays,
    registry: Registry,
}

impl Assembly {
    /// Makes the AWS calls that are required at start, and builds the provider. Nothing is written to AWS.
    pub async fn build(inputs: AssemblyInputs) -> Result<Self, StartError> {
        let AssemblyInputs { apis, region, client, clock, options, gates, .. } = &inputs;
        options.check()?;
        let (clock, cluster) = (*clock, options.cluster_name.clone());
        let access = with_retries(clock, "access to EC2", || apis.ec2.check_access()).await;
        access.map_err(|error| StartError::Access { region: region.clone(), error })?;
        let own_ca_bundle = inputs.own_ca_bundle.clone();
        let facts = with_retries(clock, "cluster endpoint", || {
            cluster_facts::discover(options, region, own_ca_bundle.clone(), client, &*apis.eks)
        });
        let facts = facts.await.map_err(|error| StartError::Endpoint { cluster: cluster.clone(), error })?;
        let shifts = ZonalShifts::default();
        let shift_source = options
            .enable_zonal_shift
            .then(|| ShiftSource::new(apis.eks.clone(), apis.zonal_shift.clone(), &cluster));
        if let Some(source) = &shift_source {
            read_shifts(source, &shifts).await;
        }
        let version_source = match options.eks_control_plane {
            true => VersionSource::Eks { eks: apis.eks.clone(), cluster: cluster.clone() },
            false => VersionSource::ApiServer(client.clone()),
        };
        let version = with_retries(clock, "cluster version", || version_source.read()).await?;
        let version = KubernetesVersion::new(version);

        let expressions = ClassExpressions::new(options.aws_feature_gates, Arc::new(Expressions::new(clock)));
        let types = types(&inputs, &shifts, &expressions);
        with_retries(clock, "what EC2 sells", || types.discover()).await?;
        let registry = Registry::new();
        inputs.calls.register(&registry);
        let metrics = LaunchMetrics::new(&registry);
        let instances = Instances::new(apis.ec2.clone(), clock, &cluster, shifts.clone(), metrics.clone());
        let subnets = Subnets::new(apis.ec2.clone(), clock, options.subnet_refresh_interval);
        let subnets = Arc::new(subnets.recording(types.public_subnets().clone()));
        let cluster_cidr = ClusterCidr::new(apis.eks.clone(), &cluster);
        let recorder = Recorder::new(client.clone(), clock);
        let launcher = Launcher::new(LaunchParts {
            ec2: apis.ec2.clone(),
            clock,
            cluster: facts.clone(),
            cluster_cidr: cluster_cidr.clone(),
            subnets: subnets.clone(),
            templates: LaunchTemplates::new(apis.ec2.clone(), clock, &cluster),
            unavailable: types.unavailable().clone(),
            reservations: types.reservations().counts().clone(),
            placement_groups: types.placement_groups().clone(),
            kubelet_configs: Arc::new(ClassKubelet {
                types: types.clone(),
                gates: options.aws_feature_gates,
                expressions: Expressions::new(clock),
                cluster_dns: facts.dns_ip.map(|ip| ip.to_string()),
            }),
            metrics,
            recorder: Some(recorder.clone()),
            settings: LaunchSettings {
                reserved_capacity: gates.reserved_capacity,
                min_values_are_strict: inputs.min_values_are_strict,
            },
        });
        let (objects, overlays) = (DeferredObjects::default(), DeferredOverlays::default());
        let drift = LiveDrift {
            objects: Arc::new(objects.clone()),
            types: types.clone(),
            instances: instances.clone(),
            recorder: Some(recorder.clone()),
            reserved_capacity: gates.reserved_capacity,
        };
        let hook = PartitionHook { instances: instances.clone(), client: client.clone() };
        let provider = AwsProvider::new(ProviderParts {
            clock,
            objects: Arc::new(objects.clone()),
            types,
            launcher,
            instances,
            drift: Some(Arc::new(drift)),
            overlays: gates.node_overlay.then(|| Arc::new(overlays.clone()) as _),
            hooks: vec![Arc::new(hook)],
            recorder: Some(recorder),
            ca_bundle: facts.ca_bundle.clone(),
            reserved_capacity: gates.reserved_capacity,
        });
        let amis = Amis::new(apis.ec2.clone(), apis.ssm.clone(), clock, options.ami_refresh_interval);
        let profiles = Arc::new(Profiles::new(apis.iam.clone(), clock, &cluster, region));
        Ok(Self {
            facts,
            version,
            version_source,
            shifts,
            shift_source,
            amis,
            subnets,
            profiles,
            cluster_cidr,
            expressions,
            provider,
            objects,
            overlays,
            registry,
            inputs,
        })
    }

    pub fn provider(&self) -> AwsProvider {
        self.provider.clone()
    }

    pub fn facts(&self) -> &ClusterFacts {
        &self.facts
    }

    /// Connects the provider with the operator's stores and metrics. Must be called exactly once, before controllers
    /// start.
    pub fn attach(&self, context: &Context) {
        if let Some(classes) = NodeClasses::of(&context.stores) {
            self.objects.set(WatchedObjects { classes, pools: context.stores.node_pools.clone() });
        }
        self.overlays.set(context.overlays.clone(), context.stores.node_pools.clone());
        // If the metrics are registered already, registering fails, which can be ignored.
        let _ = context.metrics.registry().register(Box::new(Forwarded::new(self.registry.clone())));
    }

    /// Starts the controllers of the AWS provider. The operator must have started its own controllers before.
    pub fn start(&self, operator: &mut Operator) {
        let context = operator.context().clone();
        let Some(classes) = NodeClasses::of(&context.stores) else { return };
        self.start_classes(operator, &context, classes);
        self.start_instance_types(operator, &context);
        self.start_instances(operator, &context);
        self.start_interruptions(operator, &context);
    }

    fn start_classes(&self, operator: &mut Operator, context: &Context, classes: NodeClasses) {
        let AssemblyInputs { apis, clock, options, .. } = &self.inputs;
        let sources = LiveSources {
            amis: self.amis.clone(),
            kubernetes: self.version.clone(),
            types: self.provider.types().clone(),
            launcher: self.provider.launcher().clone(),
            cluster_cidr: self.cluster_cidr.clone(),
            kubelet: self.expressions.clone(),
        };
        let parts = ClassParts {
            classes: classes.clone(),
            sources: Arc::new(sources),
            ec2: apis.ec2.clone(),
            subnets: self.subnets.clone(),
            security_groups: Arc::new(SecurityGroups::new(apis.ec2.clone(), *clock)),
            profiles: self.profiles.clone(),
        };
        let settings = ClassSettings {
            cluster_name: options.cluster_name.clone(),
            is_isolated_vpc: options.isolated_vpc,
            is_dry_run_disabled: options.disable_dry_run,
        };
        let status = NodeClassStatus::new(context.clone(), parts, settings);
        operator.spawn("nodeclass", status, NodeClassStatus::watch, CONCURRENT_CLASSES_MAX);
        let hash = NodeClassHash::new(context.clone(), classes, self.facts.ca_bundle.clone());
        operator.spawn("nodeclass.hash", hash, NodeClassHash::watch, CONCURRENT_CLASSES_MAX);
    }

    fn start_instance_types(&self, operator: &mut Operator, context: &Context) {
        let AssemblyInputs { apis, region, clock, options, gates, .. } = &self.inputs;
        let types = self.provider.types().clone();
        let (ec2, pricing, book) = (apis.ec2.clone(), apis.pricing.clone(), types.prices().clone());
        let prices =
            PricingController::new(ec2, pricing, *clock, region.as_str(), options.isolated_vpc, book);
        operator.spawn("providers.pricing", prices, PricingController::watch, 2);
        let metrics = TypeMetrics::new(context.metrics.registry());
        let discovery = DiscoveryController::new(types.clone(), metrics.clone());
        operator.spawn("providers.instancetype", discovery, DiscoveryController::watch, 1);
        let memory = MemoryController::new(context.clone(), types.memory().clone());
        operator.spawn("providers.instancetype.capacity", memory, MemoryController::watch, 1);
        // These metrics have tens of thousands of series, so they are off by default.
        if operator.options().offering_metrics {
            let offered = OfferingMetricsController::new(context.clone(), metrics, gates.reserved_capacity);
            operator.spawn("cloudprovider.metrics", offered, OfferingMetricsController::watch, 1);
        }
        if gates.node_overlay {
            let stated = OverlayPricesController::new(context.clone(), types);
            operator.spawn("nodeoverlay.prices", stated, OverlayPricesController::watch, 1);
        }
        let images = AmiInvalidation::new(self.amis.clone());
        operator.spawn("providers.ssm.invalidation", images, AmiInvalidation::watch, 1);
        let version = VersionController::new(self.version_source.clone(), self.version.clone());
        operator.spawn("providers.version", version, VersionController::watch, 1);
    }

    fn start_instances(&self, operator: &mut Operator, context: &Context) {
        let AssemblyInputs { apis, region, options, gates, .. } = &self.inputs;
        let machines = Arc::new(self.provider.instances().clone());
        let instances = InstanceCollector::new(context.clone(), machines.clone());
        operator.spawn("instance.garbagecollection", instances, InstanceCollector::watch, 1);
        let tagging = Tagging::new(context.clone(), machines, options.cluster_name.clone());
        operator.spawn("nodeclaim.tagging", tagging, Tagging::watch, 1);
        let templates = LaunchTemplateCollector::new(self.provider.launcher().templates().clone());
        operator.spawn("launchtemplate.garbagecollection", templates, LaunchTemplateCollector::watch, 1);
        if !options.isolated_vpc {
            let profiles = self.profiles.clone();
            let profiles = ProfileCollector::new(context.clone(), profiles, region, &options.cluster_name);
            operator.spawn("instanceprofile.garbagecollection", profiles, ProfileCollector::watch, 1);
        }
        if gates.reserved_capacity {
            let kinds = CapacityTypeController::new(context.clone());
            operator.spawn("capacityreservation.capacitytype", kinds, CapacityTypeController::watch, 1);
            let ends = ReservationExpiration::new(context.clone(), apis.ec2.clone());
            operator.spawn("capacityreservation.expiration", ends, ReservationExpiration::watch, 1);
        }
    }

    fn start_interruptions(&self, operator: &mut Operator, context: &Context) {
        let AssemblyInputs { apis, options, .. } = &self.inputs;
        let handler = Handler::new(context.clone(), Arc::new(self.provider.types().clone()));
        if let Some(queue) = options.queue() {
            let shutdown = operator.shutdown_signal();
            let queue = InterruptionQueue::new(handler.clone(), apis.sqs.clone(), queue, shutdown);
            operator.spawn("interruption", queue, InterruptionQueue::watch, RECEIVERS);
        }
        let sick = InstanceStatusPoller::new(handler, apis.ec2.clone());
        operator.spawn("interruption.instancestatus", sick, InstanceStatusPoller::watch, 1);
        if let Some(source) = &self.shift_source {
            let shifting = ZonalShiftController::new(context.clone(), source.clone(), self.shifts.clone());
            operator.spawn("zonalshift", shifting, ZonalShiftController::watch, 1);
        }
    }
}

/// Reads zonal shifts before the first launch, so that no instance is launched in a zone that traffic is shifted away
/// from. If reading fails, the controller retries it; provisioning does not wait.
async fn read_shifts(source: &ShiftSource, shifts: &ZonalShifts) {
    match source.read().await {
        Ok(answer) => shifts.replace(&answer),
        Err(error) => {
            let (cluster, advice) = (source.cluster(), advice(&error));
            tracing::error!(%error, cluster, advice, "failed to read zonal shifts at start, retrying");
        }
    }
}

fn types(inputs: &AssemblyInputs, shifts: &ZonalShifts, expressions: &ClassExpressions) -> InstanceTypes {
    let AssemblyInputs { apis, region, clock, options, gates, .. } = inputs;
    let sources = TypeSources {
        ec2: apis.ec2.clone(),
        clock: *clock,
        prices: PriceBook::new(region),
        unavailable: Unavailable::new(*clock),
        reservations: Reservations::new(apis.ec2.clone(), *clock),
        placement_groups: PlacementGroups::new(apis.ec2.clone(), *clock),
        shifts: shifts.clone(),
    };
    let options = TypeOptions {
        region: region.clone(),
        vm_memory_overhead_percent: options.vm_memory_overhead_percent,
        reserved_enis: options.reserved_enis,
        uses_reservations: gates.reserved_capacity,
    };
    InstanceTypes::with_expressions(options, sources, Some(Arc::new(expressions.clone())))
}
