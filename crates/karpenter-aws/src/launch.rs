//! Launches the EC2 instance of a NodeClaim: selects instance types, ensures launch templates, calls `CreateFleet`, and
//! marks offerings that EC2 could not launch as unavailable.
//!
//! The decisions are pure functions in [`filters`], [`template_groups`], [`template_data`], [`fleet`] and [`errors`];
//! this file calls them in order and makes the AWS calls. If EC2 reports that a launch template does not exist, the
//! launch is retried once. Every other failure is returned to the caller. Other modules convert provider ids and
//! terminate instances.
//!
//! Upstream: `pkg/providers/instance`, `pkg/providers/launchtemplate`

pub mod constraints;
pub mod errors;
pub mod filters;
pub mod fleet;
mod metrics;
pub mod template_data;
pub mod template_groups;
pub mod templates;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, NodeClaim};
use karpenter_catalog::aws::{AWS_EFA, PlacementGroup};
use karpenter_cloud::CloudError;
use karpenter_controllers::events::{ObjectEvent, Recorder};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::resources::PODS;
use karpenter_model::taints::{Effect, Taint};
use karpenter_runtime::clock::Clock;
use karpenter_userdata::bottlerocket::version;
use karpenter_userdata::{AmiFamily, Input, SizeVerdict, UserDataError, prepare};

use crate::api::ec2::{CreateFleet, FleetAnswer};
use crate::api::{AwsError, Ec2, Tags};
use crate::batcher::{Batcher, Windows};
use crate::cluster_facts::{ClusterCidr, ClusterFacts};
use crate::instances::ProviderInstance;
use crate::node_class::TemplateRequest;
use crate::node_class::tags::{add_provisioner, launch_tags};
use crate::placement_groups::{PlacementGroups, facts, launch_partition};
use crate::reservations::Counts;
use crate::subnets::{LaunchSubnet, Subnets};
use crate::unavailable::Unavailable;
use constraints::LaunchConstraints;
use errors::{Placement, Unavailability, create_error, no_instance_error, unavailabilities};
use filters::{Candidate, Reservation, capacity_type, filter};
use fleet::{FleetTerms, ReadyTemplate};
pub use metrics::LaunchMetrics;
use template_data::{TemplateInput, template_data};
use template_groups::{KubeletConfigs, TemplateGroup, template_groups};
use templates::LaunchTemplates;

/// How long equal `CreateFleet` requests are collected before they are sent as one call.
const FLEET_WINDOWS: Windows = Windows {
    idle: Duration::from_millis(35),
    longest: Duration::from_secs(1),
    items_max: 1000,
    concurrent_calls_max: 100,
};
/// If a NodeClaim that allows spot is launched as on-demand and has fewer instance types than this, a warning is
/// logged.
const RECOMMENDED_TYPES_MIN: usize = 5;
const ENCLAVE_RESOURCE: &str = "eks.amazonaws.com/nitro-sandbox";
const TEMPLATES_FAILED: &str = "Error getting launch template configs";

/// The modules and settings that a [`Launcher`] uses.
#[derive(Clone)]
pub struct LaunchParts {
    pub ec2: Arc<dyn Ec2>,
    pub clock: Clock,
    pub cluster: ClusterFacts,
    pub cluster_cidr: ClusterCidr,
    pub subnets: Arc<Subnets>,
    pub templates: LaunchTemplates,
    pub unavailable: Unavailable,
    pub reservations: Counts,
    pub placement_groups: PlacementGroups,
    pub kubelet_configs: Arc<dyn KubeletConfigs>,
    pub metrics: LaunchMetrics,
    /// Publishes events on NodeClaims; `None` if there is no cluster.
    pub recorder: Option<Recorder>,
    pub settings: LaunchSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchSettings {
    /// Whether the feature gate ReservedCapacity is on.
    pub reserved_capacity: bool,
    /// Whether a launch fails if the instance types left after filtering do not satisfy `minValues`.
    pub min_values_are_strict: bool,
}

/// Launches instances. All clones share their state.
#[derive(Clone)]
pub struct Launcher {
    parts: LaunchParts,
    fleets: Batcher<String, CreateFleet, FleetResponse>,
}

/// The inputs of one launch, which a retry uses again.
struct Launch<'a> {
    class: &'a EC2NodeClass,
    claim: &'a NodeClaim,
    constraints: LaunchConstraints,
    candidates: Vec<Candidate<'a>>,
    capacity_type: &'static str,
    tenancy: &'static str,
    group: Option<PlacementGroup>,
    partition: Option<u32>,
    tags: Tags,
}

/// The answer to a `CreateFleet` call.
#[derive(Clone)]
struct FleetResponse {
    /// When the call was made. Reservation counts that EC2 reports later than this already include the launched
    /// instances.
    requested_at: Timestamp,
    answer: FleetAnswer,
}

/// The result of one attempt to launch; errors that are not retried are not included.
enum AttemptOutcome {
    Launched(Box<ProviderInstance>),
    /// EC2 does not have the launch templates, so the next attempt creates them again.
    TemplatesNotFound(CloudError),
}

impl Launcher {
    pub fn new(parts: LaunchParts) -> Self {
        let (ec2, metrics, clock) = (Arc::clone(&parts.ec2), parts.metrics.clone(), parts.clock);
        let execute = move |_: String, requests: Vec<CreateFleet>| {
            let ec2 = Arc::clone(&ec2);
            Box::pin(async move { call_fleet(&*ec2, clock, requests).await }) as _
        };
        let record = move |batch| metrics.record_batch(batch);
        let fleets = Batcher::new("create_fleet", parts.clock, FLEET_WINDOWS, execute, record);
        Self { parts, fleets }
    }

    pub fn templates(&self) -> &LaunchTemplates {
        &self.parts.templates
    }

    /// Deletes the launch templates of a deleted node class and its metric series.
    pub async fn forget_class(&self, class_name: &str) -> Result<(), AwsError> {
        self.parts.templates.delete_all(class_name).await?;
        // If nothing was launched with the node class, the series does not exist and removing it fails, which can be
        // ignored.
        let _ = self.parts.metrics.user_data_bytes.remove_label_values(&[class_name]);
        Ok(())
    }

    /// Launches one instance of any of the instance types `types`. The caller must check that the node class is ready
    /// ([`crate::node_class::readiness`]).
    pub async fn launch(
        &self,
        class: &EC2NodeClass,
        claim: &NodeClaim,
        types: &[InstanceType],
    ) -> Result<ProviderInstance, CloudError> {
        let launch = self.prepare(class, claim, types).await?;
        match self.attempt(&launch).await? {
            AttemptOutcome::Launched(instance) => Ok(*instance),
            AttemptOutcome::TemplatesNotFound(_) => match self.attempt(&launch).await? {
                AttemptOutcome::Launched(instance) => Ok(*instance),
                AttemptOutcome::TemplatesNotFound(error) => Err(error),
            },
        }
    }

    async fn prepare<'a>(
        &self,
        class: &'a EC2NodeClass,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> Result<Launch<'a>, CloudError> {
        let label = |key: &str| claim.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let pool = label(labels::NODEPOOL).map_or("", String::as_str);
        let mut tags = launch_tags(class, pool, &self.parts.cluster.name)
            .map_err(|error| CloudError::NodeClassNotReady { message: error.to_string() })?;
        if let Some(provisioner) = label(labels::PROVISIONER_NAME) {
            add_provisioner(&mut tags, provisioner);
        }
        let constraints = LaunchConstraints::of(claim);
        let candidates = filter(types, &constraints, self.parts.settings.min_values_are_strict)
            .map_err(|error| CloudError::InsufficientCapacity { message: error.to_string() })?;
        let capacity_type = capacity_type(&candidates, &constraints);
        let (group, partition) = self
            .placement(class, &constraints)
            .await
            .map_err(|message| CloudError::NodeClassNotReady { message })?;
        let tenancy = constraints.tenancy();
        Ok(Launch { class, claim, constraints, candidates, capacity_type, tenancy, group, partition, tags })
    }

    /// The placement group and partition to launch into. If the node class selects a group that does not exist, the
    /// launch fails, because instances of the node class must not run outside of the group.
    async fn placement(
        &self,
        class: &EC2NodeClass,
        constraints: &LaunchConstraints,
    ) -> Result<(Option<PlacementGroup>, Option<u32>), String> {
        let Some(selector) = &class.spec.placement_group_selector else { return Ok((None, None)) };
        let group = self.parts.placement_groups.find_or_last_known(selector).await;
        let Some(group) = group.as_ref().and_then(facts) else {
            let selected = selector.id.as_deref().or(selector.name.as_deref()).unwrap_or_default();
            return Err(format!("placement group {selected:?} not found"));
        };
        let asked = constraints.requirements.get(labels::AWS_PLACEMENT_GROUP_PARTITION);
        let partition = launch_partition(&group, asked);
        Ok((Some(group), partition))
    }

    async fn attempt(&self, launch: &Launch<'_>) -> Result<AttemptOutcome, CloudError> {
        let subnets = launch.class.status.as_ref().map_or(&[][..], |status| &status.subnets);
        if subnets.is_empty() {
            let (reason, message) = ("SubnetResolutionFailed".to_owned(), "Error getting subnets".to_owned());
            return Err(CloudError::CreateRefused { reason, message });
        }
        let needed = |zone: &str| addresses_needed(&launch.candidates, launch.capacity_type, zone);
        let chosen = self.parts.subnets.choose(subnets, needed);
        let answer = self.create_fleet(launch, &chosen).await;
        let used: BTreeSet<&str> = match &answer {
            Ok((_, answer)) => {
                let launched = answer.iter().flat_map(|response| &response.answer.instances);
                launched.filter_map(|launched| launched.launched_as.subnet_id.as_deref()).collect()
            }
            Err(_) => BTreeSet::new(),
        };
        self.parts.subnets.settle(chosen.values(), &used);
        let (templates, answer) = answer?;
        match answer {
            Ok(response) => {
                // EC2 may report a missing template for each override separately. The template is removed from the
                // cache here, because every use renews its cache entry, so it would not expire.
                let is_template_gone =
                    response.answer.errors.iter().any(|failed| failed.error.is_launch_template_gone());
                if is_template_gone {
                    templates.iter().for_each(|name| self.parts.templates.forget(name));
                }
                match self.process_response(launch, &chosen, response).await {
                    Err(error) if is_template_gone => Ok(AttemptOutcome::TemplatesNotFound(error)),
                    outcome => outcome.map(|instance| AttemptOutcome::Launched(Box::new(instance))),
                }
            }
            Err(error) => {
                tracing::warn!(claim = launch.claim.metadata.name, %error, "create fleet request failed");
                if error.is_launch_template_gone() {
                    templates.iter().for_each(|name| self.parts.templates.forget(name));
                    let doing = "Launch templates not found when creating fleet request";
                    return Ok(AttemptOutcome::TemplatesNotFound(create_error(doing, &error.to_string())));
                }
                Err(create_error("Error creating fleet request", &error.to_string()))
            }
        }
    }

    /// Ensures the launch templates and calls `CreateFleet`; returns the names of the templates and EC2's response.
    async fn create_fleet(
        &self,
        launch: &Launch<'_>,
        chosen: &BTreeMap<String, LaunchSubnet>,
    ) -> Result<(Vec<String>, Result<FleetResponse, AwsError>), CloudError> {
        let templates = self.ready_templates(launch).await?;
        self.warn_if_too_few_types(launch);
        let annotations = launch.claim.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|annotations| annotations.get(key));
        let is_relaxed =
            annotation(labels::ANNOTATION_MIN_VALUES_RELAXED).is_some_and(|value| value == "true");
        let reservation = first_reservation(launch);
        let terms = FleetTerms {
            capacity_type: launch.capacity_type,
            reservation: reservation.as_ref(),
            has_price_overlay: annotation(labels::ANNOTATION_PRICE_OVERLAY_APPLIED).is_some(),
            context: launch.class.spec.context.as_deref().filter(|_| !is_relaxed),
            tags: &launch.tags,
        };
        let Some(request) = fleet::fleet(&templates, chosen, &terms) else {
            let problem = "no capacity offerings are currently available given the constraints";
            tracing::warn!(claim = launch.claim.metadata.name, problem, "no fleet overrides to request");
            return Err(create_error(TEMPLATES_FAILED, problem));
        };
        let names = templates.into_iter().map(|template| template.name).collect();
        Ok((names, self.fleets.call(fleet::batch_key(&request), request).await))
    }

    async fn ready_templates<'a>(&self, launch: &Launch<'a>) -> Result<Vec<ReadyTemplate<'a>>, CloudError> {
        let status = launch.class.status.as_ref();
        if status.is_none_or(|status| status.security_groups.is_empty()) {
            return Err(create_error(TEMPLATES_FAILED, "no security groups are present in the status"));
        }
        let kubelet_configs = &*self.parts.kubelet_configs;
        let found = template_groups(
            launch.class,
            &launch.candidates,
            &launch.constraints,
            launch.capacity_type,
            kubelet_configs,
        );
        let found = found.map_err(|problem| {
            tracing::warn!(claim = launch.claim.metadata.name, %problem, "cannot group instance types into launch templates");
            create_error(TEMPLATES_FAILED, &problem.to_string())
        })?;
        try_join_all(found.into_iter().map(|group| self.ready_template(launch, group))).await
    }

    async fn ready_template<'a>(
        &self,
        launch: &Launch<'a>,
        group: TemplateGroup<'a>,
    ) -> Result<ReadyTemplate<'a>, CloudError> {
        let class = launch.class;
        let family = family_of(class);
        let user_data =
            self.user_data(class, Some(launch.claim), family, launch.capacity_type, &group.kubelet);
        let user_data = user_data.map_err(|error| match error {
            UserDataError::ClusterCidrMissing => CloudError::NodeClassNotReady { message: error.to_string() },
            error => {
                tracing::warn!(claim = launch.claim.metadata.name, %error, "cannot render user data");
                create_error(TEMPLATES_FAILED, &error.to_string())
            }
        })?;
        let data = template_data(&TemplateInput {
            class,
            family,
            region: &self.parts.cluster.region,
            cluster_is_ipv6: self.parts.cluster.is_ipv6(),
            image_id: &group.image.id,
            user_data,
            capacity_type: launch.capacity_type,
            tenancy: launch.tenancy,
            efa_count: group.efa_count,
            is_enclave_enabled: launch.constraints.requests_resource(ENCLAVE_RESOURCE),
            reservation: group.reservation.clone(),
            targets_reservations: self.parts.settings.reserved_capacity,
            placement_group_id: launch.group.as_ref().map(|group| &*group.id),
            partition: launch.partition.and_then(|number| i32::try_from(number).ok()),
            tags: &launch.tags,
        });
        let template = self.parts.templates.ensure(data, &launch.tags).await.map_err(|error| {
            tracing::warn!(claim = launch.claim.metadata.name, %error, "cannot create launch template");
            create_error(TEMPLATES_FAILED, &error.to_string())
        })?;
        let image_id = group.image.id.clone();
        Ok(ReadyTemplate { name: template.name, image_id, candidates: group.candidates })
    }

    /// Ensures the launch template with which a dry run validates a node class: for on-demand capacity and without a
    /// NodeClaim.
    pub async fn ensure_for_dry_run(&self, request: TemplateRequest<'_>) -> Result<String, AwsError> {
        let class = request.class;
        let family = family_of(class);
        let problem = |problem: String| AwsError::new("", problem);
        let kubelet = self.parts.kubelet_configs.kubelet(class, request.instance_type).map_err(problem)?;
        let capacity_type = labels::CAPACITY_TYPE_ON_DEMAND;
        let user_data = self.user_data(class, None, family, capacity_type, &kubelet);
        let (group, _) = self.placement(class, &LaunchConstraints::default()).await.map_err(problem)?;
        let data = template_data(&TemplateInput {
            class,
            family,
            region: &self.parts.cluster.region,
            cluster_is_ipv6: self.parts.cluster.is_ipv6(),
            image_id: request.image_id,
            user_data: user_data.map_err(|error| problem(error.to_string()))?,
            capacity_type,
            tenancy: request.tenancy,
            efa_count: 0,
            is_enclave_enabled: false,
            reservation: None,
            targets_reservations: self.parts.settings.reserved_capacity,
            placement_group_id: group.as_ref().map(|group| &*group.id),
            partition: None,
            tags: request.tags,
        });
        Ok(self.parts.templates.ensure(data, request.tags).await?.name)
    }

    /// Renders the user data and encodes it in base64.
    fn user_data(
        &self,
        class: &EC2NodeClass,
        claim: Option<&NodeClaim>,
        family: AmiFamily,
        capacity_type: &str,
        kubelet: &karpenter_userdata::Kubelet,
    ) -> Result<String, UserDataError> {
        let cluster = &self.parts.cluster;
        let own_labels = claim.and_then(|claim| claim.metadata.labels.clone()).unwrap_or_default();
        let taints = |of: fn(&NodeClaim) -> &Option<Vec<karpenter_api::types::Taint>>| {
            let written = claim.and_then(|claim| of(claim).as_deref()).unwrap_or_default();
            written.iter().filter_map(taint).collect::<Vec<Taint>>()
        };
        let input = Input {
            ca_bundle: cluster.ca_bundle.clone(),
            cluster_cidr: self.parts.cluster_cidr.get(),
            labels: prepare::labels(family, &own_labels, capacity_type),
            taints: prepare::taints(
                &taints(|claim| &claim.spec.taints),
                &taints(|claim| &claim.spec.startup_taints),
            ),
            kubelet: kubelet.clone(),
            instance_store_raid0: class.spec.instance_store_policy.as_deref() == Some("RAID0"),
            custom_user_data: class.spec.user_data.clone(),
            ami_version: ami_version(class),
            ..Input::new(family, &cluster.name, &cluster.endpoint)
        };
        let rendered = karpenter_userdata::render(&input)?;
        let name = class.metadata.name.as_deref().unwrap_or_default();
        for warning in &rendered.warnings {
            tracing::debug!(nodeclass = name, %warning, "user data warning");
        }
        let size = rendered.size();
        let bytes = i64::try_from(size.bytes).unwrap_or(i64::MAX);
        self.parts.metrics.user_data_bytes.with_label_values(&[name]).set(bytes);
        // Oversized user data only causes a warning here; EC2 enforces the limit.
        if size.verdict != SizeVerdict::Fits {
            tracing::info!(
                userdata_bytes = bytes,
                "rendered user data is approaching the EC2 user data size limit"
            );
        }
        Ok(rendered.base64())
    }

    fn warn_if_too_few_types(&self, launch: &Launch<'_>) {
        let is_fallback = launch.capacity_type == labels::CAPACITY_TYPE_ON_DEMAND
            && launch.constraints.allows_capacity_type(labels::CAPACITY_TYPE_SPOT);
        if is_fallback && launch.candidates.len() < RECOMMENDED_TYPES_MIN {
            tracing::warn!(
                claim = launch.claim.metadata.name,
                instance_types = launch.candidates.len(),
                "at least {RECOMMENDED_TYPES_MIN} instance types are recommended when flexible to spot but requesting on-demand"
            );
        }
    }

    /// Records metrics and unavailable offerings for the errors in the response; returns the launched instance if there
    /// is one.
    async fn process_response(
        &self,
        launch: &Launch<'_>,
        chosen: &BTreeMap<String, LaunchSubnet>,
        FleetResponse { requested_at, answer }: FleetResponse,
    ) -> Result<ProviderInstance, CloudError> {
        for failed in &answer.errors {
            let zone = failed.tried.zone.as_deref().unwrap_or_default();
            let zone_id = chosen.get(zone).and_then(|subnet| subnet.zone_id.as_deref()).unwrap_or_default();
            let (reason, _) = errors::reason_and_message(&failed.error.to_string());
            let values = [zone, zone_id, launch.capacity_type, reason];
            self.parts.metrics.launch_failures.with_label_values(&values).inc();
        }
        let placement = Placement {
            group_id: launch.group.as_ref().map(|group| group.id.to_string()),
            partition: launch.partition,
        };
        let unavailable =
            unavailabilities(&answer.errors, launch.capacity_type, &launch.candidates, &placement);
        for unavailability in unavailable {
            self.record_unavailable(launch, unavailability).await;
        }
        let Some(launched) = answer.instances.first() else { return Err(no_instance_error(&answer.errors)) };
        let zone = launched.launched_as.zone.clone().or_else(|| {
            let subnet_id = launched.launched_as.subnet_id.as_deref();
            let subnet = chosen.values().find(|chosen| Some(chosen.id.as_str()) == subnet_id);
            subnet.map(|subnet| subnet.zone.clone())
        });
        let zone = zone.unwrap_or_default();
        let reservation = (launch.capacity_type == labels::CAPACITY_TYPE_RESERVED)
            .then(|| filters::reservation(&launch.candidates, &launched.instance_type, &zone))
            .flatten();
        if let Some(reservation) = &reservation {
            self.parts.reservations.launched(&reservation.id, requested_at);
        }
        let zone_id = chosen.get(&zone).and_then(|subnet| subnet.zone_id.clone());
        let efa_count = efa_count(launch, &launched.instance_type);
        let instance =
            ProviderInstance::from_fleet(launched, zone, self.parts.clock.now()).ok_or_else(|| {
                CloudError::Transient { message: "EC2 returned an instance without an id".to_owned() }
            })?;
        Ok(ProviderInstance {
            zone_id,
            capacity_type: launch.capacity_type.to_owned(),
            tenancy: launch.tenancy.to_owned(),
            tags: launch.tags.clone(),
            reservation,
            efa_count,
            placement_group_id: launch.group.as_ref().map(|group| group.id.to_string()),
            partition: launch.partition,
            ..instance
        })
    }

    async fn record_unavailable(&self, launch: &Launch<'_>, unavailability: Unavailability) {
        let parts = &self.parts;
        match unavailability {
            Unavailability::Offering(pool, code) => parts.unavailable.mark_pool(pool, &code),
            Unavailability::Subnet(id) => {
                parts.unavailable.mark_subnet(&id);
                parts.subnets.exhausted(&id);
            }
            Unavailability::Reservation(id) => {
                tracing::debug!(capacity_reservation_id = id, "marking capacity reservation unavailable");
                parts.reservations.exhausted(&id);
            }
            Unavailability::SpotRoleMissing => {
                parts.unavailable.mark_capacity_type(labels::CAPACITY_TYPE_SPOT);
                tracing::error!(
                    "spot instances need the role AWSServiceRoleForEC2Spot; create it with \
                     `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`"
                );
                if let Some(recorder) = &parts.recorder {
                    let message = "Attempted to launch a spot instance but failed due to \
                                   \"AuthFailure.ServiceLinkedRoleCreationNotPermitted\"";
                    let notice =
                        ObjectEvent::warning(launch.claim, "SpotServiceLinkedRoleCreationFailure", message);
                    let episode = launch.claim.metadata.uid.clone().unwrap_or_default();
                    recorder.publish(notice.dedupe_by(episode)).await;
                }
            }
        }
    }
}

async fn call_fleet(
    ec2: &dyn Ec2,
    clock: Clock,
    requests: Vec<CreateFleet>,
) -> Vec<Result<FleetResponse, AwsError>> {
    let count = requests.len();
    let Some(mut request) = requests.into_iter().next() else { return Vec::new() };
    request.total_target_capacity = i32::try_from(count).unwrap_or(i32::MAX);
    let requested_at = clock.now();
    match ec2.create_fleet(&request).await {
        Ok(answer) => {
            let shares = fleet::share(answer, count).into_iter();
            shares.map(|share| Ok(FleetResponse { requested_at, answer: share })).collect()
        }
        Err(error) => vec![Err(error); count],
    }
}

/// How many free IP addresses a subnet in the zone needs: the pod capacity of the smallest candidate offered in that
/// zone.
fn addresses_needed(candidates: &[Candidate<'_>], capacity_type: &str, zone: &str) -> i64 {
    let there = candidates.iter().filter(|candidate| {
        candidate.offerings.iter().any(|offering| {
            filters::is_capacity_type(offering, capacity_type)
                && offering.zone().is_some_and(|offered| &**offered == zone)
        })
    });
    there.map(|candidate| candidate.instance_type.capacity.get(PODS)).min().unwrap_or(0)
}

/// The first reservation of the launch; `None` for a launch without reservations. After [`filter`], all reservations of
/// a launch have the same type.
fn first_reservation(launch: &Launch<'_>) -> Option<Reservation> {
    if launch.capacity_type != labels::CAPACITY_TYPE_RESERVED {
        return None;
    }
    launch
        .candidates
        .iter()
        .flat_map(|candidate| &candidate.offerings)
        .find_map(|offering| Reservation::of(offering))
}

/// The number of EFA interfaces. An instance has some only if the NodeClaim requests EFA or the node class lists
/// network interfaces.
fn efa_count(launch: &Launch<'_>, instance_type: &str) -> i64 {
    if !launch.constraints.requests_resource(AWS_EFA) && launch.class.spec.network_interfaces.is_none() {
        return 0;
    }
    let launched = launch.candidates.iter().find(|candidate| &*candidate.instance_type.name == instance_type);
    launched.map_or(0, |candidate| candidate.instance_type.capacity.get(AWS_EFA))
}

fn family_of(class: &EC2NodeClass) -> AmiFamily {
    AmiFamily::parse(class.spec.resolved_ami_family()).unwrap_or(AmiFamily::Custom)
}

fn ami_version(class: &EC2NodeClass) -> Option<String> {
    let terms = class.spec.ami_selector_terms.iter().map(|term| version::Term {
        alias: term.alias.clone(),
        name: term.name.clone(),
        id: term.id.clone(),
    });
    let images = class
        .status
        .iter()
        .flat_map(|status| &status.amis)
        .map(|image| version::Image { id: image.id.clone(), name: image.name.clone().unwrap_or_default() });
    version::of_class(&terms.collect::<Vec<_>>(), &images.collect::<Vec<_>>())
}

/// Converts a taint; `None` if its effect is unknown, which the API server rejects.
fn taint(written: &karpenter_api::types::Taint) -> Option<Taint> {
    Some(Taint {
        key: written.key.as_str().into(),
        value: written.value.as_deref().unwrap_or_default().into(),
        effect: Effect::parse(&written.effect)?,
    })
}
