//! EC2 of the fake: describe calls return a part of the state, other calls change it.

use jiff::Timestamp;

use super::{Call, FakeAws, StoredTemplate, World};
use crate::api::ec2::*;
use crate::api::{AwsError, AwsFuture, TagFilter, Tags};

/// EC2's maximum size of user data after base64 decoding.
const USER_DATA_BYTES_MAX: usize = 16_384;

impl Ec2 for FakeAws {
    fn check_access(&self) -> AwsFuture<'_, ()> {
        self.call(Call::CheckAccess, |_, _| Ok(()))
    }

    fn describe_instance_types(&self) -> AwsFuture<'_, Vec<TypeInfo>> {
        self.call(Call::DescribeInstanceTypes, |world, _| Ok(world.types.clone()))
    }

    fn describe_instance_type_offerings(&self) -> AwsFuture<'_, Vec<TypeOffering>> {
        self.call(Call::DescribeInstanceTypeOfferings, |world, _| Ok(world.offerings.clone()))
    }

    fn describe_spot_price_history(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>> {
        self.call(Call::DescribeSpotPriceHistory, move |world, _| {
            let prices = world.spot_prices.iter().map(|((instance_type, zone), price)| SpotPrice {
                instance_type: instance_type.clone(),
                zone: zone.clone(),
                price_per_hour: *price,
                at: Some(start),
            });
            Ok(prices.collect())
        })
    }

    fn describe_subnets<'a>(&'a self, query: &'a SubnetQuery) -> AwsFuture<'a, Vec<Subnet>> {
        self.call(Call::DescribeSubnets, move |world, _| {
            let found = world.subnets.values().filter(|subnet| {
                (query.ids.is_empty() || query.ids.contains(&subnet.id)) && fits(&query.tags, &subnet.tags)
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_security_groups<'a>(
        &'a self,
        query: &'a SecurityGroupQuery,
    ) -> AwsFuture<'a, Vec<SecurityGroup>> {
        self.call(Call::DescribeSecurityGroups, move |world, _| {
            let found = world.security_groups.values().filter(|group| {
                (query.ids.is_empty() || query.ids.contains(&group.id))
                    && (query.names.is_empty() || query.names.contains(&group.name))
                    && fits(&query.tags, &group.tags)
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_images<'a>(&'a self, query: &'a ImageQuery) -> AwsFuture<'a, Vec<Image>> {
        self.call(Call::DescribeImages, move |world, _| {
            let account = world.account_id.clone();
            let found = world.images.values().filter(|image| {
                let is_owned = query.owners.is_empty()
                    || query.owners.iter().any(|owner| match owner.as_str() {
                        "self" => image.owner_id == account,
                        owner => image.owner_id == owner || image.owner_alias.as_deref() == Some(owner),
                    });
                image.state == "available"
                    && is_owned
                    && (query.ids.is_empty() || query.ids.contains(&image.id))
                    && query.name.as_ref().is_none_or(|pattern| matches_pattern(pattern, &image.name))
                    && fits(&query.tags, &image.tags)
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_capacity_reservations<'a>(
        &'a self,
        query: &'a ReservationQuery,
    ) -> AwsFuture<'a, Vec<CapacityReservation>> {
        self.call(Call::DescribeCapacityReservations, move |world, _| {
            if let Some(missing) = query.ids.iter().find(|id| !world.reservations.contains_key(*id)) {
                let message = format!("The capacity reservation {missing} does not exist");
                return Err(AwsError::new("InvalidCapacityReservationId.NotFound", message));
            }
            let found = world.reservations.values().filter(|reservation| {
                let criteria = query.instance_match_criteria.as_ref();
                reservation.state == "active"
                    && (query.ids.is_empty() || query.ids.contains(&reservation.id))
                    && query.owner_id.as_ref().is_none_or(|owner| *owner == reservation.owner_id)
                    && criteria.is_none_or(|criteria| *criteria == reservation.instance_match_criteria)
                    && fits(&query.tags, &reservation.tags)
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_placement_groups<'a>(
        &'a self,
        query: &'a PlacementGroupQuery,
    ) -> AwsFuture<'a, Vec<PlacementGroup>> {
        self.call(Call::DescribePlacementGroups, move |world, _| {
            let is_meant = |group: &&PlacementGroup| match query {
                PlacementGroupQuery::Id(id) => group.id == *id,
                PlacementGroupQuery::Name(name) => group.name == *name,
            };
            let known = world.placement_groups.values().filter(is_meant);
            Ok(known.filter(|group| group.state == "available").cloned().collect())
        })
    }

    fn describe_launch_templates<'a>(
        &'a self,
        query: &'a LaunchTemplateQuery,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>> {
        self.call(Call::DescribeLaunchTemplates, move |world, _| {
            if let Some(missing) = query.names.iter().find(|name| !world.launch_templates.contains_key(*name))
            {
                let message = format!(
                    "At least one of the launch templates specified in the request does not exist: {missing}"
                );
                return Err(AwsError::new("InvalidLaunchTemplateName.NotFoundException", message));
            }
            let found = world.launch_templates.values().map(|stored| &stored.template).filter(|template| {
                (query.names.is_empty() || query.names.contains(&template.name))
                    && fits(&query.tags, &template.tags)
            });
            Ok(found.cloned().collect())
        })
    }

    fn create_launch_template<'a>(
        &'a self,
        request: &'a CreateLaunchTemplate,
    ) -> AwsFuture<'a, LaunchTemplate> {
        self.call(Call::CreateLaunchTemplate, move |world, now| world.create_launch_template(request, now))
    }

    fn delete_launch_template<'a>(&'a self, launch_template_id: &'a str) -> AwsFuture<'a, ()> {
        self.call(Call::DeleteLaunchTemplate, move |world, _| {
            let count = world.launch_templates.len();
            world.launch_templates.retain(|_, stored| stored.template.id != launch_template_id);
            if world.launch_templates.len() == count {
                let message = format!("The specified launch template, {launch_template_id}, does not exist.");
                return Err(AwsError::new("InvalidLaunchTemplateId.NotFound", message));
            }
            Ok(())
        })
    }

    fn create_fleet<'a>(&'a self, request: &'a CreateFleet) -> AwsFuture<'a, FleetAnswer> {
        self.call(Call::CreateFleet, move |world, now| world.create_fleet(request, now))
    }

    fn dry_run_instances<'a>(&'a self, request: &'a DryRunInstances) -> AwsFuture<'a, ()> {
        self.call(Call::RunInstances, move |world, _| {
            let Some(stored) = world.launch_templates.get(&request.launch_template_name) else {
                let message = format!("launch template {} does not exist", request.launch_template_name);
                return Err(AwsError::new("InvalidLaunchTemplateName.NotFoundException", message));
            };
            let profile = stored.data.instance_profile_name.as_deref().unwrap_or_default();
            if !world.profiles.contains_key(profile) {
                let message = format!("Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name");
                return Err(AwsError::new("InvalidParameterValue", message));
            }
            Err(AwsError::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set."))
        })
    }

    fn describe_instances<'a>(&'a self, query: &'a InstanceQuery) -> AwsFuture<'a, Vec<Ec2Instance>> {
        self.call(Call::DescribeInstances, move |world, now| world.describe_instances(query, now))
    }

    fn terminate_instances<'a>(
        &'a self,
        instance_ids: &'a [String],
    ) -> AwsFuture<'a, Vec<InstanceStateChange>> {
        self.call(Call::TerminateInstances, move |world, now| world.terminate_instances(instance_ids, now))
    }

    fn create_tags<'a>(&'a self, resource_ids: &'a [String], tags: &'a Tags) -> AwsFuture<'a, ()> {
        self.call(Call::CreateTags, move |world, _| world.create_tags(resource_ids, tags))
    }

    fn describe_instance_status<'a>(
        &'a self,
        query: &'a InstanceStatusQuery,
    ) -> AwsFuture<'a, Vec<InstanceStatus>> {
        self.call(Call::DescribeInstanceStatus, move |world, _| {
            let is_impaired = |checks: &[StatusCheck]| checks.iter().any(|check| check.status == "failed");
            let found = world.statuses.iter().filter(|status| match query {
                InstanceStatusQuery::InstanceImpaired => is_impaired(&status.instance_checks),
                InstanceStatusQuery::SystemImpaired => is_impaired(&status.system_checks),
                InstanceStatusQuery::EventCodes(codes) => {
                    status.events.iter().any(|event| codes.contains(&event.code))
                }
            });
            Ok(found.cloned().collect())
        })
    }
}

impl World {
    fn create_launch_template(
        &mut self,
        request: &CreateLaunchTemplate,
        now: Timestamp,
    ) -> Result<LaunchTemplate, AwsError> {
        if self.launch_templates.contains_key(&request.name) {
            let message = format!("Launch template name already in use: {}", request.name);
            return Err(AwsError::new("InvalidLaunchTemplateName.AlreadyExistsException", message));
        }
        // Four base64 characters encode three bytes; because of padding, the computed size can be two bytes too large.
        if request.data.user_data.len() / 4 * 3 > USER_DATA_BYTES_MAX + 2 {
            let message = format!("User data is limited to {USER_DATA_BYTES_MAX} bytes");
            return Err(AwsError::new("InvalidUserData.Malformed", message));
        }
        self.created_templates.push(request.clone());
        let template = LaunchTemplate {
            id: self.next_id("lt"),
            name: request.name.clone(),
            created_at: Some(now),
            tags: request.tags.clone(),
        };
        let stored = StoredTemplate { template: template.clone(), data: request.data.clone() };
        self.launch_templates.insert(request.name.clone(), stored);
        Ok(template)
    }
}

fn fits(filters: &[TagFilter], tags: &Tags) -> bool {
    filters.iter().all(|filter| filter.matches(tags))
}

/// Whether the text matches a pattern in which `*` stands for any text and `?` for one character.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Element n states whether the part of the pattern read so far matches the first n characters of the text.
    let mut fits = vec![false; text.len() + 1];
    fits[0] = true;
    for wanted in pattern {
        let mut next = vec![false; text.len() + 1];
        next[0] = fits[0] && wanted == '*';
        for (position, letter) in text.iter().enumerate() {
            next[position + 1] = match wanted {
                '*' => next[position] || fits[position + 1],
                '?' => fits[position],
                wanted => fits[position] && wanted == *letter,
            };
        }
        fits = next;
    }
    fits[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asterisk_and_question_mark_are_wildcards() {
        let cases = [
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "a", false),
            ("*b*", "abc", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }
}
