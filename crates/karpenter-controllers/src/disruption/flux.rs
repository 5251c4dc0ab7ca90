//! Whether pods are leaving nodes that stay: somebody scales in, and a plan that is made in the middle of it would be out of
//! date before it begins, and would keep a better one waiting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::mirror::Change;
use karpenter_state::pod::Pod;

use super::flight::after;
use crate::mirrors::Mirrors;
use crate::pods;

/// When no pod has left for so long, those that were to leave have left.
const CALM: Duration = Duration::from_secs(3);
/// Nobody waits longer than this for a cluster in which pods come and go all the time.
const MOST: Duration = Duration::from_secs(15);

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Flux {
    streak: Arc<Mutex<Option<Streak>>>,
}

/// Pods that left one after the other.
#[derive(Debug, Clone, Copy)]
struct Streak {
    first: Timestamp,
    last: Timestamp,
}

impl Flux {
    pub(super) fn watch(&self, mirrors: &Mirrors, clock: Clock) {
        let (flux, nodes) = (self.clone(), mirrors.nodes.clone());
        mirrors.pods.observe(move |change: &Change<Pod>| {
            let leaves = match change {
                Change::Applied { old: Some(old), new } => {
                    old.deleted_at.is_none() && new.deleted_at.is_some() || !is_over(old) && is_over(new)
                }
                Change::Applied { old: None, .. } => false,
                Change::Deleted { .. } => true,
            };
            let node = || pods::node_name(change.object()).and_then(|name| nodes.get("", name));
            // Pods of a node that goes are where they should be soon, and that is known.
            if leaves && node().is_some_and(|node| stays(&node)) {
                flux.note(clock.now());
            }
        });
    }

    fn note(&self, now: Timestamp) {
        let mut streak = self.streak.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = streak.filter(|streak| since(now, streak.last) < CALM);
        *streak = Some(Streak { first: goes_on.map_or(now, |streak| streak.first), last: now });
    }

    /// When it will be over if no other pod leaves; `None` if it is, or has gone on for too long to be waited for.
    pub(super) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let streak = (*self.streak.lock().unwrap_or_else(PoisonError::into_inner))?;
        let calm = after(streak.last, CALM).min(after(streak.first, MOST));
        (now < calm).then_some(calm)
    }
}

fn is_over(pod: &Pod) -> bool {
    pods::is_terminal(pod)
}

fn stays(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none()
        && !taints.into_iter().any(|taint| taint.key == labels::TAINT_DISRUPTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    #[test]
    fn it_is_over_when_no_pod_has_left_for_a_while() {
        let flux = Flux::default();
        assert_eq!(flux.until(at(0)), None, "nothing has happened");
        flux.note(at(1_000));
        flux.note(at(3_500));
        assert_eq!(flux.until(at(3_600)), Some(at(6_500)));
        assert_eq!(flux.until(at(6_500)), None);
    }

    #[test]
    fn a_cluster_that_never_rests_is_not_waited_for() {
        let flux = Flux::default();
        for second in 0..20 {
            flux.note(at(second * 1_000));
        }
        assert_eq!(flux.until(at(14_900)), Some(at(15_000)));
        assert_eq!(flux.until(at(19_100)), None, "it has gone on for long enough");
        flux.note(at(30_000));
        assert_eq!(flux.until(at(30_000)), Some(at(33_000)), "that is another one");
    }
}
