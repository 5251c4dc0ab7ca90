//! Instances of the fake, and how their state changes over time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::World;
use crate::api::ec2::{Ec2Instance, InstanceQuery, InstanceState, InstanceStateChange};
use crate::api::{AwsError, TagFilter, Tags};

/// How long EC2 returns an instance after it was terminated.
const TERMINATED_VISIBLE_FOR: SignedDuration = SignedDuration::from_hours(1);

/// An instance, and the times at which its state changes.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeInstance {
    pub instance: Ec2Instance,
    pub visible_at: Timestamp,
    pub runs_at: Timestamp,
    /// When the instance will be terminated; set while it is shutting down.
    pub ends_at: Option<Timestamp>,
}

pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

impl World {
    /// Applies the state changes whose time has come.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let mut freed = Vec::new();
        for machine in self.instances.values_mut() {
            let state = &mut machine.instance.state;
            if *state == InstanceState::Pending && machine.runs_at <= now {
                *state = InstanceState::Running;
            }
            if *state == InstanceState::ShuttingDown && machine.ends_at.is_some_and(|ends_at| ends_at <= now)
            {
                *state = InstanceState::Terminated;
                freed.extend(machine.instance.subnet_id.clone());
                if let Some(id) = &machine.instance.capacity_reservation_id
                    && let Some(reservation) = self.reservations.get_mut(id)
                {
                    reservation.available_count += 1;
                }
            }
        }
        for subnet_id in freed {
            if let Some(subnet) = self.subnets.get_mut(&subnet_id) {
                subnet.available_ip_count += 1;
            }
        }
        self.instances.retain(|_, machine| {
            machine.ends_at.is_none_or(|ends_at| now.duration_since(ends_at) < TERMINATED_VISIBLE_FOR)
        });
    }

    pub(super) fn describe_instances(
        &self,
        query: &InstanceQuery,
        now: Timestamp,
    ) -> Result<Vec<Ec2Instance>, AwsError> {
        let is_seen = |machine: &FakeInstance| machine.visible_at <= now;
        if let Some(missing) = query.ids.iter().find(|id| !self.instances.get(*id).is_some_and(is_seen)) {
            return Err(not_found(missing));
        }
        let machines = self.instances.values().filter(|machine| is_seen(machine));
        let machines = machines.map(|machine| &machine.instance);
        let machines = machines.filter(|instance| {
            (query.ids.is_empty() || query.ids.contains(&instance.id))
                && (query.states.is_empty() || query.states.contains(&instance.state))
                && query.tags.iter().all(|filter: &TagFilter| filter.matches(&instance.tags))
        });
        let answer = machines.cloned().map(|instance| match self.are_partitions_hidden {
            true => Ec2Instance { partition_number: None, ..instance },
            false => instance,
        });
        Ok(answer.collect())
    }

    pub(super) fn terminate_instances(
        &mut self,
        ids: &[String],
        now: Timestamp,
    ) -> Result<Vec<InstanceStateChange>, AwsError> {
        self.terminations.push(ids.to_vec());
        if let Some(missing) = ids.iter().find(|id| !self.instances.contains_key(*id)) {
            return Err(not_found(missing));
        }
        let ends_at = later(now, self.ends_after);
        let mut changes = Vec::new();
        for id in ids {
            let Some(machine) = self.instances.get_mut(id) else { continue };
            let previous = machine.instance.state;
            if !previous.is_terminating() {
                machine.instance.state = InstanceState::ShuttingDown;
                machine.ends_at = Some(ends_at);
            }
            changes.push(InstanceStateChange { id: id.clone(), previous, current: machine.instance.state });
        }
        Ok(changes)
    }

    pub(super) fn create_tags(&mut self, ids: &[String], tags: &Tags) -> Result<(), AwsError> {
        if let Some(missing) = ids.iter().find(|id| id.starts_with("i-") && !self.instances.contains_key(*id))
        {
            return Err(not_found(missing));
        }
        for id in ids {
            if let Some(machine) = self.instances.get_mut(id) {
                machine.instance.tags.extend(tags.clone());
            }
        }
        Ok(())
    }
}

fn not_found(id: &str) -> AwsError {
    AwsError::new("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
}
