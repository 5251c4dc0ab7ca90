//! An index of the pending pods and of the movable pods of every node. Pods are referred to by number instead of by
//! name.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::plan::PodRun;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Node, PodGroup, Problem};
use karpenter_model::resources::{CPU, MEMORY};
use rustc_hash::FxHashMap;

use super::BoundAt;
use crate::classes::{Classes, QueueRun};

/// The sort key of the queue: larger cpu first, then larger memory, then older pods, then by name.
type QueueKey = (Reverse<i64>, Reverse<i64>, i64, Arc<str>, String);

#[derive(Debug, Clone, Copy)]
struct MovablePod {
    /// The pod's index in the list of pods of its node.
    position: u32,
    spec: u32,
    mobility: Mobility,
}

#[derive(Debug, Clone)]
struct Pending {
    key: QueueKey,
    /// The class of the pod; `None` if the pod is invalid, so that no node is tried for it.
    class: Option<usize>,
    run: PodRun,
}

#[derive(Debug, Clone)]
pub(super) struct PodIndex {
    /// Every distinct pod spec among the pods that may have to be placed.
    specs: Vec<Arc<PodSpec>>,
    /// For each spec: the class of its pods when a simulation moves them.
    class_of: Vec<usize>,
    /// For each node: its pods that a simulation may have to move.
    movable_pods: Vec<Vec<MovablePod>>,
    /// In queue order.
    waiting: Vec<Pending>,
    spec_of_group: Vec<u32>,
}

/// Pods of one spec that the current simulation moves.
pub(super) struct Moving {
    pub(super) spec: u32,
    pub(super) pods: Vec<BoundAt>,
}

impl PodIndex {
    /// Collects all pods of a problem.
    pub(super) fn new(problem: &Problem) -> Self {
        let mut specs = Specs::default();
        let movable_pods = problem.nodes.iter().map(|node| specs.movable_pods(node)).collect();
        let spec_of_group = problem.pods.iter().map(|group| specs.number(&group.spec)).collect();
        Self { specs: specs.list, class_of: Vec::new(), movable_pods, waiting: Vec::new(), spec_of_group }
    }

    pub(super) fn specs(&self) -> &[Arc<PodSpec>] {
        &self.specs
    }

    /// Stores the class of each spec after compilation.
    pub(super) fn link(&mut self, problem: &Problem, classes: &Classes, class_of: Vec<usize>) {
        self.class_of = class_of;
        let mut class_of_group: BTreeMap<u32, usize> = BTreeMap::new();
        for (class, data) in classes.classes.iter().enumerate() {
            data.pods.iter().for_each(|run| _ = class_of_group.insert(run.group, class));
        }
        self.waiting = problem
            .pods
            .iter()
            .enumerate()
            .filter(|(_, group)| group.count() > 0)
            .map(|(position, group)| Pending {
                key: key_of_group(group),
                class: class_of_group.get(&(position as u32)).copied(),
                run: PodRun { group: position as u32, start: 0, count: group.count() },
            })
            .collect();
        self.waiting.sort_by(|a, b| a.key.cmp(&b.key).then(a.run.cmp(&b.run)));
    }

    /// The pods that have to move from these nodes, grouped by spec; specs are in the order in which they first occur.
    pub(super) fn moving(&self, nodes: &[usize], min_mobility: Mobility) -> Vec<Moving> {
        let mut found: Vec<Moving> = Vec::new();
        let mut number_of_spec: FxHashMap<u32, usize> = FxHashMap::default();
        for node in nodes {
            for pod in self.movable_pods[*node].iter().filter(|pod| pod.mobility >= min_mobility) {
                let number = *number_of_spec.entry(pod.spec).or_insert_with(|| {
                    found.push(Moving { spec: pod.spec, pods: Vec::new() });
                    found.len() - 1
                });
                found[number].pods.push(BoundAt { node: *node as u32, pod: pod.position });
            }
        }
        found
    }

    /// Fills the queue with the pending pods and the moving pods.
    pub(super) fn fill_queue(&self, classes: &mut Classes, moving: &[Moving]) {
        classes.queue.clear();
        classes.refused.clear();
        classes.classes.iter_mut().for_each(|class| class.pods.clear());
        let groups = self.spec_of_group.len();
        let mut movers: Vec<Pending> = moving
            .iter()
            .enumerate()
            .map(|(number, moving)| {
                let spec = &self.specs[moving.spec as usize];
                let run =
                    PodRun { group: (groups + number) as u32, start: 0, count: moving.pods.len() as u32 };
                Pending {
                    // The group is sorted like a pending group, with a name made from its number.
                    key: key_of(spec, 0, spec.namespace.clone(), format!("moved-{number}-0")),
                    class: spec.refusal.is_none().then(|| self.class_of[moving.spec as usize]),
                    run,
                }
            })
            .collect();
        movers.sort_by(|a, b| a.key.cmp(&b.key));
        let (mut movers, mut waiting) = (movers.iter().peekable(), self.waiting.iter().peekable());
        loop {
            let next = match (movers.peek(), waiting.peek()) {
                (Some(mover), Some(waits)) if waits.key <= mover.key => waiting.next(),
                (Some(_), _) => movers.next(),
                (None, _) => waiting.next(),
            };
            let Some(next) = next else { break };
            let Some(class) = next.class else {
                classes.refused.push((next.run, self.spec_of_run(&next.run, moving).refusal.clone()));
                continue;
            };
            classes.classes[class].pods.push(next.run);
            match classes.queue.last_mut() {
                Some(last) if last.class == class => last.count += next.run.count,
                _ => classes.queue.push(QueueRun { class, count: next.run.count }),
            }
        }
    }

    fn spec_of_run(&self, run: &PodRun, moving: &[Moving]) -> &PodSpec {
        let groups = self.spec_of_group.len();
        let group = run.group as usize;
        let spec = if group < groups { self.spec_of_group[group] } else { moving[group - groups].spec };
        &self.specs[spec as usize]
    }

    /// The spec of the pods of a group, which is either a pending group of the problem or one of the `movers` of an
    /// outcome.
    pub(super) fn spec_of(&self, group: u32, movers: &[Vec<BoundAt>]) -> Option<u32> {
        let groups = self.spec_of_group.len();
        if let Some(spec) = self.spec_of_group.get(group as usize) {
            return Some(*spec);
        }
        let at = movers.get(group as usize - groups)?.first()?;
        let movable_pods = self.movable_pods.get(at.node as usize)?;
        movable_pods.iter().find(|pod| pod.position == at.pod).map(|pod| pod.spec)
    }

    /// The spec of a bound pod that may have to move.
    pub(super) fn spec_at(&self, pod: BoundAt) -> Option<u32> {
        let movable_pods = self.movable_pods.get(pod.node as usize)?;
        movable_pods.iter().find(|one| one.position == pod.pod).map(|one| one.spec)
    }

    /// The pods of a node that may have to move.
    pub(super) fn movable(&self, node: usize) -> impl Iterator<Item = BoundAt> + '_ {
        self.movable_pods[node].iter().map(move |pod| BoundAt { node: node as u32, pod: pod.position })
    }

    pub(super) fn spec(&self, number: u32) -> &Arc<PodSpec> {
        &self.specs[number as usize]
    }

    pub(super) fn class_of(&self, spec: u32) -> usize {
        self.class_of[spec as usize]
    }

    /// Adds a node without pods.
    pub(super) fn add_node(&mut self) {
        self.movable_pods.push(Vec::new());
    }

    /// Appends pods that were moved to a node to its list of movable pods.
    pub(super) fn add_moved_pods(&mut self, node: usize, first: usize, spec: u32, count: u32) {
        self.movable_pods[node].extend((0..count).map(|offset| MovablePod {
            position: first as u32 + offset,
            spec,
            mobility: Mobility::Blocked,
        }));
    }

    /// Removes all pods from the pending pods except those in `left`.
    pub(super) fn retain_pending(&mut self, left: &[PodRun]) {
        let mut waiting = Vec::new();
        for known in &self.waiting {
            for run in left.iter().filter(|run| run.group == known.run.group) {
                // A pending run may be a part of an earlier run; the parts of one group do not overlap.
                if run.start >= known.run.start && run.start + run.count <= known.run.start + known.run.count
                {
                    waiting.push(Pending { run: *run, ..known.clone() });
                }
            }
        }
        self.waiting = waiting;
    }
}

fn key_of_group(group: &PodGroup) -> QueueKey {
    let (namespace, name) = group.order_name();
    key_of(&group.spec, group.created_at_secs, namespace, name)
}

fn key_of(spec: &PodSpec, created_at_secs: i64, namespace: Arc<str>, name: String) -> QueueKey {
    let requests = &spec.requests;
    (Reverse(requests.get(CPU)), Reverse(requests.get(MEMORY)), created_at_secs, namespace, name)
}

/// Assigns numbers to distinct specs. Specs are compared by address first, because most pods share a spec.
#[derive(Default)]
struct Specs {
    list: Vec<Arc<PodSpec>>,
    by_address: FxHashMap<*const PodSpec, u32>,
    by_value: FxHashMap<Arc<PodSpec>, u32>,
}

impl Specs {
    fn number(&mut self, spec: &Arc<PodSpec>) -> u32 {
        if let Some(known) = self.by_address.get(&Arc::as_ptr(spec)) {
            return *known;
        }
        let next = self.list.len() as u32;
        let number = *self.by_value.entry(spec.clone()).or_insert(next);
        if number == next {
            self.list.push(spec.clone());
        }
        self.by_address.insert(Arc::as_ptr(spec), number);
        number
    }

    fn movable_pods(&mut self, node: &Node) -> Vec<MovablePod> {
        let pods = node.pods.iter().enumerate().filter(|(_, pod)| pod.mobility > Mobility::Stays);
        pods.map(|(position, pod)| MovablePod {
            position: position as u32,
            spec: self.number(&pod.spec),
            mobility: pod.mobility,
        })
        .collect()
    }
}
