//! The suite that every provider must pass.
//!
//! It knows providers only by their trait: a provider's tests prepare a world with a usable node class and run
//! [`check_all`] in it. Each check says what was broken in words; none of them looks at a clock.

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool, Requirement};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::requirements::{Operator, Requirement as Wanted, Requirements};

use crate::{CloudError, CloudProvider, Instance, RepairAction, RepairPolicies};

/// Labels that an instance type must say something about, and that every machine carries.
const TYPE_LABELS: [&str; 5] =
    [labels::INSTANCE_TYPE, labels::ARCH, labels::OS, labels::ZONE, labels::CAPACITY_TYPE];
/// How often the end of a machine is asked for before it must be gone.
const DELETE_ATTEMPTS_MAX: usize = 100;

/// What a provider's tests prepare.
pub struct World<'a> {
    pub cloud: &'a dyn CloudProvider,
    /// A pool whose node class is ready.
    pub pool: NodePool,
    /// Makes a claim that exists as far as the provider can see, with a uid of its own, for the same node class.
    pub new_claim: &'a mut (dyn AsyncNewClaim + 'a),
}

/// Makes claims. A trait of its own, because closures that return futures cannot be kept.
pub trait AsyncNewClaim {
    fn new_claim<'a>(
        &'a mut self,
        requirements: Vec<Requirement>,
    ) -> futures::future::BoxFuture<'a, NodeClaim>;
}

/// What a provider does otherwise than it must.
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

/// Runs everything; the first violation ends it.
pub async fn check_all(world: &mut World<'_>) -> Verdict {
    check_identity(world.cloud)?;
    let types = must("types are listed", world.cloud.instance_types(&world.pool).await)?;
    check_types(&types)?;
    check_life(world, &types).await?;
    check_choice(world, &types).await?;
    check_reboot(world).await?;
    check_strangers(world).await
}

fn check_identity(cloud: &dyn CloudProvider) -> Verdict {
    ensure("a provider has a name", !cloud.name().is_empty(), || "the name is empty".to_owned())?;
    let kinds = cloud.node_class_kinds();
    ensure("a provider has a node class", !kinds.is_empty(), || "no kind is named".to_owned())?;
    let well_known = cloud.well_known_labels();
    let policies = cloud.repair_policies();
    if !policies.is_empty() {
        let again = cloud.repair_policies();
        ensure("repair policies do not change", policies == again, || format!("{policies:?} and {again:?}"))?;
        let checked = RepairPolicies::new(policies);
        ensure("repair policies make sense", checked.is_ok(), || {
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        })?;
    }
    let mut names = BTreeSet::new();
    for hook in cloud.registration_hooks() {
        ensure("registration hooks have names of their own", names.insert(hook.name().to_owned()), || {
            format!("{:?} is there twice", hook.name())
        })?;
        ensure("registration hooks have names", !hook.name().is_empty(), || "one has none".to_owned())?;
    }
    ensure("hostnames are not promised", !well_known.contains(labels::HOSTNAME), || {
        "the hostname is among the well-known labels".to_owned()
    })
}

/// Whether a list of types has the shape that planning relies on.
pub fn check_types(types: &[InstanceType]) -> Verdict {
    ensure("there are types", !types.is_empty(), || "the list is empty".to_owned())?;
    let mut names = BTreeSet::new();
    for instance_type in types {
        let name = &instance_type.name;
        ensure("names of types differ", names.insert(name.clone()), || format!("{name} is listed twice"))?;
        for key in TYPE_LABELS {
            let values = instance_type.requirements.get(key);
            let is_said = values.is_some_and(|values| !values.complement && !values.values.is_empty());
            ensure("types carry the required labels", is_said, || {
                format!("{name} says nothing about {key}")
            })?;
        }
        let own = instance_type.requirements.get(labels::INSTANCE_TYPE).and_then(Wanted::single_value);
        ensure("a type's label is its name", own == Some(name), || format!("{name} is labelled {own:?}"))?;
        let allocatable = instance_type.allocatable();
        for resource in ["cpu", "memory", "pods"] {
            ensure("types have room", allocatable.get(resource) > 0, || format!("{name} has no {resource}"))?;
        }
        ensure("types can be bought", !instance_type.offerings.is_empty(), || {
            format!("{name} is not offered")
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
        format!("an offering of {name} has not")
    })?;
    // What cannot be bought may be listed all the same, so that an explanation can name it.
    let agrees = !offering.available || offering.requirements.intersects(&instance_type.requirements);
    ensure("offerings agree with their type", agrees, || {
        format!("{name} does not allow its own offering {}", offering.requirements)
    })?;
    let price = offering.price_per_hour;
    ensure("prices are amounts", price.is_finite() && price >= 0.0, || format!("{name} costs {price}"))?;
    ensure(
        "reservations say how many are left",
        !offering.is_reserved() || offering.reservation_capacity.is_some(),
        || format!("a reserved offering of {name} does not"),
    )
}

/// One machine from launch to end.
async fn check_life(world: &mut World<'_>, types: &[InstanceType]) -> Verdict {
    let cheapest = cheapest(types, &Requirements::new())?;
    let mut claim = world.new_claim.new_claim(pin(cheapest)).await;
    let cloud = world.cloud;
    let first = must("a claim is launched", cloud.create(&claim).await)?;
    ensure("a machine has an id", !first.provider_id.is_empty(), || "the provider id is empty".to_owned())?;
    ensure("a new machine is not ending", !first.is_terminating, || format!("{} is", first.provider_id))?;
    let second = must("a launch may be repeated", cloud.create(&claim).await)?;
    ensure("a repeated launch finds the first machine", first.provider_id == second.provider_id, || {
        format!("{} and {}", first.provider_id, second.provider_id)
    })?;
    ensure("a repeated launch tells the same", first.labels == second.labels, || {
        format!("{:?} and {:?}", first.labels, second.labels)
    })?;

    let found = must("a machine is found by its id", cloud.get(&first.provider_id).await)?;
    ensure("the machine that is found is the one", found.provider_id == first.provider_id, || {
        found.provider_id.clone()
    })?;
    ensure("a machine is listed once", listed(cloud, &first.provider_id).await? == 1, || {
        format!("{} is not", first.provider_id)
    })?;

    write_down(&mut claim, &first);
    must("drift can be asked for", cloud.drift_reason(&claim).await)?;
    end(cloud, &claim).await?;
    let again = cloud.delete(&claim).await;
    ensure("what is gone stays gone", matches!(&again, Err(error) if error.is_not_found()), || {
        format!("{again:?}")
    })?;
    let found = cloud.get(&first.provider_id).await;
    let is_gone = match &found {
        Ok(instance) => instance.is_terminating,
        Err(error) => error.is_not_found(),
    };
    ensure("a machine that ended is not found", is_gone, || format!("{found:?}"))?;
    ensure("a machine that ended is not listed", listed(cloud, &first.provider_id).await? == 0, || {
        format!("{} is", first.provider_id)
    })
}

/// Launches take the cheapest of what a claim allows.
async fn check_choice(world: &mut World<'_>, types: &[InstanceType]) -> Verdict {
    let all = Requirements::new();
    let (one, _) = cheapest(types, &all)?;
    let zones: BTreeSet<String> =
        one.offerings.iter().filter_map(|offering| offering.zone()).map(ToString::to_string).collect();
    let two = types.iter().find(|other| other.name != one.name && price(other) > price(one)).unwrap_or(one);
    let both = require(labels::INSTANCE_TYPE, &[&two.name, &one.name]);
    let mut wishes = vec![vec![both.clone()]];
    wishes.extend(zones.iter().map(|zone| vec![both.clone(), require(labels::ZONE, &[zone])]));
    for capacity_type in [labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT] {
        let is_offered = one.offerings.iter().any(|offering| {
            offering.is_launchable()
                && offering.capacity_type().is_some_and(|offered| **offered == *capacity_type)
        });
        if is_offered {
            wishes.push(vec![both.clone(), require(labels::CAPACITY_TYPE, &[capacity_type])]);
        }
    }
    for wish in wishes {
        let mut claim = world.new_claim.new_claim(wish.clone()).await;
        let instance = must("an allowed offering is launched", world.cloud.create(&claim).await)?;
        check_labels(&instance, types, &wish)?;
        write_down(&mut claim, &instance);
        end(world.cloud, &claim).await?;
    }
    Ok(())
}

fn check_labels(instance: &Instance, types: &[InstanceType], wish: &[Requirement]) -> Verdict {
    for key in TYPE_LABELS {
        ensure("machines carry the required labels", instance.labels.contains_key(key), || {
            format!("no {key}")
        })?;
    }
    for requirement in wish {
        let value = instance.labels.get(&requirement.key);
        ensure(
            "launches honour requirements",
            value.is_some_and(|value| requirement.values.contains(value)),
            || format!("{} is {value:?}, allowed were {:?}", requirement.key, requirement.values),
        )?;
    }
    let wanted: Requirements = wish
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
        "the cheapest allowed offering is taken",
        paid.is_some_and(|paid| paid <= best.price_per_hour),
        || format!("paid {paid:?}, the cheapest is {}", best.price_per_hour),
    )?;
    let is_sized = ["cpu", "memory"].iter().all(|name| {
        instance.allocatable.get(*name).is_some_and(|amount| !amount.is_zero())
            && instance.capacity.get(*name) >= instance.allocatable.get(*name)
    });
    ensure("machines say how large they are", is_sized, || {
        format!("capacity {:?}, allocatable {:?}", instance.capacity, instance.allocatable)
    })
}

/// Machines that cannot be restarted say so, always; and no policy asks for what cannot be done.
async fn check_reboot(world: &mut World<'_>) -> Verdict {
    const RULE: &str = "a restart of no machine is refused";
    let claim = world.new_claim.new_claim(Vec::new()).await;
    let policies = world.cloud.repair_policies();
    let is_asked_for = policies.iter().any(|policy| policy.action == RepairAction::Reboot);
    for operation in ["conformance-1", "conformance-1"] {
        let answer = world.cloud.reboot(&claim, operation).await;
        let is_missing = matches!(&answer, Err(CloudError::RebootNotImplemented));
        ensure(RULE, answer.is_err(), || "it was accepted".to_owned())?;
        ensure("restarts that policies ask for are implemented", !(is_asked_for && is_missing), || {
            "a repair policy asks for a restart".to_owned()
        })?;
    }
    Ok(())
}

/// Questions about machines that never were.
async fn check_strangers(world: &mut World<'_>) -> Verdict {
    let cloud = world.cloud;
    let found = cloud.get("conformance://no-such-machine").await;
    ensure("an unknown id is not found", matches!(&found, Err(error) if error.is_not_found()), || {
        format!("{found:?}")
    })?;
    let claim = world.new_claim.new_claim(Vec::new()).await;
    let ended = cloud.delete(&claim).await;
    ensure(
        "a claim without a machine has none to end",
        matches!(&ended, Err(error) if error.is_not_found()),
        || format!("{ended:?}"),
    )?;
    let nowhere = world.new_claim.new_claim(vec![require(labels::ZONE, &["conformance-no-such-zone"])]).await;
    let launched = cloud.create(&nowhere).await;
    ensure(
        "what nobody offers is insufficient capacity",
        matches!(&launched, Err(CloudError::InsufficientCapacity { .. })),
        || format!("{launched:?}"),
    )
}

/// What became of a launch, on its claim, as the claim's own controller writes it.
fn write_down(claim: &mut NodeClaim, instance: &Instance) {
    claim.metadata.labels.get_or_insert_default().extend(instance.labels.clone());
    claim.metadata.annotations.get_or_insert_default().extend(instance.annotations.clone());
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(instance.provider_id.clone());
    status.image_id.clone_from(&instance.image_id);
}

async fn end(cloud: &dyn CloudProvider, claim: &NodeClaim) -> Verdict {
    const RULE: &str = "a machine ends when asked to";
    for _ in 0..DELETE_ATTEMPTS_MAX {
        match cloud.delete(claim).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return ensure(RULE, false, || error.to_string()),
        }
    }
    ensure(RULE, false, || format!("still there after {DELETE_ATTEMPTS_MAX} requests"))
}

async fn listed(cloud: &dyn CloudProvider, id: &str) -> Result<usize, Violation> {
    let instances = must("machines are listed", cloud.list().await)?;
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
            rule: "something can be launched",
            what: format!("nothing is available with {wanted}"),
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
