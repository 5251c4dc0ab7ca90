//! Implements the EC2 calls. Requests and responses are converted in the modules below.

mod fleets;
mod instances;
mod launch_templates;
mod places;
mod type_infos;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::Config;
use aws_sdk_ec2::types::{Filter, LocationType, Tag, TagSpecification as SdkTagSpecification};
use aws_smithy_types::retry::RetryConfig;
use jiff::Timestamp;
use karpenter_aws::api::ec2::{
    CapacityReservation, CreateFleet, CreateLaunchTemplate, DryRunInstances, Ec2, Ec2Instance, FleetAnswer,
    Image, ImageQuery, InstanceQuery, InstanceStateChange, InstanceStatus, InstanceStatusQuery,
    LaunchTemplate, LaunchTemplateQuery, PlacementGroup, PlacementGroupQuery, ReservationQuery,
    SecurityGroup, SecurityGroupQuery, SpotPrice, Subnet, SubnetQuery, TagSpecification, TypeInfo,
    TypeOffering,
};
use karpenter_aws::api::{AwsError, AwsFuture, ErrorKind, TagFilter, Tags};

use crate::convert::{all_pages, date_time, timestamp};
use crate::error::aws_error;

const TYPES_PER_PAGE: i32 = 100;
const OFFERINGS_PER_PAGE: i32 = 1000;
const SPOT_PRICES_PER_PAGE: i32 = 2000;
const PLACES_PER_PAGE: i32 = 500;
const LAUNCH_TEMPLATES_PER_PAGE: i32 = 200;
const PER_PAGE: i32 = 1000;
const SPOT_PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

pub(crate) struct SdkEc2(pub(crate) Client);

/// Dry runs are not retried: the result of an authorization check would be the same.
fn without_retries() -> aws_sdk_ec2::config::Builder {
    Config::builder().retry_config(RetryConfig::disabled())
}

fn filter(name: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    let values = values.into_iter().map(Into::into).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

fn tag_filters(tags: &[TagFilter]) -> impl Iterator<Item = Filter> {
    tags.iter().map(|tag| match tag {
        TagFilter::Exists(key) => filter("tag-key", [key]),
        TagFilter::Is(key, value) => filter(format!("tag:{key}"), [value]),
    })
}

/// Empty lists are not sent, because EC2 treats them as a filter that matches nothing.
fn unless_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn sdk_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

fn tags(tags: Option<Vec<Tag>>) -> Tags {
    let pair = |tag: Tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default());
    tags.unwrap_or_default().into_iter().map(pair).collect()
}

fn tag_specifications(specifications: &[TagSpecification]) -> Option<Vec<SdkTagSpecification>> {
    let converted = specifications.iter().map(|specification| {
        SdkTagSpecification::builder()
            .resource_type(specification.resource_type.as_str().into())
            .set_tags(Some(sdk_tags(&specification.tags)))
            .build()
    });
    unless_empty(converted.collect())
}

impl Ec2 for SdkEc2 {
    fn check_access(&self) -> AwsFuture<'_, ()> {
        Box::pin(async move {
            let call = self.0.describe_instance_types().dry_run(true).customize();
            match call.config_override(without_retries()).send().await.map_err(aws_error) {
                Err(error) if error.kind != ErrorKind::DryRunOk => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn describe_instance_types(&self) -> AwsFuture<'_, Vec<TypeInfo>> {
        Box::pin(async move {
            let pages = self
                .0
                .describe_instance_types()
                .filters(filter("supported-virtualization-type", ["hvm"]))
                .filters(filter("processor-info.supported-architecture", ["x86_64", "arm64"]))
                .into_paginator()
                .page_size(TYPES_PER_PAGE)
                .send();
            let convert = |types: Vec<_>| types.into_iter().filter_map(type_infos::type_info).collect();
            all_pages(pages, |page| convert(page.instance_types.unwrap_or_default())).await
        })
    }

    fn describe_instance_type_offerings(&self) -> AwsFuture<'_, Vec<TypeOffering>> {
        Box::pin(async move {
            let pages = self
                .0
                .describe_instance_type_offerings()
                .location_type(LocationType::AvailabilityZone)
                .into_paginator()
                .page_size(OFFERINGS_PER_PAGE)
                .send();
            let offering = |offering: aws_sdk_ec2::types::InstanceTypeOffering| {
                let instance_type = offering.instance_type?.as_str().to_owned();
                Some(TypeOffering { instance_type, zone: offering.location? })
            };
            let convert = |page: Vec<_>| page.into_iter().filter_map(offering).collect();
            all_pages(pages, |page| convert(page.instance_type_offerings.unwrap_or_default())).await
        })
    }

    fn describe_spot_price_history(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>> {
        Box::pin(async move {
            let pages = self
                .0
                .describe_spot_price_history()
                .set_product_descriptions(Some(SPOT_PRODUCTS.map(str::to_owned).to_vec()))
                .start_time(date_time(start))
                .into_paginator()
                .page_size(SPOT_PRICES_PER_PAGE)
                .send();
            let price = |price: aws_sdk_ec2::types::SpotPrice| {
                Some(SpotPrice {
                    instance_type: price.instance_type?.as_str().to_owned(),
                    zone: price.availability_zone?,
                    price_per_hour: price.spot_price?.parse().ok()?,
                    at: timestamp(price.timestamp),
                })
            };
            let convert = |page: Vec<_>| page.into_iter().filter_map(price).collect();
            all_pages(pages, |page| convert(page.spot_price_history.unwrap_or_default())).await
        })
    }

    fn describe_subnets<'a>(&'a self, query: &'a SubnetQuery) -> AwsFuture<'a, Vec<Subnet>> {
        Box::pin(async move {
            let ids = (!query.ids.is_empty()).then(|| filter("subnet-id", &query.ids));
            let filters = ids.into_iter().chain(tag_filters(&query.tags)).collect();
            let call = self.0.describe_subnets().set_filters(unless_empty(filters));
            let pages = call.into_paginator().page_size(PLACES_PER_PAGE).send();
            let convert = |page: Vec<_>| page.into_iter().map(places::subnet).collect();
            all_pages(pages, |page| convert(page.subnets.unwrap_or_default())).await
        })
    }

    fn describe_security_groups<'a>(
        &'a self,
        query: &'a SecurityGroupQuery,
    ) -> AwsFuture<'a, Vec<SecurityGroup>> {
        Box::pin(async move {
            let ids = (!query.ids.is_empty()).then(|| filter("group-id", &query.ids));
            let names = (!query.names.is_empty()).then(|| filter("group-name", &query.names));
            let filters = ids.into_iter().chain(names).chain(tag_filters(&query.tags)).collect();
            let call = self.0.describe_security_groups().set_filters(unless_empty(filters));
            let pages = call.into_paginator().page_size(PLACES_PER_PAGE).send();
            let convert = |page: Vec<_>| page.into_iter().map(places::security_group).collect();
            all_pages(pages, |page| convert(page.security_groups.unwrap_or_default())).await
        })
    }

    fn describe_images<'a>(&'a self, query: &'a ImageQuery) -> AwsFuture<'a, Vec<Image>> {
        Box::pin(async move {
            let ids = (!query.ids.is_empty()).then(|| filter("image-id", &query.ids));
            let name = query.name.as_ref().map(|name| filter("name", [name]));
            let state = Some(filter("state", ["available"]));
            let filters = ids.into_iter().chain(name).chain(state).chain(tag_filters(&query.tags)).collect();
            let call = self
                .0
                .describe_images()
                .set_filters(Some(filters))
                .set_owners(unless_empty(query.owners.clone()))
                .include_deprecated(true);
            let pages = call.into_paginator().page_size(PER_PAGE).send();
            let convert = |page: Vec<_>| page.into_iter().map(places::image).collect();
            all_pages(pages, |page| convert(page.images.unwrap_or_default())).await
        })
    }

    fn describe_capacity_reservations<'a>(
        &'a self,
        query: &'a ReservationQuery,
    ) -> AwsFuture<'a, Vec<CapacityReservation>> {
        Box::pin(async move {
            let owner = query.owner_id.as_ref().map(|owner| filter("owner-id", [owner]));
            let criteria = query.instance_match_criteria.as_ref();
            let criteria = criteria.map(|criteria| filter("instance-match-criteria", [criteria]));
            let state = Some(filter("state", ["active"]));
            let filters =
                state.into_iter().chain(owner).chain(criteria).chain(tag_filters(&query.tags)).collect();
            let call = self
                .0
                .describe_capacity_reservations()
                .set_capacity_reservation_ids(unless_empty(query.ids.clone()))
                .set_filters(Some(filters));
            let pages = call.into_paginator();
            // EC2 rejects a page size together with ids.
            let pages = if query.ids.is_empty() { pages.page_size(PER_PAGE) } else { pages };
            let convert = |page: Vec<_>| page.into_iter().map(places::capacity_reservation).collect();
            all_pages(pages.send(), |page| convert(page.capacity_reservations.unwrap_or_default())).await
        })
    }

    fn describe_placement_groups<'a>(
        &'a self,
        query: &'a PlacementGroupQuery,
    ) -> AwsFuture<'a, Vec<PlacementGroup>> {
        Box::pin(async move {
            let call = self.0.describe_placement_groups().filters(filter("state", ["available"]));
            let call = match query {
                PlacementGroupQuery::Id(id) => call.group_ids(id),
                PlacementGroupQuery::Name(name) => call.group_names(name),
            };
            let answer = call.send().await.map_err(aws_error)?;
            Ok(answer.placement_groups.unwrap_or_default().into_iter().map(places::placement_group).collect())
        })
    }

    fn describe_launch_templates<'a>(
        &'a self,
        query: &'a LaunchTemplateQuery,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>> {
        Box::pin(async move {
            let call = self
                .0
                .describe_launch_templates()
                .set_launch_template_names(unless_empty(query.names.clone()))
                .set_filters(unless_empty(tag_filters(&query.tags).collect()));
            let pages = call.into_paginator();
            let pages =
                if query.names.is_empty() { pages.page_size(LAUNCH_TEMPLATES_PER_PAGE) } else { pages };
            let convert = |page: Vec<_>| page.into_iter().map(launch_templates::launch_template).collect();
            all_pages(pages.send(), |page| convert(page.launch_templates.unwrap_or_default())).await
        })
    }

    fn create_launch_template<'a>(
        &'a self,
        request: &'a CreateLaunchTemplate,
    ) -> AwsFuture<'a, LaunchTemplate> {
        Box::pin(async move {
            let own_tags =
                TagSpecification { resource_type: "launch-template".to_owned(), tags: request.tags.clone() };
            let call = self
                .0
                .create_launch_template()
                .launch_template_name(&request.name)
                .launch_template_data(launch_templates::launch_template_data(&request.data))
                .set_tag_specifications(tag_specifications(&[own_tags]));
            let answer = call.send().await.map_err(aws_error)?;
            let missing = || AwsError::new("", "EC2 returned no launch template after creation");
            answer.launch_template.map(launch_templates::launch_template).ok_or_else(missing)
        })
    }

    fn delete_launch_template<'a>(&'a self, launch_template_id: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call = self.0.delete_launch_template().launch_template_id(launch_template_id);
            call.send().await.map(drop).map_err(aws_error)
        })
    }

    fn create_fleet<'a>(&'a self, request: &'a CreateFleet) -> AwsFuture<'a, FleetAnswer> {
        Box::pin(async move {
            let call = fleets::request(self.0.create_fleet(), request);
            if !request.is_dry_run {
                return call.send().await.map(fleets::answer).map_err(aws_error);
            }
            let answer = call.customize().config_override(without_retries()).send().await;
            Err(answer.map_or_else(aws_error, |_| dry_run_ok()))
        })
    }

    fn dry_run_instances<'a>(&'a self, request: &'a DryRunInstances) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call = instances::dry_run(self.0.run_instances(), request).dry_run(true);
            let answer = call.customize().config_override(without_retries()).send().await;
            Err(answer.map_or_else(aws_error, |_| dry_run_ok()))
        })
    }

    fn describe_instances<'a>(&'a self, query: &'a InstanceQuery) -> AwsFuture<'a, Vec<Ec2Instance>> {
        Box::pin(async move {
            let states = query.states.iter().map(|state| state.as_str());
            let states = (!query.states.is_empty()).then(|| filter("instance-state-name", states));
            let filters = states.into_iter().chain(tag_filters(&query.tags)).collect();
            let call = self
                .0
                .describe_instances()
                .set_instance_ids(unless_empty(query.ids.clone()))
                .set_filters(unless_empty(filters));
            let pages = call.into_paginator();
            // EC2 rejects a page size together with ids.
            let pages = if query.ids.is_empty() { pages.page_size(PER_PAGE) } else { pages };
            let found = all_pages(pages.send(), |page| page.reservations.unwrap_or_default()).await?;
            let machines =
                found.into_iter().flat_map(|reservation| reservation.instances.unwrap_or_default());
            Ok(machines.map(instances::instance).collect())
        })
    }

    fn terminate_instances<'a>(
        &'a self,
        instance_ids: &'a [String],
    ) -> AwsFuture<'a, Vec<InstanceStateChange>> {
        Box::pin(async move {
            let call = self.0.terminate_instances().set_instance_ids(Some(instance_ids.to_vec()));
            let answer = call.send().await.map_err(aws_error)?;
            let changes = answer.terminating_instances.unwrap_or_default();
            Ok(changes.into_iter().map(instances::state_change).collect())
        })
    }

    fn create_tags<'a>(&'a self, resource_ids: &'a [String], tags: &'a Tags) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call = self
                .0
                .create_tags()
                .set_resources(Some(resource_ids.to_vec()))
                .set_tags(Some(sdk_tags(tags)));
            call.send().await.map(drop).map_err(aws_error)
        })
    }

    fn describe_instance_status<'a>(
        &'a self,
        query: &'a InstanceStatusQuery,
    ) -> AwsFuture<'a, Vec<InstanceStatus>> {
        Box::pin(async move {
            let only = match query {
                InstanceStatusQuery::InstanceImpaired => filter("instance-status.status", ["impaired"]),
                InstanceStatusQuery::SystemImpaired => filter("system-status.status", ["impaired"]),
                InstanceStatusQuery::EventCodes(codes) => filter("event.code", codes),
            };
            let pages = self.0.describe_instance_status().filters(only).into_paginator();
            let convert = |page: Vec<_>| page.into_iter().map(instances::status).collect();
            all_pages(pages.send(), |page| convert(page.instance_statuses.unwrap_or_default())).await
        })
    }
}

/// The error that EC2 returns for an authorized dry run. Simulators of EC2 may return success, which is converted to
/// it.
fn dry_run_ok() -> AwsError {
    AwsError::new("DryRunOperation", "the request would have succeeded")
}
