//! Metrics about plans: the current or last plan of each controller, and pending pods by zone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_runtime::clock::since;

use super::exposition::Family;

/// Number of pending pods by the zone that they require: the name of the zone, [`FLEXIBLE`] or [`NONE`].
pub type PodsByZone = BTreeMap<String, usize>;

const FLEXIBLE: &str = "flexible";
const NONE: &str = "none";

/// The last plan of every controller. Clones share the state.
#[derive(Clone, Default)]
pub struct Plans {
    by_controller: Arc<Mutex<BTreeMap<&'static str, LastPlan>>>,
}

#[derive(Default)]
struct LastPlan {
    /// The number of the plan, as the value of a label for which upstream uses a random id.
    id: u64,
    pods: usize,
    began: Option<Timestamp>,
    zones: PodsByZone,
}

impl Plans {
    /// Records that a plan for this number of pods began.
    pub fn begin(&self, controller: &'static str, pods: usize, now: Timestamp) {
        let mut plans = self.plans();
        let plan = plans.entry(controller).or_default();
        *plan = LastPlan { id: plan.id + 1, pods, began: Some(now), zones: PodsByZone::new() };
    }

    /// Records that the plan is finished.
    pub fn end(&self, controller: &'static str, zones: PodsByZone) {
        let mut plans = self.plans();
        let plan = plans.entry(controller).or_default();
        (plan.pods, plan.began, plan.zones) = (0, None, zones);
    }

    pub(crate) fn write(&self, text: &mut String, now: Timestamp) {
        let plans = self.plans();
        let by_plan = ["controller", "scheduling_id"];
        let name = "karpenter_scheduler_queue_depth";
        let mut family = Family::gauge(text, name, "Number of pods in the current plan.", &by_plan);
        for (controller, plan) in &*plans {
            family.set(&[*controller, &plan.id.to_string()], plan.pods as f64);
        }
        let name = "karpenter_scheduler_unfinished_work_seconds";
        let mut family = Family::gauge(text, name, "How long the current plan has been running.", &by_plan);
        for (controller, plan) in &*plans {
            if let Some(began) = plan.began {
                family.set(&[*controller, &plan.id.to_string()], since(now, began).as_secs_f64());
            }
        }
        let name = "karpenter_scheduler_pending_pods_by_effective_zone_count";
        let help = "Number of pending pods by the zone that they require: its name, flexible or none.";
        let mut family = Family::gauge(text, name, help, &["controller", "zone"]);
        for (controller, plan) in &*plans {
            for (zone, pods) in &plan.zones {
                family.set(&[*controller, zone], *pods as f64);
            }
        }
    }

    fn plans(&self) -> MutexGuard<'_, BTreeMap<&'static str, LastPlan>> {
        self.by_controller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The zone in which the pod and its volumes must be: its name if only one is possible, [`FLEXIBLE`] if several are,
/// and [`NONE`] if the requirements conflict. Topology spread is ignored, because it depends on other pods.
pub fn effective_zone(pod: &PodSpec) -> String {
    let strict = pod.strict_requirements();
    let own = strict.get(labels::ZONE);
    let volumes = zones_of(&pod.volumes.alternatives);
    let named: Vec<&str> = match (own.filter(|own| own.operator() == Operator::In), &volumes) {
        (Some(own), _) => values_of(own),
        (None, Some(volumes)) => volumes.clone(),
        (None, None) => return FLEXIBLE.to_owned(),
    };
    let mut possible = named.into_iter().filter(|zone| {
        own.is_none_or(|own| own.has(zone)) && volumes.as_ref().is_none_or(|volumes| volumes.contains(zone))
    });
    match (possible.next(), possible.next()) {
        (None, _) => NONE.to_owned(),
        (Some(zone), None) => zone.to_owned(),
        (Some(_), Some(_)) => FLEXIBLE.to_owned(),
    }
}

/// The zones that the requirements allow; `None` if there are no alternatives or one of them names no zones.
fn zones_of(alternatives: &[Requirements]) -> Option<Vec<&str>> {
    if alternatives.is_empty() {
        return None;
    }
    let mut zones = Vec::new();
    for alternative in alternatives {
        let zone = alternative.get(labels::ZONE).filter(|zone| zone.operator() == Operator::In)?;
        zones.extend(values_of(zone));
    }
    zones.sort_unstable();
    zones.dedup();
    Some(zones)
}

fn values_of(requirement: &Requirement) -> Vec<&str> {
    requirement.values.iter().map(|value| &**value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn zones(operator: Operator, zones: &[&str]) -> Requirements {
        let mut requirements = Requirements::new();
        requirements.add(Requirement::new(labels::ZONE, operator, zones.iter().copied()));
        requirements
    }

    #[test]
    fn pod_is_counted_for_its_only_possible_zone() {
        let anywhere = Requirements::new();
        let cases: [(&Requirements, &[Requirements], &str); 10] = [
            (&anywhere, &[], "flexible"),
            (&zones(Operator::In, &["a"]), &[], "a"),
            (&zones(Operator::In, &["a", "b"]), &[], "flexible"),
            (&zones(Operator::NotIn, &["a"]), &[], "flexible"),
            (&anywhere, &[zones(Operator::In, &["b"])], "b"),
            (&anywhere, &[zones(Operator::In, &["a"]), zones(Operator::In, &["b"])], "flexible"),
            (&anywhere, &[zones(Operator::In, &["a"]), Requirements::new()], "flexible"),
            (&zones(Operator::In, &["a", "b"]), &[zones(Operator::In, &["b", "c"])], "b"),
            (&zones(Operator::In, &["a"]), &[zones(Operator::In, &["b"])], "none"),
            (&zones(Operator::NotIn, &["b"]), &[zones(Operator::In, &["b"])], "none"),
        ];
        for (selector, volumes, expected) in cases {
            let mut pod = PodSpec { node_selector: selector.clone(), ..PodSpec::default() };
            pod.volumes.alternatives = volumes.to_vec();
            assert_eq!(effective_zone(&pod), expected, "{selector:?} {volumes:?}");
        }
    }

    #[test]
    fn running_plan_has_series_until_it_ends() {
        let at = |second| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        let plans = Plans::default();
        let page = || {
            let mut text = String::new();
            plans.write(&mut text, at(5));
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        plans.begin("provisioner", 7, at(2));
        let own = r#"{controller="provisioner",scheduling_id="1"}"#;
        let busy = [
            format!("karpenter_scheduler_queue_depth{own} 7"),
            format!("karpenter_scheduler_unfinished_work_seconds{own} 3"),
        ];
        assert_eq!(page(), busy);
        plans.end("provisioner", PodsByZone::from([("a".to_owned(), 7)]));
        let zone = r#"karpenter_scheduler_pending_pods_by_effective_zone_count{controller="provisioner",zone="a"} 7"#;
        assert_eq!(page(), [format!("karpenter_scheduler_queue_depth{own} 0"), zone.to_owned()]);
        plans.begin("provisioner", 1, at(5));
        assert!(page().iter().all(|line| line.contains(r#"scheduling_id="2""#)), "{:?}", page());
    }
}
