//! The conformance suite: tests that every cloud provider must pass.
//!
//! The checks use only the trait `CloudProvider`. A provider's tests create a node class that is ready, and call
//! [`check_all`]. If a check fails, the result is a [`Violation`] with a description. No check depends on time.

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool, Requirement};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::requirements::{Operator, Requirement as Wanted, Requirements};

use crate::{CloudError, CloudProvider, Instance, RepairAction, RepairPolicies};

/// The labels that every instance type must define and every instance must have.
const TYPE_LABELS: [&str; 5] =
    [labels::INSTANCE_TYPE, labels::ARCH, labels::OS, labels::ZONE, labels::CAPACITY_TYPE];
/// How often an instance may be deleted before it must be terminated.
const DELETE_ATTEMPTS_MAX: usize = 100;

/// What a provider's tests must prepare for the checks.
pub struct World<'a> {
    pub cloud: &'a dyn CloudProvider,
    /// A NodePool whose node class is ready.
    pub pool: NodePool,
    /// Creates a NodeClaim with a uid of its own and the same node class, such that the provider can read it.
    pub new_claim: &'a mut (dyn AsyncNewClaim + 'a),
}

/// Creates NodeClaims. This is a trait, because a closure that returns a borrowing future cannot be stored.
pub trait AsyncNewClaim {
    fn new_claim<'a>(
        &'a mut self,
        requirements: Vec<Requirement>,
    ) -> futures::future::BoxFuture<'a, NodeClaim>;
}

/// A rule of the conformance suite that the provider breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {what}")]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
}

type Verdict = Result<(), Violation>;

fn ensure(rule: &'static str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { rule, what: what() }) }
}

fn must<T>(rule: &'static str, answer: Result<T, CloudError>) -> Result<T, Violation> {
    answer.map_err(|error| Violation { rule, what: format!("the call failed: {error}") })
}

/// Runs all checks, and stops at the first violation.
pub async fn check_all(world: &mut World<'_>) -> Verdict {
    check_identity(world.cloud)?;
    let types = must("types are listed", world.cloud.instance_types(&world.pool).await)?;
    check_types(&types)?;
    check_launch_and_delete(world, &types).await?;
    check_cheapest_offering(world, &types).await?;
    check_reboot(world).await?;
    check_missing_instances(world).await
}

fn check_identity(cloud: &dyn CloudProvider) -> Verdict {
    ensure("provider has a name", !cloud.name().is_empty(), || "the name is empty".to_owned())?;
    let kinds = cloud.node_class_kinds();
    ensure("a provider has a node class", !kinds.is_empty(), || "node_class_kinds is empty".to_owned())?;
    let well_known = cloud.well_known_labels();
    let policies = cloud.repair_policies();
    if !policies.is_empty() {
        let again = cloud.repair_policies();
        ensure("repair policies do not change", policies == again, || format!("{policies:?} and {again:?}"))?;
        let checked = RepairPolicies::new(policies);
        ensure("repair policies are valid", checked.is_ok(), || {
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        })?;
    }
    let mut names = BTreeSet::new();
    for hook in cloud.registration_hooks() {
        ensure("names of registration hooks are unique", names.insert(hook.name().to_owned()), || {
            format!("{:?} occurs twice", hook.name())
        })?;
        ensure("registration hooks have names", !hook.name().is_empty(), || "a name is empty".to_owned())?;
    }
    ensure("hostname is not a well-known label", !well_known.contains(labels::HOSTNAME), || {
        "the hostname is among the well-known labels".to_owned()
    })
}

/// Checks that instance types have the properties that the planner relies on.
pub fn check_types(types: &[InstanceType]) -> Verdict {
    ensure("instance types are listed", !types.is_empty(), || "the list is empty".to_owned())?;
    let mut names = BTreeSet::new();
    for instance_type in types {
        let name = &instance_type.name;
        ensure("names of instance types are unique", names.insert(name.clone()), || {
            format!("{name} is listed twice")
        })?;
        for key in TYPE_LABELS {
            let values = instance_type.requirements.get(key);
            let is_said = values.is_some_and(|values| !values.complement && !values.values.is_empty());
            ensure("instance types have the required labels", is_said, || format!("{name} has no {key}"))?;
        }
        let own = instance_type.requirements.get(labels::INSTANCE_TYPE).and_then(Wanted::single_value);
        ensure("instance type label equals its name", own == Some(name), || {
            format!("{name} is labelled {own:?}")
        })?;
        let allocatable = instance_type.allocatable();
        for resource in ["cpu", "memory", "pods"] {
            ensure("instance types have allocatable resources", allocatable.get(resource) > 0, || {
                format!("{name} has no {resource}")
            })?;
        }
        ensure("instance types have offerings", !instance_type.offerings.is_empty(), || {
            format!("{name} has no offering")
        })?;
        for offering in &instance_type.offerings {
            check_offering(instance_type, offering)?;
        }
    }
    Ok(())
}

fn check_offering(instance_type: &InstanceType, offering: &Offering) -> Verdict {
    let name = &instance_type.name;
    let is_placed = offering.zone().is_some() && offering.capacity_type().is_some();
    ensure("offerings have one zone and one capacity type", is_placed, || {
        format!("an offering of {name} does not")
    })?;
    // The requirements of an unavailable offering may differ from those of its type; such offerings are listed so that
    // messages can name them.
    let agrees = !offering.available || offering.requirements.intersects(&instance_type.requirements);
    ensure("offerings are compatible with their instance type", agrees, || {
        format!("{name} does not allow its own offering {}", offering.requirements)
    })?;
    let price = offering.price_per_hour;
    ensure("prices are finite and not negative", price.is_finite() && price >= 0.0, || {
        format!("{name} costs {price}")
    })?;
    ensure(
        "reserved offerings have a reservation capacity",
        !offering.is_reserved() || offering.reservation_capacity.is_some(),
        || format!("a reserved offering of {name} has none"),
    )
}

/// Checks the launch and then the termination of one instance.
async fn check_launch_and_delete(world: &mut World<'_>, types: &[InstanceType]) -> Verdict {
    let cheapest = cheapest(types, &Requirements::new())?;
    let mut claim = world.new_claim.new_claim(pin(cheapest)).await;
    let cloud = world.cloud;
    let first = must("a claim is launched", cloud.create(&claim).await)?;
    ensure("an instance has a provider id", !first.provider_id.is_empty(), || {
        "the provider id is empty".to_owned()
    })?;
    ensure("a new instance is not terminating", !first.is_terminating, || {
        format!("{} is", first.provider_id)
    })?;
    let second = must("a launch may be repeated", cloud.create(&claim).await)?;
    ensure("a repeated launch finds the first instance", first.provider_id == second.provider_id, || {
        format!("{} and {}", first.provider_id, second.provider_id)
    })?;
    ensure("a repeated launch returns the same labels", first.labels == second.labels, || {
        format!("{:?} and {:?}", first.labels, second.labels)
    })?;

    let found = must("an instance is found by its provider id", cloud.get(&first.provider_id).await)?;
    ensure(
        "the instance that is found has the requested id",
        found.provider_id == first.provider_id,
        || found.provider_id.clone(),
    )?;
    ensure("an instance is listed once", listed(cloud, &first.provider_id).await? == 1, || {
        format!("{} is not", first.provider_id)
    })?;

    record_launch(&mut claim, &first);
    must("drift_reason succeeds", cloud.drift_reason(&claim).await)?;
    end(cloud, &claim).await?;
    let again = cloud.delete(&claim).await;
    ensure(
        "a terminated instance is not found by delete",
        matches!(&again, Err(error) if error.is_not_found()),
        || format!("{again:?}"),
    )?;
    let found = cloud.get(&first.provider_id).await;
    let is_gone = match &found {
        Ok(instance) => instance.is_terminating,
        Err(error) => error.is_not_found(),
    };
    ensure("a terminated instance is not found by get", is_gone, || format!("{found:?}"))?;
    ensure("a terminated instance is not listed", listed(cloud, &first.provider_id).await? == 0, || {
        format!("{} is", first.provider_id)
    })
}

/// Checks that a launch uses the cheapest offering that is compatible.
async fn check_cheapest_offering(world: &mut World<'_>, types: &[InstanceType]) -> Verdict {
    let all = Requirements::new();
    let (one, _) = cheapest(types, &all)?;
    let zones: BTreeSet<String> =
        one.offerings.iter().filter_map(|offering| offering.zone()).map(ToString::to_string).collect();
    let two = types.iter().find(|other| other.name != one.name && price(other) > price(one)).unwrap_or(one);
    let both = require(labels::INSTANCE_TYPE, &[&two.name, &one.name]);
    let mut wanted_sets = vec![vec![both.clone()]];
    wanted_sets.extend(zones.iter().map(|zone| vec![both.clone(), require(labels::ZONE, &[zone])]));
    for capacity_type in [labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT] {
        let is_offered = one.offerings.iter().any(|offering| {
            offering.is_launchable()
                && offering.capacity_type().is_some_and(|offered| **offered == *capacity_type)
        });
        if is_offered {
            wanted_sets.push(vec![both.clone(), require(labels::CAPACITY_TYPE, &[capacity_type])]);
        }
    }
    for wanted_set in wanted_sets {
        let mut claim = world.new_claim.new_claim(wanted_set.clone()).await;
        let instance = must("a compatible offering is launched", world.cloud.create(&claim).await)?;
        check_labels(&instance, types, &wanted_set)?;
        record_launch(&mut claim, &instance);
        end(world.cloud, &claim).await?;
    }
    Ok(())
}

fn check_labels(instance: &Instance, types: &[InstanceType], wanted_set: &[Requirement]) -> Verdict {
    for key in TYPE_LABELS {
        ensure("instances have the required labels", instance.labels.contains_key(key), || {
            format!("no {key}")
        })?;
    }
    for requirement in wanted_set {
        let value = instance.labels.get(&requirement.key);
        ensure(
            "launches respect requirements",
            value.is_some_and(|value| requirement.values.contains(value)),
            || format!("{} is {value:?}, allowed were {:?}", requirement.key, requirement.values),
        )?;
    }
    let wanted: Requirements = wanted_set
        .iter()
        .map(|part| Wanted::new(part.key.as_str(), Operator::In, part.values.iter().map(String::as_str)))
        .collect();
    let (_, best) = cheapest(types, &wanted)?;
    let bought = types.iter().filter(|listed| {
        Some(&*listed.name) == instance.labels.get(labels::INSTANCE_TYPE).map(String::as_str)
    });
    let paid = bought.flat_map(|bought| &bought.offerings).filter(|offering| {
        let is = |key: &str, value: Option<&std::sync::Arc<str>>| {
            instance.labels.get(key).map(String::as_str) == value.map(AsRef::as_ref)
        };
        is(labels::ZONE, offering.zone()) && is(labels::CAPACITY_TYPE, offering.capacity_type())
    });
    let paid = paid.map(|offering| offering.price_per_hour).min_by(f64::total_cmp);
    ensure(
        "the cheapest compatible offering is launched",
        paid.is_some_and(|paid| paid <= best.price_per_hour),
        || format!("paid {paid:?}, the cheapest is {}", best.price_per_hour),
    )?;
    let is_sized = ["cpu", "memory"].iter().all(|name| {
        instance.allocatable.get(*name).is_some_and(|amount| !amount.is_zero())
            && instance.capacity.get(*name) >= instance.allocatable.get(*name)
    });
    ensure("instances have capacity and allocatable", is_sized, || {
        format!("capacity {:?}, allocatable {:?}", instance.capacity, instance.allocatable)
    })
}

/// Checks that rebooting an instance that does not exist fails, even if it is repeated, and that no repair policy
/// requires a reboot if the provider cannot reboot instances.
async fn check_reboot(world: &mut World<'_>) -> Verdict {
    const RULE: &str = "a reboot without an instance fails";
    let claim = world.new_claim.new_claim(Vec::new()).await;
    let policies = world.cloud.repair_policies();
    let is_asked_for = policies.iter().any(|policy| policy.action == RepairAction::Reboot);
    for operation in ["conformance-1", "conformance-1"] {
        let answer = world.cloud.reboot(&claim, operation).await;
        let is_missing = matches!(&answer, Err(CloudError::RebootNotImplemented));
        ensure(RULE, answer.is_err(), || "it was accepted".to_owned())?;
        ensure("reboots that repair policies need are implemented", !(is_asked_for && is_missing), || {
            "a repair policy has the action RebootNode, and reboots are not implemented".to_owned()
        })?;
    }
    Ok(())
}

/// Checks the results of calls for instances that do not exist.
async fn check_missing_instances(world: &mut World<'_>) -> Verdict {
    let cloud = world.cloud;
    let found = cloud.get("conformance://no-such-machine").await;
    ensure("an unknown id is not found", matches!(&found, Err(error) if error.is_not_found()), || {
        format!("{found:?}")
    })?;
    let claim = world.new_claim.new_claim(Vec::new()).await;
    let ended = cloud.delete(&claim).await;
    ensure(
        "delete without an instance is not found",
        matches!(&ended, Err(error) if error.is_not_found()),
        || format!("{ended:?}"),
    )?;
    let nowhere = world.new_claim.new_claim(vec![require(labels::ZONE, &["conformance-no-such-zone"])]).await;
    let launched = cloud.create(&nowhere).await;
    ensure(
        "a launch without a compatible offering is insufficient capacity",
        matches!(&launched, Err(CloudError::InsufficientCapacity { .. })),
        || format!("{launched:?}"),
    )
}

/// Records a launch in the NodeClaim, as the NodeClaim lifecycle controller does.
fn record_launch(claim: &mut NodeClaim, instance: &Instance) {
    claim.metadata.labels.get_or_insert_default().extend(instance.labels.clone());
    claim.metadata.annotations.get_or_insert_default().extend(instance.annotations.clone());
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(instance.provider_id.clone());
    status.image_id.clone_from(&instance.image_id);
}

async fn end(cloud: &dyn CloudProvider, claim: &NodeClaim) -> Verdict {
    const RULE: &str = "an instance terminates";
    for _ in 0..DELETE_ATTEMPTS_MAX {
        match cloud.delete(claim).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return ensure(RULE, false, || error.to_string()),
        }
    }
    ensure(RULE, false, || format!("still found after {DELETE_ATTEMPTS_MAX} requests"))
}

async fn listed(cloud: &dyn CloudProvider, id: &str) -> Result<usize, Violation> {
    let instances = must("instances are listed", cloud.list().await)?;
    Ok(instances.iter().filter(|instance| instance.provider_id == id && !instance.is_terminating).count())
}

fn price(instance_type: &InstanceType) -> f64 {
    let offerings = instance_type.offerings.iter().filter(|offering| offering.is_launchable());
    offerings.map(|offering| offering.price_per_hour).min_by(f64::total_cmp).unwrap_or(f64::INFINITY)
}

fn cheapest<'a>(
    types: &'a [InstanceType],
    wanted: &Requirements,
) -> Result<(&'a InstanceType, &'a Offering), Violation> {
    let offerings = types.iter().filter(|listed| listed.requirements.intersects(wanted)).flat_map(|listed| {
        let offerings = listed.offerings.iter();
        offerings
            .filter(|offering| offering.is_launchable() && offering.requirements.intersects(wanted))
            .map(move |offering| (listed, offering))
    });
    offerings.min_by(|(_, one), (_, two)| one.price_per_hour.total_cmp(&two.price_per_hour)).ok_or_else(
        || Violation {
            rule: "an offering can be launched",
            what: format!("no offering is available with {wanted}"),
        },
    )
}

fn pin((instance_type, offering): (&InstanceType, &Offering)) -> Vec<Requirement> {
    let mut pinned = vec![require(labels::INSTANCE_TYPE, &[&instance_type.name])];
    pinned.extend(offering.zone().map(|zone| require(labels::ZONE, &[zone])));
    pinned
}

fn require(key: &str, values: &[&str]) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: values.iter().map(ToString::to_string).collect(),
        min_values: None,
    }
}
