//! Checks pods that the plan places on existing nodes: labels, taints, free capacity, host ports and volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::problem::{Node, Problem};
use karpenter_model::requirements::Requirements;
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::{Effect, Taint, Toleration, first_untolerated};

use super::contents::{Contents, Share};
use super::label_view::{ExistingView, LabelView};
use super::violation::{Place, Violation};

/// The first NoSchedule or NoExecute taint that the pod does not tolerate.
pub(super) fn blocking_taint<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| {
        taint.effect != Effect::PreferNoSchedule
            && !tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

pub(super) fn check(problem: &Problem, contents: &Contents<'_>, violations: &mut Vec<Violation>) {
    for (index, node) in problem.nodes.iter().enumerate() {
        let shares = &contents.existing[index];
        if shares.is_empty() {
            continue;
        }
        let place = Place::Existing(node.name.clone());
        let view = ExistingView { labels: &node.labels, hostname: node.hostname() };
        for share in shares {
            let spec = contents.classes[share.class as usize];
            let pod = || contents.pod_name(share);
            if let Some(taint) = blocking_taint(&node.taints, &spec.tolerations) {
                violations.push(Violation::UntoleratedTaint {
                    place: place.clone(),
                    pod: pod(),
                    taint: taint.clone(),
                });
            }
            if let Some(requirement) = view.unmet(&spec.node_selector) {
                violations.push(Violation::NodeSelectorUnmet {
                    place: place.clone(),
                    pod: pod(),
                    instance_type: None,
                    requirement: requirement.clone(),
                });
            }
            if !view.meets_any(&spec.required_terms) {
                violations.push(Violation::RequiredTermsUnmet {
                    place: place.clone(),
                    pod: pod(),
                    instance_type: None,
                });
            }
            if !view.meets_any(&spec.volumes.alternatives) {
                violations.push(Violation::VolumeTopologyUnmet {
                    place: place.clone(),
                    pod: pod(),
                    instance_type: None,
                });
            }
        }
        room(problem, node, shares, contents, violations);
        ports(node, shares, contents, &place, violations);
        volumes(node, shares, contents, &place, violations);
    }
}

fn room(
    problem: &Problem,
    node: &Node,
    shares: &[Share],
    contents: &Contents<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut free = node.allocatable.clone();
    let mut daemons_present = ResourceList::new();
    for pod in &node.pods {
        free.subtract(&pod.spec.requests);
        if pod.is_daemon {
            daemons_present.add(&pod.spec.requests);
        }
    }
    let mut node_labels = Requirements::from_labels(&node.labels);
    if !node_labels.has_key(labels::HOSTNAME) {
        let hostname = [(Arc::from(labels::HOSTNAME), node.hostname().clone())];
        node_labels.extend(&Requirements::from_labels(hostname.iter().map(|(key, value)| (key, value))));
    }
    let mut daemons_due = ResourceList::new();
    for daemon in &problem.daemons {
        if daemon.reserves_capacity()
            && first_untolerated(&node.taints, &daemon.spec.tolerations).is_none()
            && node_labels.compatible(&daemon.spec.strict_requirements(), &BTreeSet::new()).is_ok()
        {
            daemons_due.add(&daemon.spec.requests);
        }
    }
    for (resource, due) in daemons_due.iter() {
        let outstanding = due.saturating_sub(daemons_present.get(resource)).max(0);
        free.set(resource.clone(), free.get(resource).saturating_sub(outstanding));
    }
    let mut wanted = ResourceList::new();
    for share in shares {
        wanted.add(&contents.classes[share.class as usize].requests.scaled(i64::from(share.count)));
    }
    for (resource, wanted) in wanted.iter() {
        if wanted > 0 && wanted > free.get(resource) {
            violations.push(Violation::ExistingNodeOverfull {
                node: node.name.clone(),
                resource: resource.clone(),
                wanted,
                free: free.get(resource),
            });
        }
    }
}

fn ports(
    node: &Node,
    shares: &[Share],
    contents: &Contents<'_>,
    place: &Place,
    violations: &mut Vec<Violation>,
) {
    if shares.iter().all(|share| contents.classes[share.class as usize].host_ports.is_empty()) {
        return;
    }
    let taken: Vec<_> = node.pods.iter().flat_map(|pod| pod.spec.host_ports.iter()).collect();
    port_conflicts(shares, contents, &taken, place, violations);
}

/// Host port conflicts of the placed pods with each other and with ports in use on the node.
pub(super) fn port_conflicts(
    shares: &[Share],
    contents: &Contents<'_>,
    taken: &[&karpenter_model::pod::HostPort],
    place: &Place,
    violations: &mut Vec<Violation>,
) {
    let mut taken = taken.to_vec();
    for share in shares {
        let ports = &contents.classes[share.class as usize].host_ports;
        let conflict =
            ports.iter().find(|port| share.count > 1 || taken.iter().any(|other| port.conflicts_with(other)));
        if let Some(port) = conflict {
            violations.push(Violation::HostPortConflict {
                place: place.clone(),
                pod: contents.pod_name(share),
                port: port.port,
            });
        }
        taken.extend(ports.iter());
    }
}

fn volumes(
    node: &Node,
    shares: &[Share],
    contents: &Contents<'_>,
    place: &Place,
    violations: &mut Vec<Violation>,
) {
    let added: BTreeSet<&(Arc<str>, Arc<str>)> = shares
        .iter()
        .flat_map(|share| contents.classes[share.class as usize].volumes.attachments.iter())
        .collect();
    if added.is_empty() {
        return;
    }
    let present: BTreeSet<_> = node.pods.iter().flat_map(|pod| pod.spec.volumes.attachments.iter()).collect();
    for (driver, limit) in &node.volume_limits {
        let of_driver =
            |set: &BTreeSet<&(Arc<str>, Arc<str>)>| set.iter().filter(|(of, _)| of == driver).count();
        let is_new = added.iter().any(|volume| volume.0 == *driver && !present.contains(*volume));
        let all: BTreeSet<_> = added.union(&present).copied().collect();
        let wanted = of_driver(&all) as u32;
        if is_new && wanted > *limit {
            violations.push(Violation::VolumeLimitExceeded {
                place: place.clone(),
                instance_type: None,
                driver: driver.clone(),
                limit: *limit,
                wanted,
            });
        }
    }
}
