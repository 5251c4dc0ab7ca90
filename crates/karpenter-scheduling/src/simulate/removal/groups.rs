//! Commands that do not depend on each other: sets of removed nodes with the launched nodes that take their pods.
//!
//! Each launched node belongs to one command, and all of its pods come from nodes that this command removes. The other
//! pods of these nodes go to free capacity of existing nodes. That capacity suffices for all commands together, so each
//! can be executed without the others.

use std::collections::BTreeMap;

use super::instance::Instance;
use super::rounding::Placement;
use super::{Launch, Removal};
use crate::simulate::BoundAt;

struct Group {
    sources: Vec<usize>,
    launches: Vec<usize>,
    /// By class: pods of the sources that its launched nodes do not take.
    spare: Vec<u32>,
}

pub(super) fn removals(instance: &Instance, placement: &Placement, values: &[f64]) -> Vec<Removal> {
    let classes = instance.classes.len();
    let count_of = |place: usize| -> Vec<u32> {
        let mut count = vec![0; classes];
        instance.places[place]
            .pods
            .iter()
            .for_each(|(class, pods)| count[*class as usize] = pods.len() as u32);
        count
    };
    let used = |count: &[u32], need: &[u32]| -> f64 {
        (0..classes).map(|class| f64::from(count[class].min(need[class])) * values[class].max(1e-6)).sum()
    };
    let mut free: Vec<(usize, Vec<u32>)> = (0..instance.places.len())
        .filter(|place| placement.is_removed[*place])
        .map(|place| (place, count_of(place)))
        .collect();
    let mut order: Vec<usize> = (0..placement.launches.len()).collect();
    let price = |launch: usize| instance.kinds[placement.launches[launch].0].price;
    order.sort_by(|a, b| price(*b).total_cmp(&price(*a)).then(a.cmp(b)));
    let mut groups: Vec<Group> = Vec::new();
    for launch in order {
        let mut held = vec![0; classes];
        placement.launches[launch].1.iter().for_each(|(class, count)| held[*class as usize] = *count);
        let mut need = held.clone();
        let mut group = Group { sources: Vec::new(), launches: vec![launch], spare: vec![0; classes] };
        while need.iter().any(|need| *need > 0) {
            let best = free
                .iter()
                .enumerate()
                .map(|(at, (_, count))| (used(count, &need), at))
                .filter(|(used, _)| *used > 0.0)
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let supply = if let Some((_, at)) = best {
                let (place, count) = free.remove(at);
                group.sources.push(place);
                count
            } else {
                // Only another group has pods of these classes: the two groups are merged.
                let best = groups
                    .iter()
                    .enumerate()
                    .map(|(at, group)| (used(&group.spare, &need), at))
                    .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
                let Some((_, at)) = best else { break };
                let other = groups.remove(at);
                group.sources.extend(other.sources);
                group.launches.extend(other.launches);
                other.spare
            };
            for class in 0..classes {
                group.spare[class] += supply[class];
                need[class] = need[class].saturating_sub(supply[class]);
            }
        }
        group.spare.iter_mut().zip(held).for_each(|(spare, held)| *spare = spare.saturating_sub(held));
        groups.push(group);
    }
    let single = |(place, count): (usize, Vec<u32>)| Group {
        sources: vec![place],
        launches: Vec::new(),
        spare: count,
    };
    groups.extend(free.into_iter().map(single));
    with_targets(instance, placement, groups)
}

/// Assigns pods to the free capacity that was kept for their class.
fn with_targets(instance: &Instance, placement: &Placement, groups: Vec<Group>) -> Vec<Removal> {
    let mut slots: Vec<Vec<(usize, u32)>> = vec![Vec::new(); instance.classes.len()];
    // By place and member: pods that the constraints of the node still allow.
    let mut allowed: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for (place, taken) in placement.taken.iter().enumerate() {
        taken.iter().for_each(|(class, count)| slots[*class as usize].push((place, *count)));
    }
    slots.iter_mut().for_each(|slots| slots.reverse());
    groups
        .into_iter()
        .map(|group| {
            let mut onto: Vec<(BoundAt, usize)> = Vec::new();
            for (class, spare) in group.spare.iter().enumerate().filter(|(_, spare)| **spare > 0) {
                let pods = group.sources.iter().flat_map(|place| {
                    let pods = instance.places[*place].pods.iter();
                    pods.filter(|(one, _)| *one as usize == class).flat_map(|(_, pods)| pods)
                });
                for pod in pods.take(*spare as usize) {
                    let Some(member) = instance.member_of.get(pod).copied() else { continue };
                    let mut allows = |place: usize| {
                        let limit = || instance.places[place].member_limits[member as usize];
                        *allowed.entry((place, member)).or_insert_with(limit) > 0
                    };
                    let Some(slot) = slots[class].iter().rposition(|(place, _)| allows(*place)) else {
                        continue;
                    };
                    let (place, left) = &mut slots[class][slot];
                    onto.push((*pod, instance.places[*place].node));
                    allowed.entry((*place, member)).and_modify(|allowed| *allowed -= 1);
                    *left -= 1;
                    if *left == 0 {
                        slots[class].remove(slot);
                    }
                }
            }
            let launches = group.launches.iter().map(|launch| {
                let (kind, content) = &placement.launches[*launch];
                Launch {
                    price_per_hour: instance.kinds[*kind].price,
                    pods: content.iter().map(|(_, count)| count).sum(),
                }
            });
            let mut candidates: Vec<usize> =
                group.sources.iter().filter_map(|place| instance.places[*place].candidate).collect();
            candidates.sort_unstable();
            Removal { candidates, onto, launches: launches.collect() }
        })
        .collect()
}
