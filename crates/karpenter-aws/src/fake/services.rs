//! The services of the fake other than EC2: EKS, SSM, ARC zonal shift, Price List, IAM and SQS.

use std::time::Duration;

use serde_json::json;

use super::instances::later;
use super::{Call, FakeAws};
use crate::api::eks::Cluster;
use crate::api::iam::{CreateInstanceProfile, InstanceProfile};
use crate::api::pricing::ProductQuery;
use crate::api::sqs::{DeleteFailure, Message, ReceiveMessages};
use crate::api::zonal_shift::Shift;
use crate::api::{AwsError, AwsFuture, Eks, Iam, Pricing, Sqs, Ssm, ZonalShift};

impl Eks for FakeAws {
    fn describe_cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster> {
        self.call(Call::DescribeCluster, move |world, _| {
            let message = || format!("No cluster found for name: {name}.");
            world
                .clusters
                .get(name)
                .cloned()
                .ok_or_else(|| AwsError::new("ResourceNotFoundException", message()))
        })
    }
}

impl Ssm for FakeAws {
    fn get_parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        self.call(Call::GetParameter, move |world, _| {
            // The ARN of a parameter ends with the parameter's name, including its slashes.
            let plain = name.split_once(":parameter").map_or(name, |(_, plain)| plain);
            if world.denied_parameters.contains(plain) {
                let message = format!("not authorized to perform: ssm:GetParameter on resource: {name}");
                return Err(AwsError::new("AccessDeniedException", message));
            }
            world.parameters.get(plain).cloned().ok_or_else(|| AwsError::new("ParameterNotFound", name))
        })
    }
}

impl ZonalShift for FakeAws {
    fn get_managed_resource<'a>(&'a self, resource_arn: &'a str) -> AwsFuture<'a, Vec<Shift>> {
        self.call(Call::GetManagedResource, move |world, _| {
            if world.clusters.values().all(|cluster| cluster.arn != resource_arn) {
                return Err(AwsError::new("ResourceNotFoundException", resource_arn));
            }
            Ok(world.shifts.clone())
        })
    }
}

impl Pricing for FakeAws {
    fn get_products<'a>(&'a self, query: &'a ProductQuery) -> AwsFuture<'a, Vec<String>> {
        self.call(Call::GetProducts, move |world, _| {
            if query.value("regionCode").is_some_and(|region| region != world.region) {
                return Ok(Vec::new());
            }
            let volumes = match query.value("productFamily") {
                Some("Storage") => Some("EBS:VolumeUsage"),
                Some("System Operation") => Some("EBS:VolumeP-IOPS"),
                Some("Provisioned Throughput") => Some("EBS:VolumeP-Throughput"),
                _ => None,
            };
            if let Some(prefix) = volumes {
                let prices = world.volume_prices.iter().filter(|(usage, _)| usage.starts_with(prefix));
                return Ok(prices.map(|(usage, price)| product("usagetype", usage, *price)).collect());
            }
            let wants_metal = match query.value("productFamily") {
                Some("Compute Instance (bare metal)") => Some(true),
                Some("Compute Instance") => Some(false),
                _ => None,
            };
            let products = world.types.iter().filter_map(|info| {
                let is_metal = info.name.contains(".metal");
                let price = world.on_demand_prices.get(&*info.name)?;
                wants_metal
                    .is_none_or(|wanted| wanted == is_metal)
                    .then(|| product("instanceType", &info.name, *price))
            });
            Ok(products.collect())
        })
    }
}

fn product(attribute: &str, value: &str, price: f64) -> String {
    json!({
        "product": { "attributes": { attribute: value } },
        "terms": { "OnDemand": { "offer": { "priceDimensions": { "dimension": {
            "pricePerUnit": { "USD": price.to_string() }
        } } } } },
    })
    .to_string()
}

impl Iam for FakeAws {
    fn get_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, InstanceProfile> {
        self.call(Call::GetInstanceProfile, move |world, _| {
            world.profiles.get(name).cloned().ok_or_else(|| no_profile(name))
        })
    }

    fn create_instance_profile<'a>(
        &'a self,
        request: &'a CreateInstanceProfile,
    ) -> AwsFuture<'a, InstanceProfile> {
        self.call(Call::CreateInstanceProfile, move |world, now| {
            if world.profiles.contains_key(&request.name) {
                let message = format!("Instance Profile {} already exists.", request.name);
                return Err(AwsError::new("EntityAlreadyExists", message));
            }
            let profile = InstanceProfile {
                name: request.name.clone(),
                id: world.next_id("profile"),
                arn: format!(
                    "arn:aws:iam::{}:instance-profile{}{}",
                    world.account_id, request.path, request.name
                ),
                path: request.path.clone(),
                created_at: Some(now),
                roles: Vec::new(),
                tags: request.tags.clone(),
            };
            world.profiles.insert(request.name.clone(), profile.clone());
            Ok(profile)
        })
    }

    fn delete_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        self.call(Call::DeleteInstanceProfile, move |world, _| {
            let profile = world.profiles.get(name).ok_or_else(|| no_profile(name))?;
            if !profile.roles.is_empty() {
                return Err(AwsError::new("DeleteConflict", "must remove roles from instance profile first"));
            }
            world.profiles.remove(name);
            Ok(())
        })
    }

    fn add_role_to_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        self.call(Call::AddRoleToInstanceProfile, move |world, _| {
            if !world.roles.contains(role) {
                let message = format!("The role with name {role} cannot be found.");
                return Err(AwsError::new("NoSuchEntity", message));
            }
            let found = world.profiles.get_mut(profile).ok_or_else(|| no_profile(profile))?;
            if !found.roles.is_empty() {
                return Err(AwsError::new(
                    "LimitExceeded",
                    "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
                ));
            }
            found.roles.push(role.to_owned());
            Ok(())
        })
    }

    fn remove_role_from_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        self.call(Call::RemoveRoleFromInstanceProfile, move |world, _| {
            let found = world.profiles.get_mut(profile).ok_or_else(|| no_profile(profile))?;
            found.roles.retain(|held| held != role);
            Ok(())
        })
    }

    fn list_instance_profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>> {
        self.call(Call::ListInstanceProfiles, move |world, _| {
            let found = world.profiles.values().filter(|profile| profile.path.starts_with(path_prefix));
            // As in IAM, ListInstanceProfiles does not return tags.
            Ok(found.map(|profile| InstanceProfile { tags: Default::default(), ..profile.clone() }).collect())
        })
    }
}

fn no_profile(name: &str) -> AwsError {
    AwsError::new("NoSuchEntity", format!("Instance Profile {name} cannot be found."))
}

const QUEUE_URL: &str = "https://sqs.example/";
const RECEIVE_MAX: usize = 10;

fn no_queue() -> AwsError {
    AwsError::new("QueueDoesNotExist", "The specified queue does not exist.")
}

impl FakeAws {
    fn receive_now(&self, request: &ReceiveMessages) -> AwsFuture<'_, Vec<Message>> {
        let request = request.clone();
        self.call(Call::ReceiveMessage, move |world, now| {
            let name = request.queue_url.strip_prefix(QUEUE_URL).unwrap_or_default().to_owned();
            let mut handle = world.next_id("receipt");
            let queue = world.queues.get_mut(&name).ok_or_else(no_queue)?;
            let most = (request.messages_max as usize).min(RECEIVE_MAX);
            let seen = queue.iter_mut().filter(|message| message.visible_at <= now).take(most);
            let messages = seen.map(|message| {
                handle.push('+');
                message.visible_at = later(now, Duration::from_secs(request.visibility_timeout_secs.into()));
                message.receive_count += 1;
                message.receipt_handle.clone_from(&handle);
                Message {
                    id: message.id.clone(),
                    receipt_handle: handle.clone(),
                    body: message.body.clone(),
                    sent_at: Some(message.sent_at),
                    receive_count: message.receive_count,
                }
            });
            Ok(messages.collect())
        })
    }
}

impl Sqs for FakeAws {
    fn get_queue_url<'a>(&'a self, queue_name: &'a str) -> AwsFuture<'a, String> {
        self.call(Call::GetQueueUrl, move |world, _| {
            world
                .queues
                .contains_key(queue_name)
                .then(|| format!("{QUEUE_URL}{queue_name}"))
                .ok_or_else(no_queue)
        })
    }

    fn receive_messages<'a>(&'a self, request: &'a ReceiveMessages) -> AwsFuture<'a, Vec<Message>> {
        Box::pin(async move {
            let wait = Duration::from_secs(request.wait_secs.into());
            let deadline = self.clock.deadline(wait);
            loop {
                let came = self.message_came.notified();
                let messages = self.receive_now(request).await?;
                if !messages.is_empty() || tokio::time::Instant::now() >= deadline {
                    return Ok(messages);
                }
                // After a message was sent or the wait timed out, the loop checks the queue again.
                let _ = tokio::time::timeout_at(deadline, came).await;
            }
        })
    }

    fn delete_messages<'a>(
        &'a self,
        queue_url: &'a str,
        receipt_handles: &'a [String],
    ) -> AwsFuture<'a, Vec<DeleteFailure>> {
        self.call(Call::DeleteMessage, move |world, _| {
            let name = queue_url.strip_prefix(QUEUE_URL).unwrap_or_default();
            let queue = world.queues.get_mut(name).ok_or_else(no_queue)?;
            queue.retain(|message| !receipt_handles.contains(&message.receipt_handle));
            Ok(Vec::new())
        })
    }
}
