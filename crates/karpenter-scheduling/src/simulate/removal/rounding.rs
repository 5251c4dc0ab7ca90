//! Rounds the solution of the program to whole nodes: which nodes are removed, and the target of each of their pods.

use super::columns::{SEARCH_NODES, Solution};
use super::instance::{Instance, Vector};
use super::pricing::{Content, Pricing, Scratch, copies, take};
use super::search;

/// The maximum number of steps of the search for the pods of one node in one round of `search`.
const SEARCH_NODES_OF_ROUND: u64 = 40;

#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    /// By place.
    pub(super) is_removed: Vec<bool>,
    /// By place: pods of removed nodes that it receives.
    pub(super) taken: Vec<Content>,
    /// (kind, content)
    pub(super) launches: Vec<(usize, Content)>,
    pub(super) work: u64,
}

pub(super) struct Builder<'a> {
    pub(super) instance: &'a Instance,
    pub(super) pricing: Pricing<'a>,
    /// By class: pods without a target.
    pub(super) left: Vec<u32>,
    pub(super) free: Vec<Vector>,
    pub(super) taken: Vec<Vec<u32>>,
    pub(super) placement: Placement,
    search_nodes: u64,
    scratch: Scratch,
}

/// With `is_final`, the placement is improved by a search.
pub(super) fn round(instance: &Instance, solution: &Solution, is_final: bool) -> Placement {
    let is_removed: Vec<bool> = instance
        .places
        .iter()
        .zip(&solution.stays)
        .map(|(place, stays)| place.is_candidate() && *stays < 0.5)
        .collect();
    let scale = instance.scale();
    // Every pod has a positive value: at least 1 % of its price on a new node that is full of pods of its class.
    let values = (0..instance.classes.len())
        .map(|class| solution.duals[class].max(0.01 * alone(instance, class)).max(1e-6))
        .collect();
    let mut left = vec![0; instance.classes.len()];
    for (place, _) in instance.places.iter().zip(&is_removed).filter(|(_, is_removed)| **is_removed) {
        place.pods.iter().for_each(|(class, pods)| left[*class as usize] += pods.len() as u32);
    }
    let mut builder = Builder {
        instance,
        pricing: Pricing::new(&instance.classes, values, &scale),
        left,
        free: instance.places.iter().map(|place| place.free).collect(),
        taken: vec![vec![0; instance.classes.len()]; instance.places.len()],
        placement: Placement { is_removed, ..Placement::default() },
        search_nodes: SEARCH_NODES,
        scratch: Scratch::default(),
    };
    builder.use_solution(solution);
    builder.fill_places();
    let removed: Vec<usize> =
        (0..instance.places.len()).filter(|place| builder.placement.is_removed[*place]).collect();
    while builder.launch_or_keep(&removed, f64::MAX).is_none() && builder.keep_one_with_left() {}
    if is_final {
        builder.search_nodes = SEARCH_NODES_OF_ROUND;
        search::improve(&mut builder);
    }
    builder.placement.taken = builder
        .taken
        .iter()
        .map(|taken| {
            let counts = taken.iter().enumerate().filter(|(_, count)| **count > 0);
            counts.map(|(class, count)| (class as u32, *count)).collect()
        })
        .collect();
    builder.placement.work = builder.scratch.work;
    builder.placement
}

/// The price of a pod on new nodes that are full of pods of its class.
fn alone(instance: &Instance, class: usize) -> f64 {
    let per_pod =
        (0..instance.kinds.len()).filter(|kind| instance.accepts(*kind, class)).filter_map(|kind| {
            let full = copies(
                &instance.kinds[kind].free,
                &instance.classes[class].requests,
                instance.classes[class].cap,
            );
            (full > 0).then(|| instance.kinds[kind].price / f64::from(full))
        });
    per_pod.fold(f64::MAX, f64::min).min(1e6)
}

impl Builder<'_> {
    /// The contents that the solution chose, those with the largest share first.
    fn use_solution(&mut self, solution: &Solution) {
        let mut fillings: Vec<&(f64, usize, Content)> = solution.fillings.iter().collect();
        fillings.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut is_filled = vec![false; self.instance.places.len()];
        for (_, place, content) in fillings {
            if self.placement.is_removed[*place] || std::mem::replace(&mut is_filled[*place], true) {
                continue;
            }
            self.put(*place, content);
        }
        for (amount, kind, content) in &solution.launches {
            for _ in 0..(amount + 1e-4) as u64 {
                if content.iter().all(|(class, count)| self.left[*class as usize] >= *count) {
                    self.launch(*kind, content.clone());
                }
            }
        }
    }

    /// Assigns pods of a content to a place, as many as are still without a target.
    pub(super) fn put(&mut self, place: usize, content: &[(u32, u32)]) {
        for (class, count) in content {
            let class = *class as usize;
            let count = (*count).min(self.left[class]);
            take(&mut self.free[place], &self.instance.classes[class].requests, count);
            self.left[class] -= count;
            self.taken[place][class] += count;
        }
    }

    fn launch(&mut self, kind: usize, content: Content) -> f64 {
        content.iter().for_each(|(class, count)| self.left[*class as usize] -= count);
        let kind = self.cheapest_for(kind, &content);
        self.placement.launches.push((kind, content));
        self.instance.kinds[kind].price
    }

    /// The cheapest kind that holds a content.
    fn cheapest_for(&self, kind: usize, content: &[(u32, u32)]) -> usize {
        let holds = |kind: &usize| {
            let mut free = self.instance.kinds[*kind].free;
            content.iter().all(|(class, count)| {
                take(&mut free, &self.instance.classes[*class as usize].requests, *count);
                self.instance.accepts(*kind, *class as usize)
            }) && free.iter().all(|free| *free >= 0)
        };
        let kinds = &self.instance.kinds;
        let cheapest =
            (0..kinds.len()).filter(holds).min_by(|a, b| kinds[*a].price.total_cmp(&kinds[*b].price));
        cheapest.unwrap_or(kind)
    }

    /// Assigns pods without a target to free capacity, fullest nodes first.
    fn fill_places(&mut self) {
        let fullness = |place: usize| {
            let data = &self.instance.places[place];
            (0..2).map(|one| data.free[one] as f64 / data.capacity[one].max(1) as f64).fold(0.0, f64::max)
        };
        let mut order: Vec<usize> =
            (0..self.instance.places.len()).filter(|place| !self.placement.is_removed[*place]).collect();
        order.sort_by(|a, b| fullness(*a).total_cmp(&fullness(*b)).then(a.cmp(b)));
        let mut content = Content::new();
        for place in order {
            if self.left.iter().all(|left| *left == 0) {
                return;
            }
            self.best_for_place(place, &mut content);
            let content = std::mem::take(&mut content);
            self.put(place, &content);
        }
    }

    pub(super) fn best_for_place(&mut self, place: usize, content: &mut Content) -> f64 {
        let (limits, taken, left) = (&self.instance.places[place].limits, &self.taken[place], &self.left);
        let limit = |class: usize| left[class].min(limits[class].saturating_sub(taken[class]));
        self.pricing.fill(&self.free[place], limit, self.search_nodes, &mut self.scratch, content).0
    }

    fn best_for_kind(&mut self, kind: usize, content: &mut Content) -> f64 {
        let (instance, left) = (self.instance, &self.left);
        let limit = |class: usize| {
            if instance.accepts(kind, class) { left[class].min(instance.classes[class].cap) } else { 0 }
        };
        self.pricing.fill(&instance.kinds[kind].free, limit, self.search_nodes, &mut self.scratch, content).0
    }

    /// Places the pods without a target: as long as there are any, launches the node whose pods have the highest value per
    /// price, or keeps one of the given removed nodes. Returns the cost; `None` if it is above the limit, or if a pod fits
    /// on no node.
    pub(super) fn launch_or_keep(&mut self, removed: &[usize], cost_max: f64) -> Option<f64> {
        let mut content = Content::new();
        let mut cost = 0.0;
        while self.left.iter().any(|left| *left > 0) {
            let mut best: Option<(f64, Choice, Content)> = None;
            for kind in 0..self.instance.kinds.len() {
                let value = self.best_for_kind(kind, &mut content);
                if content.is_empty() {
                    continue;
                }
                let rest = content.iter().map(|(_, count)| count).sum::<u32>() == self.left.iter().sum();
                let ratio = value / self.instance.kinds[kind].price * if rest { 1.02 } else { 1.0 };
                if best.as_ref().is_none_or(|(known, _, _)| ratio > *known + 1e-12) {
                    best = Some((ratio, Choice::Launch(kind), content.clone()));
                }
            }
            for place in removed.iter().copied() {
                let data = &self.instance.places[place];
                let is_whole =
                    data.pods.iter().all(|(class, pods)| self.left[*class as usize] >= pods.len() as u32);
                if !self.placement.is_removed[place] || !is_whole {
                    continue;
                }
                let own: f64 = data
                    .pods
                    .iter()
                    .map(|(class, pods)| self.pricing.values[*class as usize] * pods.len() as f64)
                    .sum();
                let net = data.price - data.disruption_price;
                self.leave(place, -1);
                let value = self.best_for_place(place, &mut content);
                self.leave(place, 1);
                let ratio = if net <= 1e-9 { f64::MAX } else { (own + value) / net };
                if best.as_ref().is_none_or(|(known, _, _)| ratio > *known + 1e-12) {
                    best = Some((ratio, Choice::Keep(place), content.clone()));
                }
            }
            cost += match best? {
                (_, Choice::Launch(kind), content) => self.launch(kind, content),
                (_, Choice::Keep(place), content) => self.keep(place, &content),
            };
            if cost > cost_max {
                return None;
            }
        }
        Some(cost)
    }

    /// Adds the pods of a place to those without a target (`sign` 1), or subtracts them (`sign` -1).
    pub(super) fn leave(&mut self, place: usize, sign: i32) {
        for (class, pods) in &self.instance.places[place].pods {
            let left = &mut self.left[*class as usize];
            *left = left.saturating_add_signed(sign * pods.len() as i32);
        }
    }

    fn keep(&mut self, place: usize, content: &[(u32, u32)]) -> f64 {
        self.leave(place, -1);
        self.placement.is_removed[place] = false;
        self.put(place, content);
        self.instance.places[place].price - self.instance.places[place].disruption_price
    }

    /// Keeps one removed node that has pods without a target. Its other pods lose their targets.
    fn keep_one_with_left(&mut self) -> bool {
        let Some(class) = self.left.iter().position(|left| *left > 0) else { return false };
        let has_class = |place: &usize| {
            self.placement.is_removed[*place]
                && self.instance.places[*place].pods.iter().any(|(one, _)| *one as usize == class)
        };
        let Some(place) = (0..self.instance.places.len()).find(has_class) else { return false };
        self.placement.is_removed[place] = false;
        for (class, pods) in &self.instance.places[place].pods {
            let class = *class as usize;
            let mut wanted = pods.len() as u32;
            let from_left = wanted.min(self.left[class]);
            self.left[class] -= from_left;
            wanted -= from_left;
            for (other, taken) in self.taken.iter_mut().enumerate() {
                let back = wanted.min(taken[class]);
                taken[class] -= back;
                wanted -= back;
                for (free, request) in self.free[other].iter_mut().zip(&self.instance.classes[class].requests)
                {
                    *free += request * i64::from(back);
                }
            }
            for (_, content) in &mut self.placement.launches {
                for (one, count) in content.iter_mut().filter(|(one, _)| *one as usize == class) {
                    let _ = one;
                    let back = wanted.min(*count);
                    *count -= back;
                    wanted -= back;
                }
            }
        }
        self.placement.launches.iter_mut().for_each(|(_, content)| content.retain(|(_, count)| *count > 0));
        self.placement.launches.retain(|(_, content)| !content.is_empty());
        true
    }
}

enum Choice {
    Launch(usize),
    Keep(usize),
}
