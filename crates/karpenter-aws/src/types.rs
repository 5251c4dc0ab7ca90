//! What can be bought with a class right now.
//!
//! [`Discovered`] is what EC2 sells, [`ClassView`] what a class says about it, and [`LiveMarket`] what is known about
//! prices, shortages and the like; the arithmetic is that of `karpenter-catalog`, the same that `karpenter plan` uses.
//! What was resolved is kept per class and made anew only as far as something it was made from has changed: nothing is
//! ever too old, and a shortage of one type costs the resolution of one type.

mod class_view;
mod controllers;
mod discovered;
mod market;
mod memory;
mod memory_controller;
mod metrics;
mod overlay_prices;
mod resolved;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use karpenter_api::types::EC2NodeClass;
use karpenter_catalog::aws::{AwsNodeClass, Incompatibility, TypeInfo, incompatibility};
use karpenter_cluster::clock::Clock;
use karpenter_model::instance_type::InstanceType;

use crate::api::{AwsError, Ec2};
use crate::interruption::Feedback;
use crate::placement_groups::{self, PlacementGroups};
use crate::pricing::PriceBook;
use crate::reservations::Reservations;
use crate::subnets::PublicSubnets;
use crate::unavailable::{Scope, ShortPool, Unavailable};
use crate::zonal_shift::ZonalShifts;

pub use class_view::{ClassView, KubeletExpressions, images_key};
pub use controllers::{DiscoveryController, OfferingMetricsController, OverlayPricesController};
pub use discovered::{Discovered, KnownType};
pub use market::LiveMarket;
pub use memory::DiscoveredMemory;
pub use memory_controller::MemoryController;
pub use metrics::TypeMetrics;
pub use overlay_prices::stated_prices;

use resolved::{Inputs, Resolved};

/// Why there are no instance types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypesError {
    #[error("no instance types found")]
    NoTypes,
    #[error("no instance types offerings found")]
    NoOfferings,
    #[error("no subnets found")]
    NoSubnets,
    #[error("{action}: {error}")]
    Aws { action: &'static str, error: AwsError },
}

/// What an administrator set that decides about types.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeOptions {
    pub region: String,
    pub vm_memory_overhead_percent: f64,
    pub reserved_enis: u32,
    /// The feature gate ReservedCapacity.
    pub uses_reservations: bool,
}

/// What types are resolved from.
#[derive(Clone)]
pub struct TypeSources {
    pub ec2: Arc<dyn Ec2>,
    pub clock: Clock,
    pub prices: PriceBook,
    pub unavailable: Unavailable,
    pub reservations: Reservations,
    pub placement_groups: PlacementGroups,
    pub shifts: ZonalShifts,
}

/// Everything that can be bought, per class. Clones share everything.
#[derive(Clone)]
pub struct InstanceTypes {
    shared: Arc<Shared>,
}

struct Shared {
    options: TypeOptions,
    sources: TypeSources,
    expressions: Option<Arc<dyn KubeletExpressions>>,
    memory: DiscoveredMemory,
    public_subnets: PublicSubnets,
    discovered: RwLock<Arc<Discovered>>,
    stated_prices: RwLock<Arc<BTreeMap<String, f64>>>,
    /// By the name of the class.
    resolved: Mutex<BTreeMap<String, Arc<Resolved>>>,
    /// By the name of the class, with the version of the object it was made from.
    views: Mutex<BTreeMap<String, (ObjectVersion, Arc<ClassView>)>>,
}

/// Uid and resource version: equal ones mean equal objects.
type ObjectVersion = (String, String);

fn version_of(class: &EC2NodeClass) -> Option<ObjectVersion> {
    class.metadata.uid.clone().zip(class.metadata.resource_version.clone())
}

impl InstanceTypes {
    pub fn new(options: TypeOptions, sources: TypeSources) -> Self {
        Self::with_expressions(options, sources, None)
    }

    /// With what reads expressions in `spec.kubelet`; without it they count as not given.
    pub fn with_expressions(
        options: TypeOptions,
        sources: TypeSources,
        expressions: Option<Arc<dyn KubeletExpressions>>,
    ) -> Self {
        let memory = DiscoveredMemory::new(sources.clock);
        let shared = Shared {
            options,
            sources,
            expressions,
            memory,
            public_subnets: PublicSubnets::default(),
            discovered: RwLock::default(),
            stated_prices: RwLock::default(),
            resolved: Mutex::default(),
            views: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Asks EC2 what it sells and where. What was known stays until there is a whole new answer.
    pub async fn discover(&self) -> Result<(), TypesError> {
        let ec2 = &self.shared.sources.ec2;
        let (types, offerings) =
            futures::join!(ec2.describe_instance_types(), ec2.describe_instance_type_offerings());
        let types = types.map_err(|error| TypesError::Aws { action: "describing instance types", error })?;
        let offerings = offerings
            .map_err(|error| TypesError::Aws { action: "describing instance type zone offerings", error })?;
        self.take_in(types, offerings)
    }

    /// Replaces what was known, unless an answer is empty: EC2 does not stop selling machines.
    pub fn take_in(
        &self,
        types: Vec<TypeInfo>,
        offerings: Vec<crate::api::ec2::TypeOffering>,
    ) -> Result<(), TypesError> {
        if types.is_empty() {
            return Err(TypesError::NoTypes);
        }
        if offerings.is_empty() {
            return Err(TypesError::NoOfferings);
        }
        let mut current = self.shared.discovered.write().unwrap_or_else(PoisonError::into_inner);
        let next = Discovered::new(types, offerings, current.version() + 1);
        if next.is_same_as(&current) {
            return Ok(());
        }
        tracing::debug!(count = next.types().len(), zones = ?next.zones(), "discovered instance types");
        *current = Arc::new(next);
        Ok(())
    }

    /// What EC2 sells; empty before the first answer.
    pub fn discovered(&self) -> Arc<Discovered> {
        Arc::clone(&self.shared.discovered.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn memory(&self) -> &DiscoveredMemory {
        &self.shared.memory
    }

    /// The subnets whose public addresses are part of a node's price.
    pub fn public_subnets(&self) -> &PublicSubnets {
        &self.shared.public_subnets
    }

    pub fn unavailable(&self) -> &Unavailable {
        &self.shared.sources.unavailable
    }

    pub fn reservations(&self) -> &Reservations {
        &self.shared.sources.reservations
    }

    pub fn placement_groups(&self) -> &PlacementGroups {
        &self.shared.sources.placement_groups
    }

    pub fn prices(&self) -> &PriceBook {
        &self.shared.sources.prices
    }

    pub fn options(&self) -> &TypeOptions {
        &self.shared.options
    }

    /// Prices that NodeOverlays state for types without one.
    pub fn set_stated_prices(&self, prices: BTreeMap<String, f64>) {
        let mut current = self.shared.stated_prices.write().unwrap_or_else(PoisonError::into_inner);
        if **current != prices {
            *current = Arc::new(prices);
        }
    }

    /// What a class says about types, with its placement group found.
    pub async fn view(&self, class: &EC2NodeClass) -> Arc<ClassView> {
        let view = self.view_of_object(class);
        let Some(selector) = &class.spec.placement_group_selector else { return view };
        let group = self.shared.sources.placement_groups.find_or_recall(selector).await;
        let mut view = (*view).clone();
        view.facts.placement_group = group.as_ref().and_then(placement_groups::facts);
        // Launching outside of the group would be worse than not launching.
        view.is_closed = view.facts.placement_group.is_none();
        Arc::new(view)
    }

    /// Reading a class takes a while, and it is asked for far more often than it changes.
    fn view_of_object(&self, class: &EC2NodeClass) -> Arc<ClassView> {
        let Shared { options, expressions, views, .. } = &*self.shared;
        let make = || Arc::new(ClassView::new(class, options, expressions.as_deref()));
        let (Some(version), Some(name)) = (version_of(class), class.metadata.name.clone()) else {
            return make();
        };
        let mut views = views.lock().unwrap_or_else(PoisonError::into_inner);
        match views.get(&name) {
            Some((known, view)) if *known == version => Arc::clone(view),
            _ => {
                let view = make();
                views.insert(name, (version, Arc::clone(&view)));
                view
            }
        }
    }

    /// Every type as the class sees it, what is not available right now included, by name.
    pub async fn list(&self, class: &EC2NodeClass) -> Result<Arc<Vec<InstanceType>>, TypesError> {
        let view = self.view(class).await;
        let discovered = self.discovered();
        if discovered.types().is_empty() {
            return Err(TypesError::NoTypes);
        }
        if view.facts.zones.is_empty() {
            return Err(TypesError::NoSubnets);
        }
        let inputs = self.inputs(discovered);
        let name = class.metadata.name.clone().unwrap_or_default();
        let known = self.shared.resolved.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(known) = &known
            && known.is_current(&view, &inputs)
        {
            return Ok(known.types());
        }
        let expressions = self.shared.expressions.as_deref();
        let next = Arc::new(Resolved::make(view, inputs, known.as_deref(), expressions));
        let types = next.types();
        self.shared.resolved.lock().unwrap_or_else(PoisonError::into_inner).insert(name, next);
        Ok(types)
    }

    /// Forgets what was resolved for a class that is gone.
    pub fn forget(&self, class_name: &str) {
        self.shared.resolved.lock().unwrap_or_else(PoisonError::into_inner).remove(class_name);
        self.shared.views.lock().unwrap_or_else(PoisonError::into_inner).remove(class_name);
    }

    /// Why no machine of the type can be launched with the class, if so.
    pub fn incompatibility(&self, facts: &AwsNodeClass, instance_type: &str) -> Option<Incompatibility> {
        self.discovered().find(instance_type).and_then(|known| incompatibility(&known.info, facts))
    }

    fn inputs(&self, discovered: Arc<Discovered>) -> Inputs {
        let Shared { sources, memory, public_subnets, stated_prices, .. } = &*self.shared;
        Inputs {
            discovered,
            quotes: sources.prices.current(),
            shortages: sources.unavailable.current(),
            left: sources.reservations.counts().current(),
            shifted_zone_ids: sources.shifts.shifted_zone_ids(sources.clock.now()),
            memory: memory.current(),
            public_subnets: public_subnets.current(),
            stated_prices: Arc::clone(&stated_prices.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl Feedback for InstanceTypes {
    fn close_spot_pool(&self, instance_type: &str, zone: &str) {
        let pool = ShortPool {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: karpenter_api::labels::CAPACITY_TYPE_SPOT.to_owned(),
            scope: Scope::Everyone,
        };
        self.unavailable().mark_pool(pool, "SpotInterruption");
    }

    fn close_reservation(&self, reservation_id: &str) {
        self.reservations().counts().exhausted(reservation_id);
    }
}
