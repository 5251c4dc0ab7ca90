//! Column generation for the consolidation program. It decides which nodes are removed, which pods the other nodes
//! receive, and which nodes are launched, and minimises the price of all nodes plus the price of moving pods.

use rayon::prelude::*;

use super::instance::Instance;
use super::master::{Column, Master};
use super::pricing::{Content, Pricing, Scratch};

/// The program is solved when its objective is within this share of its lower bound.
const GAP: f64 = 0.001;
/// The maximum number of rounds of column generation.
const ROUNDS_MAX: usize = 80;
/// The maximum number of simplex pivots per class of pods between two rounds; below, after the last round.
const PIVOTS_PER_ROW: usize = 4;
const PIVOTS_PER_ROW_AT_END: usize = 20;
/// The maximum number of steps of the search for the pods of one node.
pub(super) const SEARCH_NODES: u64 = 300;
/// Dual price smoothing: columns are sought at a mean of the current dual prices and those of the best bound so far.
/// This is the weight of the latter.
const SMOOTHING: f64 = 0.6;

#[derive(Debug, Clone, Default)]
pub(super) struct Solution {
    /// What hosting one more pod of each class costs.
    pub(super) duals: Vec<f64>,
    /// By place: the fraction of the node that stays, 0 to 1.
    pub(super) stays: Vec<f64>,
    /// By place: what the best content of its free capacity is worth.
    pub(super) free_values: Vec<f64>,
    /// (share, place, content)
    pub(super) fillings: Vec<(f64, usize, Content)>,
    /// (amount, kind, content)
    pub(super) launches: Vec<(f64, usize, Content)>,
    pub(super) work: u64,
}

/// What a column stands for: content of the free capacity of a place, or of a new node of a kind.
#[derive(Clone, Copy)]
enum Meaning {
    Place(usize),
    Kind(usize),
    /// Pods for which no node can be launched.
    Nowhere,
}

pub(super) fn solve(instance: &Instance, work_max: u64) -> Solution {
    let rows = instance.classes.len();
    let scale = instance.scale();
    let mut meanings: Vec<(Meaning, Content)> = Vec::new();
    let start = (0..rows).map(|class| start_column(instance, class, &mut meanings)).collect();
    // Demands are lowered slightly, differently for each class: with exact sums most pivots would be degenerate.
    let demand = instance
        .demand
        .iter()
        .enumerate()
        .map(|(class, count)| f64::from(*count) - 1e-6 * (1.0 + class as f64 / rows as f64));
    let mut master = Master::new(demand.collect(), instance.places.len(), start);
    let residents: Vec<Vec<(u32, f64)>> = instance
        .places
        .iter()
        .map(|place| place.pods.iter().map(|(class, pods)| (*class, pods.len() as f64)).collect())
        .collect();
    let cost_of = |place: usize| instance.places[place].price - instance.places[place].disruption_price;
    for (place, entries) in residents.iter().enumerate() {
        if instance.places[place].is_candidate() {
            master.add(Column { set: Some(place as u32), cost: cost_of(place), entries: entries.clone() });
            meanings.push((Meaning::Place(place), Content::new()));
        }
    }
    let mut best: (f64, Vec<f64>) = (f64::MIN, Vec::new());
    let mut work = 0;
    for _ in 0..ROUNDS_MAX {
        master.optimize(PIVOTS_PER_ROW * rows);
        let duals: Vec<f64> = master.duals.iter().map(|dual| dual.max(0.0)).collect();
        let mut added = 0;
        for share in [SMOOTHING, 0.0] {
            if share > 0.0 && best.1.is_empty() {
                continue;
            }
            let at: Vec<f64> = if share > 0.0 {
                duals.iter().zip(&best.1).map(|(dual, best)| share * best + (1.0 - share) * dual).collect()
            } else {
                duals.clone()
            };
            let pricing = Pricing::new(&instance.classes, at, &scale);
            let (of_places, of_kinds, spent) = contents(instance, &pricing);
            work += spent;
            let bound = bound(instance, &pricing, &of_places, &of_kinds, &residents, &cost_of);
            if bound.0 > best.0 {
                best = bound;
            }
            for (place, (_, content)) in of_places.into_iter().enumerate() {
                let mut entries = residents[place].clone();
                add_content(&mut entries, &content);
                let cost = if instance.places[place].is_candidate() { cost_of(place) } else { 0.0 };
                let reduced = cost - master.value_of(&entries) - master.dual_of_set(place);
                if reduced < -1e-7 && !content.is_empty() {
                    master.add(Column { set: Some(place as u32), cost, entries });
                    meanings.push((Meaning::Place(place), content));
                    added += 1;
                }
            }
            for (kind, (_, content)) in of_kinds.into_iter().enumerate() {
                let mut entries = Vec::new();
                add_content(&mut entries, &content);
                let cost = instance.kinds[kind].price;
                if cost - master.value_of(&entries) < -1e-7 {
                    master.add(Column { set: None, cost, entries });
                    meanings.push((Meaning::Kind(kind), content));
                    added += 1;
                }
            }
            if added > 0 {
                break;
            }
        }
        let objective = master.objective();
        let scale = instance.places.iter().map(|place| place.price).sum::<f64>();
        if added == 0 || objective - best.0 < GAP * scale || master.work + work > work_max {
            break;
        }
    }
    master.optimize(PIVOTS_PER_ROW_AT_END * rows);
    solution(instance, &master, &meanings, &scale, work)
}

fn start_column(instance: &Instance, class: usize, meanings: &mut Vec<(Meaning, Content)>) -> Column {
    let requests = &instance.classes[class].requests;
    let full = |kind: usize| {
        let most = instance.classes[class].cap.min(instance.demand[class].max(1));
        super::pricing::copies(&instance.kinds[kind].free, requests, most)
    };
    let usable = (0..instance.kinds.len()).filter(|kind| instance.accepts(*kind, class) && full(*kind) > 0);
    let per_pod = |kind: usize| instance.kinds[kind].price / f64::from(full(kind));
    match usable.min_by(|a, b| per_pod(*a).total_cmp(&per_pod(*b))) {
        Some(kind) => {
            let count = full(kind);
            meanings.push((Meaning::Kind(kind), vec![(class as u32, count)]));
            let entries = vec![(class as u32, f64::from(count))];
            Column { set: None, cost: instance.kinds[kind].price, entries }
        }
        None => {
            meanings.push((Meaning::Nowhere, Content::new()));
            // More than any node costs, so that nodes with such pods stay unless other nodes have free capacity for them.
            let cost = 1.0 + 2.0 * instance.places.iter().map(|place| place.price).fold(0.0, f64::max);
            Column { set: None, cost, entries: vec![(class as u32, 1.0)] }
        }
    }
}

fn add_content(entries: &mut Vec<(u32, f64)>, content: &[(u32, u32)]) {
    for (class, count) in content {
        match entries.iter_mut().find(|(known, _)| known == class) {
            Some((_, total)) => *total += f64::from(*count),
            None => entries.push((*class, f64::from(*count))),
        }
    }
}

/// Value and upper bound of the best content found, with the content.
type Priced = ((f64, f64), Content);

/// The best contents of all places and kinds.
fn contents(instance: &Instance, pricing: &Pricing<'_>) -> (Vec<Priced>, Vec<Priced>, u64) {
    let of_place = |place: usize, scratch: &mut Scratch| {
        let place = &instance.places[place];
        let mut content = Content::new();
        let limit = |class: usize| place.limits[class].min(instance.demand[class]);
        let value = pricing.fill(&place.free, limit, SEARCH_NODES, scratch, &mut content);
        (value, content)
    };
    let of_kind = |kind: usize, scratch: &mut Scratch| {
        let mut content = Content::new();
        let limit = |class: usize| {
            let most = instance.classes[class].cap.min(instance.demand[class]);
            if instance.accepts(kind, class) { most } else { 0 }
        };
        let value = pricing.fill(&instance.kinds[kind].free, limit, SEARCH_NODES, scratch, &mut content);
        (value, content)
    };
    let places = instance.places.len();
    let all: Vec<(Priced, u64)> = (0..places + instance.kinds.len())
        .into_par_iter()
        .with_min_len(16)
        .map_init(Scratch::default, |scratch, one| {
            let before = scratch.work;
            let priced = if one < places { of_place(one, scratch) } else { of_kind(one - places, scratch) };
            (priced, scratch.work - before)
        })
        .collect();
    let work = all.iter().map(|(_, work)| work).sum();
    let mut all = all.into_iter().map(|(priced, _)| priced);
    let of_places = all.by_ref().take(places).collect();
    (of_places, all.collect(), work)
}

/// The lower bound of the objective, and the dual prices that prove it.
fn bound(
    instance: &Instance,
    pricing: &Pricing<'_>,
    of_places: &[Priced],
    of_kinds: &[Priced],
    residents: &[Vec<(u32, f64)>],
    cost_of: &dyn Fn(usize) -> f64,
) -> (f64, Vec<f64>) {
    let ratios =
        of_kinds.iter().zip(&instance.kinds).map(|(((value, _), _), kind)| kind.price / value.max(1e-12));
    let factor = ratios.fold(1.0, f64::min);
    let demand: f64 =
        instance.demand.iter().zip(&pricing.values).map(|(count, value)| f64::from(*count) * value).sum();
    let mut total = factor * demand;
    for (place, ((value, _), _)) in of_places.iter().enumerate() {
        let own: f64 =
            residents[place].iter().map(|(class, count)| pricing.values[*class as usize] * count).sum();
        let cost = if instance.places[place].is_candidate() { cost_of(place) } else { 0.0 };
        total += (cost - factor * (own + value)).min(0.0);
    }
    (total, pricing.values.iter().map(|value| value * factor).collect())
}

fn solution(
    instance: &Instance,
    master: &Master,
    meanings: &[(Meaning, Content)],
    scale: &[f64; super::instance::DIMENSIONS],
    work: u64,
) -> Solution {
    let duals: Vec<f64> = master.duals.iter().map(|dual| dual.max(0.0)).collect();
    let pricing = Pricing::new(&instance.classes, duals, scale);
    let (of_places, _, spent) = contents(instance, &pricing);
    let mut solution = Solution {
        stays: instance.places.iter().map(|place| f64::from(u8::from(!place.is_candidate()))).collect(),
        free_values: of_places.into_iter().map(|((value, _), _)| value).collect(),
        work: work + spent + master.work,
        ..Solution::default()
    };
    for (column, amount) in master.solution() {
        let (meaning, content) = &meanings[column];
        match meaning {
            Meaning::Place(place) => {
                if instance.places[*place].is_candidate() {
                    solution.stays[*place] += amount;
                }
                if !content.is_empty() {
                    solution.fillings.push((amount, *place, content.clone()));
                }
            }
            Meaning::Kind(kind) => solution.launches.push((amount, *kind, content.clone())),
            Meaning::Nowhere => {}
        }
    }
    debug_assert_eq!(meanings.len(), master.columns().len());
    solution.duals = pricing.values;
    solution
}
