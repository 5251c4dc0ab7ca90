//! Ruin-and-recreate search: in each round the pods of a few nodes lose their targets and are placed again. The result
//! is kept if price plus price of moves is not higher.
//!
//! Nodes are drawn with a fixed seed, so the same placement gives the same result.

use super::instance::Vector;
use super::pricing::{Content, Pricing};
use super::rounding::Builder;

/// Rounds per node that may be removed.
const ROUNDS_PER_NODE: usize = 12;
const ROUNDS_MAX: usize = 1_500;
/// The maximum number of rounds times classes of pods, because the time of a round is proportional to the classes.
const ROUNDS_BY_CLASSES_MAX: usize = 60_000;
/// The relative amount by which the values of pods are varied at random in each round.
const NOISE: f64 = 0.15;
/// Nodes that may receive pods in a round and keep those that they have; below, removed nodes that may be kept.
const OPEN_MAX: usize = 4;
const REMOVED_MAX: usize = 6;

struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The state of a place before a round, to restore it.
struct Before {
    place: usize,
    is_removed: bool,
    free: Vector,
    taken: Vec<u32>,
}

pub(super) fn improve(builder: &mut Builder<'_>) {
    let instance = builder.instance;
    let places = instance.places.len();
    let candidates = instance.places.iter().filter(|place| place.is_candidate()).count();
    if builder.left.iter().any(|left| *left > 0) || places == 0 {
        return;
    }
    let scale = instance.scale();
    let values = builder.pricing.values.clone();
    let mut draws = Draws(1);
    let rounds_max = ROUNDS_MAX.min(ROUNDS_BY_CLASSES_MAX / instance.classes.len().max(1));
    for _ in 0..(ROUNDS_PER_NODE * candidates).min(rounds_max) {
        let noisy = values.iter().map(|value| value * (1.0 + NOISE * (2.0 * draws.unit() - 1.0))).collect();
        builder.pricing = Pricing::new(&instance.classes, noisy, &scale);
        let launches = draws.below(4).min(builder.placement.launches.len());
        let (closes, rooms) = (draws.below(3), draws.below(4));
        let mut ruined: Vec<usize> = Vec::new();
        let mut closed: Vec<usize> = Vec::new();
        for number in 0..closes + rooms {
            let place = (0..3).map(|_| draws.below(places)).max_by(|a, b| {
                let merit = |place: usize| merit(builder, place, number < closes);
                merit(*a).total_cmp(&merit(*b))
            });
            let Some(place) = place.filter(|place| !builder.placement.is_removed[*place]) else { continue };
            let is_used = ruined.contains(&place) || closed.contains(&place);
            if is_used || number < closes && !instance.places[place].is_candidate() {
                continue;
            }
            if number < closes { closed.push(place) } else { ruined.push(place) }
        }
        if launches + ruined.len() + closed.len() == 0 {
            continue;
        }
        let (own_ruined, own_closed) = (ruined.len(), closed.len());
        for _ in 0..OPEN_MAX {
            let place = draws.below(places);
            if !builder.placement.is_removed[place] && !ruined.contains(&place) && !closed.contains(&place) {
                ruined.push(place);
            }
        }
        for _ in 0..REMOVED_MAX {
            let place = draws.below(places);
            if builder.placement.is_removed[place] && !closed.contains(&place) {
                closed.push(place);
            }
        }
        let before: Vec<Before> = ruined
            .iter()
            .chain(&closed)
            .map(|place| Before {
                place: *place,
                is_removed: builder.placement.is_removed[*place],
                free: builder.free[*place],
                taken: builder.taken[*place].clone(),
            })
            .collect();
        // Ruin.
        let mut refund = 0.0;
        let mut apart: Vec<(usize, Content)> = Vec::new();
        for _ in 0..launches {
            let drawn = draws.below(builder.placement.launches.len());
            apart.push(builder.placement.launches.swap_remove(drawn));
        }
        for (kind, content) in &apart {
            refund += instance.kinds[*kind].price;
            content.iter().for_each(|(class, count)| builder.left[*class as usize] += count);
        }
        for place in ruined[..own_ruined].iter().chain(&closed[..own_closed]) {
            builder.empty(*place);
        }
        for place in &closed[..own_closed] {
            refund += instance.places[*place].price - instance.places[*place].disruption_price;
            builder.leave(*place, 1);
            builder.placement.is_removed[*place] = true;
        }
        for at in (1..ruined.len()).rev() {
            ruined.swap(at, draws.below(at + 1));
        }
        // Recreate.
        let kept = builder.placement.launches.len();
        let mut content = Content::new();
        for place in &ruined {
            builder.best_for_place(*place, &mut content);
            let content = std::mem::take(&mut content);
            builder.put(*place, &content);
        }
        let cost = builder.launch_or_keep(&closed, refund + 1e-9);
        if cost.is_some_and(|cost| cost <= refund + 1e-9) {
            continue;
        }
        builder.placement.launches.truncate(kept);
        builder.placement.launches.extend(apart);
        builder.left.iter_mut().for_each(|left| *left = 0);
        for one in before {
            builder.placement.is_removed[one.place] = one.is_removed;
            builder.free[one.place] = one.free;
            builder.taken[one.place] = one.taken;
        }
    }
}

/// How promising a place is for a round: with `is_closing`, what it costs beyond the value of its own pods; otherwise the
/// share of its free capacity that is still unused.
fn merit(builder: &Builder<'_>, place: usize, is_closing: bool) -> f64 {
    if builder.placement.is_removed[place] {
        return f64::MIN;
    }
    let data = &builder.instance.places[place];
    if is_closing {
        let own =
            data.pods.iter().map(|(class, pods)| builder.pricing.values[*class as usize] * pods.len() as f64);
        return data.price - data.disruption_price - own.sum::<f64>();
    }
    builder.free[place][0] as f64 / (data.free[0] as f64 + 1.0)
}

impl Builder<'_> {
    /// Unassigns all pods of removed nodes from a place.
    fn empty(&mut self, place: usize) {
        for (class, count) in self.taken[place].iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            self.left[class] += std::mem::take(count);
        }
        self.free[place] = self.instance.places[place].free;
    }
}
