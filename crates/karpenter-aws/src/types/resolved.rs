//! The resolved instance types of a node class. After a change of an input, this module decides which of them must be
//! resolved again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_catalog::aws::Resolver;
use karpenter_model::instance_type::InstanceType;

use super::class_view::{ClassView, KubeletExpressions};
use super::discovered::Discovered;
use super::market::LiveMarket;
use super::memory::MemorySnapshot;
use crate::pricing::Quotes;
use crate::reservations::AvailableCounts;
use crate::unavailable::{Changed, UnavailableSnapshot};

/// The inputs of resolving instance types, except the node class.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    pub(super) discovered: Arc<Discovered>,
    pub(super) quotes: Arc<Quotes>,
    pub(super) shortages: Arc<UnavailableSnapshot>,
    pub(super) left: Arc<AvailableCounts>,
    pub(super) shifted_zone_ids: BTreeSet<String>,
    pub(super) memory: Arc<MemorySnapshot>,
    pub(super) public_subnets: Arc<BTreeSet<String>>,
    pub(super) stated_prices: Arc<BTreeMap<String, f64>>,
}

/// Which part must be resolved again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    /// Only the offerings of these instance types; everything else stays as it is.
    OfferingsOf(BTreeSet<String>),
    /// The offerings of all instance types; labels, capacity and overhead stay as they are.
    AllOfferings,
    Everything,
}

pub(super) struct Resolved {
    view: Arc<ClassView>,
    inputs: Inputs,
    types: Arc<Vec<InstanceType>>,
}

impl Resolved {
    /// Resolves the instance types of a node class. Those parts of `known` that are still valid are reused.
    pub(super) fn make(
        view: Arc<ClassView>,
        inputs: Inputs,
        known: Option<&Resolved>,
        expressions: Option<&dyn KubeletExpressions>,
    ) -> Self {
        let types = match known.map(|known| (known, known.work(&view, &inputs))) {
            Some((known, Work::Nothing)) => Arc::clone(&known.types),
            Some((known, Work::OfferingsOf(names))) => {
                let mut types = (*known.types).clone();
                let changed: Vec<usize> =
                    names.iter().filter_map(|name| inputs.discovered.position(name)).collect();
                resolve_offerings(&mut types, changed, &view, &inputs);
                Arc::new(types)
            }
            Some((known, Work::AllOfferings)) => {
                let mut types = (*known.types).clone();
                let all = 0..types.len();
                resolve_offerings(&mut types, all, &view, &inputs);
                Arc::new(types)
            }
            Some((_, Work::Everything)) | None => Arc::new(resolve_all(&view, &inputs, expressions)),
        };
        Self { view, inputs, types }
    }

    pub(super) fn types(&self) -> Arc<Vec<InstanceType>> {
        Arc::clone(&self.types)
    }

    pub(super) fn is_current(&self, view: &Arc<ClassView>, inputs: &Inputs) -> bool {
        self.work(view, inputs) == Work::Nothing
    }

    pub(super) fn work(&self, view: &Arc<ClassView>, inputs: &Inputs) -> Work {
        let before = &self.inputs;
        let is_same_view = Arc::ptr_eq(&self.view, view) || self.view == *view;
        if !is_same_view
            || before.discovered.version() != inputs.discovered.version()
            || before.memory.version != inputs.memory.version
        {
            return Work::Everything;
        }
        if before.quotes.version != inputs.quotes.version
            || before.shifted_zone_ids != inputs.shifted_zone_ids
            || before.stated_prices != inputs.stated_prices
            || before.public_subnets != inputs.public_subnets
        {
            return Work::AllOfferings;
        }
        let mut names = match inputs.shortages.changed_since(before.shortages.version()) {
            Changed::All => return Work::AllOfferings,
            Changed::Types(names) => names,
        };
        if before.left.version != inputs.left.version {
            let reservations = &view.facts.capacity_reservations;
            let moved =
                reservations.iter().filter(|held| before.left.of(&held.id) != inputs.left.of(&held.id));
            names.extend(moved.map(|held| held.instance_type.to_string()));
        }
        if names.is_empty() { Work::Nothing } else { Work::OfferingsOf(names) }
    }
}

fn market<'a>(view: &'a ClassView, inputs: &'a Inputs) -> LiveMarket<'a> {
    LiveMarket {
        view,
        discovered: &inputs.discovered,
        prices: &inputs.quotes.prices,
        shortages: &inputs.shortages,
        left: &inputs.left,
        shifted_zone_ids: &inputs.shifted_zone_ids,
        memory: &inputs.memory,
        public_subnets: &inputs.public_subnets,
        stated_prices: &inputs.stated_prices,
    }
}

fn resolve_all(
    view: &ClassView,
    inputs: &Inputs,
    expressions: Option<&dyn KubeletExpressions>,
) -> Vec<InstanceType> {
    let market = market(view, inputs);
    let mut resolver = Resolver::new(&view.facts);
    let expressions = expressions.zip(view.expressions.as_ref());
    let known = inputs.discovered.types().iter();
    known
        .map(|known| match expressions {
            None => resolver.resolve_labelled(&known.info, &known.labels, &market),
            Some((expressions, kubelet)) => {
                let own = expressions.evaluate(kubelet, &known.info, &view.facts);
                resolver.resolve_as(&own, &known.info, &known.labels, &market)
            }
        })
        .collect()
}

/// `types` must be the types in `inputs.discovered`, in the same order.
fn resolve_offerings(
    types: &mut [InstanceType],
    changed: impl IntoIterator<Item = usize>,
    view: &ClassView,
    inputs: &Inputs,
) {
    let market = market(view, inputs);
    let resolver = Resolver::new(&view.facts);
    for position in changed {
        let known = &inputs.discovered.types()[position];
        types[position].offerings = resolver.offerings(&known.info, &market);
    }
}
