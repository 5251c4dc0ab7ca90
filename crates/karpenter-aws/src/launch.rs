//! From a claim to a machine: types are filtered, templates made, a fleet asked for, and whatever EC2 refuses is learned
//! from.
//!
//! The decisions are in files of their own ([`filters`], [`groups`], [`template_data`], [`fleet`], [`refusals`]); here
//! is the order in which they are asked and acted upon. A launch that finds its template gone is tried once more; any
//! other failure is the caller's to try again. What a machine is called and how it ends is not decided here.

pub mod filters;
pub mod fleet;
pub mod groups;
mod metrics;
pub mod refusals;
pub mod template_data;
pub mod templates;
pub mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, NodeClaim};
use karpenter_catalog::aws::{AWS_EFA, PlacementGroup};
use karpenter_cloud::CloudError;
use karpenter_cluster::clock::Clock;
use karpenter_controllers::events::{Notice, Recorder};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::resources::PODS;
use karpenter_model::taints::{Effect, Taint};
use karpenter_userdata::bottlerocket::version;
use karpenter_userdata::{AmiFamily, Input, SizeVerdict, UserDataError, prepare};

use crate::api::ec2::{CreateFleet, FleetAnswer};
use crate::api::{AwsError, Ec2, Tags};
use crate::batcher::{Batcher, Windows};
use crate::cluster_facts::{ClusterCidr, ClusterFacts};
use crate::instances::Machine;
use crate::node_class::TemplateRequest;
use crate::node_class::tags::{add_provisioner, launch_tags};
use crate::placement_groups::{PlacementGroups, facts, launch_partition};
use crate::reservations::Counts;
use crate::subnets::{LaunchSubnet, Subnets};
use crate::unavailable::Unavailable;
use filters::{Candidate, Reservation, capacity_type, filter};
use fleet::{FleetTerms, ReadyTemplate};
use groups::{Group, KubeletOf, groups};
pub use metrics::LaunchMetrics;
use refusals::{Lesson, Placement, lessons, refused, without_machine};
use template_data::{TemplateInput, template_data};
use templates::LaunchTemplates;
use wanted::Wanted;

/// Requests for fleets wait for each other this long.
const FLEET_WINDOWS: Windows = Windows {
    idle: Duration::from_millis(35),
    longest: Duration::from_secs(1),
    items_max: 1000,
    concurrent_calls_max: 100,
};
/// Falling back from spot with fewer types than this is asking for trouble.
const FLEXIBLE_TYPES_MIN: usize = 5;
const ENCLAVE_RESOURCE: &str = "eks.amazonaws.com/nitro-sandbox";
const TEMPLATES_FAILED: &str = "Error getting launch template configs";

/// What a launch needs to know and to use.
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
    pub kubelet_of: Arc<dyn KubeletOf>,
    pub metrics: LaunchMetrics,
    /// Tells of what a claim's owner should know; none where there is no cluster to tell.
    pub recorder: Option<Recorder>,
    pub settings: LaunchSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchSettings {
    /// The feature gate ReservedCapacity.
    pub reserved_capacity: bool,
    /// Whether too few values for minValues are a reason not to launch.
    pub min_values_are_strict: bool,
}

/// Launches machines. Clones are the same launcher.
#[derive(Clone)]
pub struct Launcher {
    parts: LaunchParts,
    fleets: Batcher<String, CreateFleet, Answered>,
}

/// Everything about one launch that does not change when it is tried again.
struct Launch<'a> {
    class: &'a EC2NodeClass,
    claim: &'a NodeClaim,
    wanted: Wanted,
    candidates: Vec<Candidate<'a>>,
    capacity_type: &'static str,
    tenancy: &'static str,
    group: Option<PlacementGroup>,
    partition: Option<u32>,
    tags: Tags,
}

/// What EC2 said about a fleet.
#[derive(Clone)]
struct Answered {
    /// When it was asked: what it counts from then on has the new machines in it.
    asked_at: Timestamp,
    answer: FleetAnswer,
}

/// How one try ended.
enum Tried {
    Machine(Box<Machine>),
    /// The templates were gone; they are made anew.
    TemplatesGone(CloudError),
}

impl Launcher {
    pub fn new(parts: LaunchParts) -> Self {
        let (ec2, metrics, clock) = (Arc::clone(&parts.ec2), parts.metrics.clone(), parts.clock);
        let execute = move |_: String, requests: Vec<CreateFleet>| {
            let ec2 = Arc::clone(&ec2);
            Box::pin(async move { call_fleet(&*ec2, clock, requests).await }) as _
        };
        let tell = move |batch| metrics.tell_batch(batch);
        let fleets = Batcher::new("create_fleet", parts.clock, FLEET_WINDOWS, execute, tell);
        Self { parts, fleets }
    }

    pub fn templates(&self) -> &LaunchTemplates {
        &self.parts.templates
    }

    /// The class is gone: so are its templates, and what is told about it.
    pub async fn forget_class(&self, class_name: &str) -> Result<(), AwsError> {
        self.parts.templates.delete_all(class_name).await?;
        // There may be nothing to take back.
        let _ = self.parts.metrics.user_data_bytes.remove_label_values(&[class_name]);
        Ok(())
    }

    /// Launches one machine of one of the types. The class is ready; see [`crate::node_class::readiness`].
    pub async fn launch(
        &self,
        class: &EC2NodeClass,
        claim: &NodeClaim,
        types: &[InstanceType],
    ) -> Result<Machine, CloudError> {
        let launch = self.prepare(class, claim, types).await?;
        match self.attempt(&launch).await? {
            Tried::Machine(machine) => Ok(*machine),
            Tried::TemplatesGone(_) => match self.attempt(&launch).await? {
                Tried::Machine(machine) => Ok(*machine),
                Tried::TemplatesGone(error) => Err(error),
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
        let wanted = Wanted::of(claim);
        let candidates = filter(types, &wanted, self.parts.settings.min_values_are_strict)
            .map_err(|error| CloudError::InsufficientCapacity { message: error.to_string() })?;
        let capacity_type = capacity_type(&candidates, &wanted);
        let (group, partition) = self
            .placement(class, &wanted)
            .await
            .map_err(|message| CloudError::NodeClassNotReady { message })?;
        let tenancy = wanted.tenancy();
        Ok(Launch { class, claim, wanted, candidates, capacity_type, tenancy, group, partition, tags })
    }

    /// The group and the partition to launch into. A class that selects a group has no machines outside of it, so one
    /// that is not there, or not any longer, is a problem.
    async fn placement(
        &self,
        class: &EC2NodeClass,
        wanted: &Wanted,
    ) -> Result<(Option<PlacementGroup>, Option<u32>), String> {
        let Some(selector) = &class.spec.placement_group_selector else { return Ok((None, None)) };
        let group = self.parts.placement_groups.find_or_recall(selector).await;
        let Some(group) = group.as_ref().and_then(facts) else {
            let selected = selector.id.as_deref().or(selector.name.as_deref()).unwrap_or_default();
            return Err(format!("placement group {selected:?} is not there"));
        };
        let asked = wanted.requirements.get(labels::AWS_PLACEMENT_GROUP_PARTITION);
        let partition = launch_partition(&group, asked);
        Ok((Some(group), partition))
    }

    async fn attempt(&self, launch: &Launch<'_>) -> Result<Tried, CloudError> {
        let subnets = launch.class.status.as_ref().map_or(&[][..], |status| &status.subnets);
        if subnets.is_empty() {
            let (reason, message) = ("SubnetResolutionFailed".to_owned(), "Error getting subnets".to_owned());
            return Err(CloudError::CreateRefused { reason, message });
        }
        let needed = |zone: &str| addresses_needed(&launch.candidates, launch.capacity_type, zone);
        let chosen = self.parts.subnets.choose(subnets, needed);
        let answer = self.ask_for_fleet(launch, &chosen).await;
        let used: BTreeSet<&str> = match &answer {
            Ok((_, answer)) => {
                let bought = answer.iter().flat_map(|answered| &answered.answer.instances);
                bought.filter_map(|bought| bought.launched_as.subnet_id.as_deref()).collect()
            }
            Err(_) => BTreeSet::new(),
        };
        self.parts.subnets.settle(chosen.values(), &used);
        let (templates, answer) = answer?;
        match answer {
            Ok(answered) => {
                // EC2 may also tell it offer by offer; every use of a template that is not forgotten prolongs the error.
                let is_template_gone =
                    answered.answer.errors.iter().any(|failed| failed.error.is_launch_template_gone());
                if is_template_gone {
                    templates.iter().for_each(|name| self.parts.templates.forget(name));
                }
                match self.conclude(launch, &chosen, answered).await {
                    Err(error) if is_template_gone => Ok(Tried::TemplatesGone(error)),
                    outcome => outcome.map(|machine| Tried::Machine(Box::new(machine))),
                }
            }
            Err(error) => {
                tracing::warn!(claim = launch.claim.metadata.name, %error, "fleet request was refused");
                if error.is_launch_template_gone() {
                    templates.iter().for_each(|name| self.parts.templates.forget(name));
                    let doing = "Launch templates not found when creating fleet request";
                    return Ok(Tried::TemplatesGone(refused(doing, &error.to_string())));
                }
                Err(refused("Error creating fleet request", &error.to_string()))
            }
        }
    }

    /// Makes sure of the templates and asks; the names of the templates, and EC2's answer.
    async fn ask_for_fleet(
        &self,
        launch: &Launch<'_>,
        chosen: &BTreeMap<String, LaunchSubnet>,
    ) -> Result<(Vec<String>, Result<Answered, AwsError>), CloudError> {
        let templates = self.ready_templates(launch).await?;
        self.warn_if_inflexible(launch);
        let annotations = launch.claim.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|annotations| annotations.get(key));
        let is_relaxed =
            annotation(labels::ANNOTATION_MIN_VALUES_RELAXED).is_some_and(|value| value == "true");
        let reservation = first_reservation(launch);
        let terms = FleetTerms {
            capacity_type: launch.capacity_type,
            reservation: reservation.as_ref(),
            has_own_prices: annotation(labels::ANNOTATION_PRICE_OVERLAY_APPLIED).is_some(),
            context: launch.class.spec.context.as_deref().filter(|_| !is_relaxed),
            tags: &launch.tags,
        };
        let Some(request) = fleet::fleet(&templates, chosen, &terms) else {
            let problem = "no capacity offerings are currently available given the constraints";
            tracing::warn!(claim = launch.claim.metadata.name, problem, "nothing to ask a fleet for");
            return Err(refused(TEMPLATES_FAILED, problem));
        };
        let names = templates.into_iter().map(|template| template.name).collect();
        Ok((names, self.fleets.call(fleet::batch_key(&request), request).await))
    }

    async fn ready_templates<'a>(&self, launch: &Launch<'a>) -> Result<Vec<ReadyTemplate<'a>>, CloudError> {
        let status = launch.class.status.as_ref();
        if status.is_none_or(|status| status.security_groups.is_empty()) {
            return Err(refused(TEMPLATES_FAILED, "no security groups are present in the status"));
        }
        let kubelet_of = &*self.parts.kubelet_of;
        let found =
            groups(launch.class, &launch.candidates, &launch.wanted, launch.capacity_type, kubelet_of);
        let found = found.map_err(|problem| {
            tracing::warn!(claim = launch.claim.metadata.name, %problem, "no launch template can be made");
            refused(TEMPLATES_FAILED, &problem.to_string())
        })?;
        try_join_all(found.into_iter().map(|group| self.ready_template(launch, group))).await
    }

    async fn ready_template<'a>(
        &self,
        launch: &Launch<'a>,
        group: Group<'a>,
    ) -> Result<ReadyTemplate<'a>, CloudError> {
        let class = launch.class;
        let family = family_of(class);
        let user_data =
            self.user_data(class, Some(launch.claim), family, launch.capacity_type, &group.kubelet);
        let user_data = user_data.map_err(|error| match error {
            UserDataError::ClusterCidrMissing => CloudError::NodeClassNotReady { message: error.to_string() },
            error => {
                tracing::warn!(claim = launch.claim.metadata.name, %error, "user data cannot be made");
                refused(TEMPLATES_FAILED, &error.to_string())
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
            is_enclave_enabled: launch.wanted.requests_resource(ENCLAVE_RESOURCE),
            reservation: group.reservation.clone(),
            targets_reservations: self.parts.settings.reserved_capacity,
            placement_group_id: launch.group.as_ref().map(|group| &*group.id),
            partition: launch.partition.and_then(|number| i32::try_from(number).ok()),
            tags: &launch.tags,
        });
        let template = self.parts.templates.ensure(data, &launch.tags).await.map_err(|error| {
            tracing::warn!(claim = launch.claim.metadata.name, %error, "launch template cannot be made");
            refused(TEMPLATES_FAILED, &error.to_string())
        })?;
        let image_id = group.image.id.clone();
        Ok(ReadyTemplate { name: template.name, image_id, candidates: group.candidates })
    }

    /// The template by which a launch with a class is tried out, for on-demand machines and no claim.
    pub async fn ensure_for_trial(&self, request: TemplateRequest<'_>) -> Result<String, AwsError> {
        let class = request.class;
        let family = family_of(class);
        let problem = |problem: String| AwsError::new("", problem);
        let kubelet = self.parts.kubelet_of.kubelet(class, request.instance_type).map_err(problem)?;
        let capacity_type = labels::CAPACITY_TYPE_ON_DEMAND;
        let user_data = self.user_data(class, None, family, capacity_type, &kubelet);
        let (group, _) = self.placement(class, &Wanted::default()).await.map_err(problem)?;
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

    /// In base64.
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
            tracing::debug!(nodeclass = name, %warning, "user data");
        }
        let size = rendered.size();
        let bytes = i64::try_from(size.bytes).unwrap_or(i64::MAX);
        self.parts.metrics.user_data_bytes.with_label_values(&[name]).set(bytes);
        // EC2 has the last word; this only makes growth visible before it comes.
        if size.verdict != SizeVerdict::Fits {
            tracing::info!(
                userdata_bytes = bytes,
                "rendered user data is approaching the EC2 user data size limit"
            );
        }
        Ok(rendered.base64())
    }

    fn warn_if_inflexible(&self, launch: &Launch<'_>) {
        let is_fallback = launch.capacity_type == labels::CAPACITY_TYPE_ON_DEMAND
            && launch.wanted.allows_capacity_type(labels::CAPACITY_TYPE_SPOT);
        if is_fallback && launch.candidates.len() < FLEXIBLE_TYPES_MIN {
            tracing::warn!(
                claim = launch.claim.metadata.name,
                instance_types = launch.candidates.len(),
                "at least {FLEXIBLE_TYPES_MIN} instance types are recommended when flexible to spot but requesting on-demand"
            );
        }
    }

    /// Learns from what was refused, and takes the machine if there is one.
    async fn conclude(
        &self,
        launch: &Launch<'_>,
        chosen: &BTreeMap<String, LaunchSubnet>,
        Answered { asked_at, answer }: Answered,
    ) -> Result<Machine, CloudError> {
        for failed in &answer.errors {
            let zone = failed.tried.zone.as_deref().unwrap_or_default();
            let zone_id = chosen.get(zone).and_then(|subnet| subnet.zone_id.as_deref()).unwrap_or_default();
            let (reason, _) = refusals::reason_and_message(&failed.error.to_string());
            let values = [zone, zone_id, launch.capacity_type, reason];
            self.parts.metrics.launch_failures.with_label_values(&values).inc();
        }
        let placement = Placement {
            group_id: launch.group.as_ref().map(|group| group.id.to_string()),
            partition: launch.partition,
        };
        let learned = lessons(&answer.errors, launch.capacity_type, &launch.candidates, &placement);
        for lesson in learned {
            self.learn(launch, lesson).await;
        }
        let Some(bought) = answer.instances.first() else { return Err(without_machine(&answer.errors)) };
        let zone = bought.launched_as.zone.clone().or_else(|| {
            let subnet = bought.launched_as.subnet_id.as_deref();
            let there = chosen.values().find(|chosen| Some(chosen.id.as_str()) == subnet);
            there.map(|chosen| chosen.zone.clone())
        });
        let zone = zone.unwrap_or_default();
        let reservation = (launch.capacity_type == labels::CAPACITY_TYPE_RESERVED)
            .then(|| filters::reservation(&launch.candidates, &bought.instance_type, &zone))
            .flatten();
        if let Some(reservation) = &reservation {
            self.parts.reservations.launched(&reservation.id, asked_at);
        }
        let zone_id = chosen.get(&zone).and_then(|subnet| subnet.zone_id.clone());
        let efa_count = efa_count(launch, &bought.instance_type);
        let machine = Machine::from_fleet(bought, zone, self.parts.clock.now()).ok_or_else(|| {
            CloudError::Transient { message: "EC2 told of a machine without an id".to_owned() }
        })?;
        Ok(Machine {
            zone_id,
            capacity_type: launch.capacity_type.to_owned(),
            tenancy: launch.tenancy.to_owned(),
            tags: launch.tags.clone(),
            reservation,
            efa_count,
            placement_group_id: launch.group.as_ref().map(|group| group.id.to_string()),
            partition: launch.partition,
            ..machine
        })
    }

    async fn learn(&self, launch: &Launch<'_>, lesson: Lesson) {
        let parts = &self.parts;
        match lesson {
            Lesson::Pool(pool, word) => parts.unavailable.mark_pool(pool, &word),
            Lesson::Subnet(id) => {
                parts.unavailable.mark_subnet(&id);
                parts.subnets.exhausted(&id);
            }
            Lesson::Reservation(id) => {
                tracing::debug!(capacity_reservation_id = id, "marking capacity reservation unavailable");
                parts.reservations.exhausted(&id);
            }
            Lesson::SpotRoleMissing => {
                parts.unavailable.mark_capacity_type(labels::CAPACITY_TYPE_SPOT);
                tracing::error!(
                    "spot instances need the role AWSServiceRoleForEC2Spot; create it with \
                     `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`"
                );
                if let Some(recorder) = &parts.recorder {
                    let message = "Attempted to launch a spot instance but failed due to \
                                   \"AuthFailure.ServiceLinkedRoleCreationNotPermitted\"";
                    let notice =
                        Notice::warning(launch.claim, "SpotServiceLinkedRoleCreationFailure", message);
                    let episode = launch.claim.metadata.uid.clone().unwrap_or_default();
                    recorder.publish(notice.of_episode(episode)).await;
                }
            }
        }
    }
}

async fn call_fleet(
    ec2: &dyn Ec2,
    clock: Clock,
    requests: Vec<CreateFleet>,
) -> Vec<Result<Answered, AwsError>> {
    let count = requests.len();
    let Some(mut request) = requests.into_iter().next() else { return Vec::new() };
    request.total_target_capacity = i32::try_from(count).unwrap_or(i32::MAX);
    let asked_at = clock.now();
    match ec2.create_fleet(&request).await {
        Ok(answer) => {
            let shares = fleet::share(answer, count).into_iter();
            shares.map(|answer| Ok(Answered { asked_at, answer })).collect()
        }
        Err(error) => vec![Err(error); count],
    }
}

/// Enough for the pods of the smallest machine that a launch could become in a zone.
fn addresses_needed(candidates: &[Candidate<'_>], capacity_type: &str, zone: &str) -> i64 {
    let there = candidates.iter().filter(|candidate| {
        candidate.offerings.iter().any(|offering| {
            filters::is_capacity_type(offering, capacity_type)
                && offering.zone().is_some_and(|offered| &**offered == zone)
        })
    });
    there.map(|candidate| candidate.instance_type.capacity.get(PODS)).min().unwrap_or(0)
}

/// All reservations of a launch are of one kind, so any of them tells it.
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

/// Machines have EFA interfaces only if somebody asked for them.
fn efa_count(launch: &Launch<'_>, instance_type: &str) -> i64 {
    if !launch.wanted.requests_resource(AWS_EFA) && launch.class.spec.network_interfaces.is_none() {
        return 0;
    }
    let bought = launch.candidates.iter().find(|candidate| &*candidate.instance_type.name == instance_type);
    bought.map_or(0, |candidate| candidate.instance_type.capacity.get(AWS_EFA))
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

/// A taint whose effect nobody knows was refused by the API server.
fn taint(written: &karpenter_api::types::Taint) -> Option<Taint> {
    Some(Taint {
        key: written.key.as_str().into(),
        value: written.value.as_deref().unwrap_or_default().into(),
        effect: Effect::parse(&written.effect)?,
    })
}
