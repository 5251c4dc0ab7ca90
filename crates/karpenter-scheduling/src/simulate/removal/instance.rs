//! The numeric form of a consolidation: classes of movable pods, existing nodes with their free capacity, and the
//! node kinds that can be launched.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::problem::{Mobility, Mode, Options};
use karpenter_model::requirements::{Requirement, Requirements};

use super::RemovalRequest;
use super::zones::{self, Zone};
use crate::bits::Bits;
use crate::cost::{Demand, Demands, kinds, vector};
use crate::ledger::Ledger;
use crate::simulate::{BoundAt, Simulator};
use crate::templates::Amounts;
use crate::topology::{Kind as GroupKind, Slot};

/// The maximum number of resources; a problem with more is not solved.
pub(super) const DIMENSIONS: usize = 6;

pub(super) type Vector = [i64; DIMENSIONS];

/// Movable pods with the same requests and constraints; see [`ClassKey`].
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) requests: Vector,
    /// The maximum number of its pods on a new node, for all members together.
    pub(super) cap: u32,
    /// Index of the pods' requirements on a new node; [`Kind`] lists those that it meets.
    demand: usize,
    /// One of its classes in the ledger.
    pub(super) of_ledger: usize,
}

/// An existing node that takes pods, or may be removed, or both.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) node: usize,
    /// Zero if the node takes no pods of other nodes.
    pub(super) free: Vector,
    pub(super) capacity: Vector,
    /// Index into the candidates; `None` if the node stays in any case.
    pub(super) candidate: Option<usize>,
    pub(super) price: f64,
    /// The price of moving all its pods.
    pub(super) disruption_price: f64,
    /// By class: its pods that would move.
    pub(super) pods: Vec<(u32, Vec<BoundAt>)>,
    /// By class: how many pods the constraints of the node allow; resources are checked separately.
    pub(super) limits: Vec<u32>,
    /// The same by member.
    pub(super) member_limits: Vec<u32>,
}

/// A kind of node that can be launched.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) free: Vector,
    pub(super) price: f64,
    serves: Bits,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Instance {
    pub(super) classes: Vec<Class>,
    pub(super) places: Vec<Place>,
    pub(super) kinds: Vec<Kind>,
    /// By class: pods on nodes that may be removed.
    pub(super) demand: Vec<u32>,
    /// The member that a pod belongs to. Classes whose pods are limited per node have a member for each workload.
    pub(super) member_of: Arc<BTreeMap<BoundAt, u32>>,
    /// The class by class in the ledger, before the instance was split.
    pub(super) class_of_ledger: Arc<BTreeMap<usize, u32>>,
    /// Some pods are constrained by zone.
    pub(super) is_zonal: bool,
}

impl Place {
    pub(super) fn is_candidate(&self) -> bool {
        self.candidate.is_some()
    }
}

impl Instance {
    pub(super) fn accepts(&self, kind: usize, class: usize) -> bool {
        self.kinds[kind].serves.contains(self.classes[class].demand)
    }

    /// The typical amount of each resource on a node.
    pub(super) fn scale(&self) -> [f64; DIMENSIONS] {
        let mut scale = [0.0; DIMENSIONS];
        let all = self.kinds.iter().map(|kind| &kind.free).chain(self.places.iter().map(|one| &one.capacity));
        for free in all {
            scale.iter_mut().zip(free).for_each(|(scale, free)| *scale += *free as f64);
        }
        scale.map(|one: f64| one.max(1.0))
    }

    /// Splits the instance into parts between which no pod can move.
    pub(super) fn parts(self) -> Vec<Self> {
        let count = self.classes.len();
        let mut group: Vec<usize> = (0..count).collect();
        fn root(group: &mut [usize], mut one: usize) -> usize {
            while group[one] != one {
                group[one] = group[group[one]];
                one = group[one];
            }
            one
        }
        let mut join = |members: &mut dyn Iterator<Item = usize>| {
            let Some(first) = members.next() else { return };
            for other in members {
                let (a, b) = (root(&mut group, first), root(&mut group, other));
                group[a.max(b)] = a.min(b);
            }
        };
        for place in &self.places {
            let own = place.pods.iter().map(|(class, _)| *class as usize);
            let accepted = (0..count).filter(|class| place.limits[*class] > 0);
            join(&mut own.chain(accepted));
        }
        for kind in 0..self.kinds.len() {
            join(&mut (0..count).filter(|class| self.accepts(kind, *class)));
        }
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for class in 0..count {
            members.entry(root(&mut group, class)).or_default().push(class);
        }
        members.into_values().map(|classes| self.part(&classes)).collect()
    }

    fn part(&self, classes: &[usize]) -> Self {
        let position: BTreeMap<usize, u32> =
            classes.iter().enumerate().map(|(position, class)| (*class, position as u32)).collect();
        let touches = |place: &&Place| {
            place.pods.iter().any(|(class, _)| position.contains_key(&(*class as usize)))
                || classes.iter().any(|class| place.limits[*class] > 0)
        };
        let places = self.places.iter().filter(touches).map(|place| Place {
            pods: place
                .pods
                .iter()
                .map(|(class, pods)| (position[&(*class as usize)], pods.clone()))
                .collect(),
            limits: classes.iter().map(|class| place.limits[*class]).collect(),
            ..place.clone()
        });
        let places = places.collect();
        let kinds = (0..self.kinds.len())
            .filter(|kind| classes.iter().any(|class| self.accepts(*kind, *class)))
            .map(|kind| self.kinds[kind].clone())
            .collect();
        Self {
            classes: classes.iter().map(|class| self.classes[*class].clone()).collect(),
            places,
            kinds,
            demand: classes.iter().map(|class| self.demand[*class]).collect(),
            member_of: Arc::clone(&self.member_of),
            class_of_ledger: Arc::clone(&self.class_of_ledger),
            is_zonal: self.is_zonal,
        }
    }
}

/// Pods with equal keys are one class. Workloads that differ only in the pods that their spread or anti-affinity selects
/// are one class with a member for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    requests: Amounts,
    demand: usize,
    /// Existing nodes that match.
    matching: Bits,
    relation: Relation,
}

/// How pods are constrained by other pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    None,
    /// The number of pods of the same workload on a node is limited.
    Limited,
    /// In another way; the class in the ledger.
    Other(usize),
}

/// Pods of a class whose number on a node is limited together.
struct Member {
    /// One of its classes in the ledger.
    class: usize,
    zone: Option<Zone>,
    /// The maximum number on a new node.
    cap: u32,
    pods: u32,
}

/// The ledger of a simulator with all pods of the candidates in its queue.
pub(super) fn ledger(simulator: &Simulator<'_>, request: &RemovalRequest<'_>) -> Ledger {
    let mut ledger = simulator.cluster.clone();
    let wanted: Vec<usize> = request.candidates.iter().map(|one| one.node).collect();
    let moving = simulator.pod_index.moving(&wanted, Mobility::Moves);
    simulator.pod_index.fill_queue(&mut ledger.classes, &moving);
    let options = Options { mode: Mode::Cost, ..simulator.problem.options.clone() };
    ledger.begin_simulation(&[], options, &BTreeMap::new());
    ledger
}

/// Reads the instance of a request. `None` if there are too many resources. Pods with a zone go to this zone only.
pub(super) fn extract(
    simulator: &Simulator<'_>,
    ledger: &mut Ledger,
    request: &RemovalRequest<'_>,
    zone_of: &BTreeMap<BoundAt, Zone>,
) -> Option<Instance> {
    if ledger.prepared.dimensions.len() > DIMENSIONS {
        return None;
    }
    let wanted: Vec<usize> = request.candidates.iter().map(|one| one.node).collect();
    let moving = simulator.pod_index.moving(&wanted, Mobility::Moves);
    let mut everywhere = Bits::empty(ledger.prepared.templates.len());
    (0..ledger.prepared.templates.len()).for_each(|template| everywhere.insert(template));
    let mut demands = Demands::default();
    let mut instance = Instance::default();
    let mut known: BTreeMap<ClassKey, u32> = BTreeMap::new();
    // Class and member by class in the ledger.
    let mut class_of_ledger: BTreeMap<(usize, Option<Zone>), (u32, u32)> = BTreeMap::new();
    let mut members: Vec<Member> = Vec::new();
    let mut members_of: Vec<Vec<u32>> = Vec::new();
    let mut class_of_pod: BTreeMap<BoundAt, u32> = BTreeMap::new();
    let mut member_of: BTreeMap<BoundAt, u32> = BTreeMap::new();
    for of_spec in &moving {
        let spec = simulator.pod_index.spec(of_spec.spec);
        if spec.refusal.is_some() {
            continue;
        }
        let of_ledger = simulator.pod_index.class_of(of_spec.spec);
        instance.is_zonal |= zones::is_zonal(ledger, of_ledger);
        for pod in &of_spec.pods {
            let own = (of_ledger, zone_of.get(pod).copied());
            let (class, member) = match class_of_ledger.get(&own) {
                Some(known) => *known,
                None => {
                    let (key, cap) = class_key(ledger, own, &everywhere, &mut demands);
                    let is_limited = key.relation == Relation::Limited;
                    let class = *known.entry(key).or_insert_with_key(|key| {
                        let class =
                            Class { requests: vector(&key.requests), cap: 0, demand: key.demand, of_ledger };
                        instance.classes.push(class);
                        members_of.push(Vec::new());
                        instance.classes.len() as u32 - 1
                    });
                    let of_class = &mut members_of[class as usize];
                    if is_limited || of_class.is_empty() {
                        of_class.push(members.len() as u32);
                        members.push(Member { class: own.0, zone: own.1, cap, pods: 0 });
                    }
                    let member = of_class[of_class.len() - 1];
                    class_of_ledger.insert(own, (class, member));
                    (class, member)
                }
            };
            class_of_pod.insert(*pod, class);
            member_of.insert(*pod, member);
            members[member as usize].pods += 1;
        }
    }
    for (class, members_of) in instance.classes.iter_mut().zip(&members_of) {
        class.cap = sum_of(members_of, |member| members[member].cap.min(members[member].pods));
    }
    instance.member_of = Arc::new(member_of);
    let by_class = class_of_ledger.iter().map(|((of_ledger, _), (class, _))| (*of_ledger, *class));
    instance.class_of_ledger = Arc::new(by_class.collect());
    let kinds = kinds(ledger, &everywhere, &demands.list, true);
    instance.kinds = kinds
        .into_iter()
        .map(|kind| Kind { free: kind.free, price: kind.price, serves: kind.demands })
        .collect();
    let candidate_at: BTreeMap<usize, usize> =
        request.candidates.iter().enumerate().map(|(number, one)| (one.node, number)).collect();
    let mut nodes: Vec<usize> = request.onto.iter().chain(&wanted).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut receives = vec![false; simulator.node_count()];
    request.onto.iter().for_each(|node| receives[*node] = true);
    instance.demand = vec![0; instance.classes.len()];
    for node in simulator.present(&nodes) {
        let position = simulator.position_of[node];
        let takes = receives[node] && !ledger.is_closed_to_movers(position);
        let member_limits: Vec<u32> =
            members.iter().map(|member| if takes { accepted(ledger, member, position) } else { 0 }).collect();
        let limit = |member: usize| member_limits[member].min(members[member].pods);
        let limits = members_of.iter().map(|members_of| sum_of(members_of, limit)).collect();
        let mut place = Place {
            node,
            free: vector(&ledger.free_before_plan(position)).map(|free| free.max(0)),
            capacity: vector(
                &ledger.prepared.dimensions.amounts(simulator.node(node).map(|node| &node.allocatable)?),
            ),
            candidate: None,
            price: 0.0,
            disruption_price: 0.0,
            pods: Vec::new(),
            limits,
            member_limits,
        };
        if let Some(number) = candidate_at.get(&node) {
            let mut pods: BTreeMap<u32, Vec<BoundAt>> = BTreeMap::new();
            // A node stays if one of its pods has no class.
            let mut is_known = true;
            for pod in simulator.pod_index.movable(node) {
                match class_of_pod.get(&pod) {
                    Some(class) => pods.entry(*class).or_default().push(pod),
                    None => is_known = false,
                }
            }
            if is_known {
                let candidate = &request.candidates[*number];
                place.candidate = Some(*number);
                place.price = candidate.price_per_hour;
                place.disruption_price = candidate.disruption_price_per_hour;
                place.pods = pods.into_iter().collect();
                for (class, pods) in &place.pods {
                    instance.demand[*class as usize] += pods.len() as u32;
                }
            }
        }
        instance.places.push(place);
    }
    Some(instance)
}

fn class_key(
    ledger: &mut Ledger,
    (class, zone): (usize, Option<Zone>),
    everywhere: &Bits,
    demands: &mut Demands,
) -> (ClassKey, u32) {
    // The last level of relaxation states the fewest constraints.
    let variant = ledger.classes.classes[class].variants.end - 1;
    let mut matching = (*ledger.matching_nodes(variant)).clone();
    if let Some(zone) = zone {
        (0..ledger.nodes.len())
            .filter(|node| ledger.nodes[*node].facts.domains[zone.key] != Some(zone.domain))
            .for_each(|node| matching.remove(node));
    }
    let data = &ledger.classes.variants[variant];
    let volume = data.alternatives[0];
    let (added, requests) = (data.added, data.requests.clone());
    let mut tolerated = Bits::empty(ledger.prepared.templates.len());
    data.tolerated.iter().filter(|one| everywhere.contains(*one)).for_each(|one| tolerated.insert(one));
    let has_own_limits =
        data.owned.iter().all(|owned| owned.selects_itself && owned.kind != GroupKind::Affinity);
    let relation =
        if !data.spec.host_ports.is_empty() || !data.spec.volumes.attachments.is_empty() || !has_own_limits {
            Relation::Other(class)
        } else if data.owned.is_empty() && data.repelled_by.is_empty() && data.repelled_by_on_host.is_empty()
        {
            Relation::None
        } else {
            Relation::Limited
        };
    // On new nodes a hostname spread may hold a share of its pods.
    let pools = ledger.problem.pools.iter().filter_map(|pool| pool.hostname_spread_share);
    let share =
        pools.chain([ledger.options.hostname_spread_share]).map(|share| share.percent()).max().unwrap_or(0);
    let caps =
        data.owned.iter().filter(|owned| owned.is_hostname && owned.selects_itself).map(|owned| match owned
            .kind
        {
            GroupKind::Spread { max_skew, .. } => {
                let counted = ledger.topology.group(owned.group).matched_total;
                let part = (counted * u64::from(share)).div_ceil(100);
                max_skew.max(u32::try_from(part).unwrap_or(u32::MAX))
            }
            GroupKind::AntiAffinity => 1,
            GroupKind::Affinity => u32::MAX,
        });
    let cap = if data.spec.host_ports.is_empty() { caps.min().unwrap_or(u32::MAX) } else { 1 };
    let mut added = ledger.states.join(added, volume);
    if let Some(zone) = zone {
        let value = ledger.topology.domains[zone.key][zone.domain].clone();
        let in_zone: Requirements =
            [Requirement::in_values(ledger.topology.keys[zone.key].clone(), [value])].into_iter().collect();
        let in_zone = ledger.states.intern(&in_zone);
        added = ledger.states.join(added, in_zone);
    }
    let demand = demands.number(Demand { added, tolerated });
    (ClassKey { requests, demand, matching, relation }, cap)
}

fn sum_of(members: &[u32], value: impl Fn(usize) -> u32) -> u32 {
    members.iter().fold(0, |sum, member| sum.saturating_add(value(*member as usize)))
}

/// How many pods of a member the constraints of a node allow; resources are checked separately.
fn accepted(ledger: &mut Ledger, member: &Member, position: usize) -> u32 {
    let (class, zone) = (member.class, member.zone);
    if zone.is_some_and(|zone| ledger.nodes[position].facts.domains[zone.key] != Some(zone.domain)) {
        return 0;
    }
    let variant = ledger.classes.classes[class].variants.end - 1;
    if !ledger.matching_nodes(variant).contains(position) {
        return 0;
    }
    ledger.host_copies(variant, Slot(position as u32))
}
