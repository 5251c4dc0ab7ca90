//! The instance types that each EC2NodeClass can launch.
//!
//! [`Discovered`] holds EC2's instance types and zones, [`ClassView`] the node class's settings, and [`LiveMarket`]
//! prices and availability. `karpenter-catalog` computes instance types from these, with the same functions as for
//! `karpenter plan`. Results are kept for each node class. If an input changes, only the affected instance types are
//! computed again; after an insufficient capacity error of one instance type, only that type.
//!
//! Upstream: `pkg/providers/instancetype`

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
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;

use crate::api::{AwsError, Ec2};
use crate::interruption::Feedback;
use crate::placement_groups::{self, PlacementGroups};
use crate::pricing::PriceBook;
use crate::reservations::Reservations;
use crate::subnets::PublicSubnets;
use crate::unavailable::{Scope, Unavailable, UnavailableOffering};
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

/// Why a node class has no instance types.
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

/// The options of the provider that affect instance types.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeOptions {
    pub region: String,
    pub vm_memory_overhead_percent: f64,
    pub reserved_enis: u32,
    /// Whether the feature gate ReservedCapacity is on.
    pub uses_reservations: bool,
}

/// Where the inputs of instance type resolution come from.
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

/// The instance types of all node classes. All clones share their state.
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
    /// The resolved instance types, by name of the node class.
    resolved: Mutex<BTreeMap<String, Arc<Resolved>>>,
    /// The settings of each node class, by name, and the version of the object from which they were read.
    views: Mutex<BTreeMap<String, (ObjectVersion, Arc<ClassView>)>>,
}

/// Uid and resource version of an object; objects are equal if both are.
type ObjectVersion = (String, String);

fn version_of(class: &EC2NodeClass) -> Option<ObjectVersion> {
    class.metadata.uid.clone().zip(class.metadata.resource_version.clone())
}

impl InstanceTypes {
    pub fn new(options: TypeOptions, sources: TypeSources) -> Self {
        Self::with_expressions(options, sources, None)
    }

    /// `expressions` evaluates CEL expressions in `spec.kubelet`; if it is not set, expressions are ignored.
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

    /// Reads instance types and their zones from EC2. Until the response is complete, the previous ones are used.
    pub async fn discover(&self) -> Result<(), TypesError> {
        let ec2 = &self.shared.sources.ec2;
        let (types, offerings) =
            futures::join!(ec2.describe_instance_types(), ec2.describe_instance_type_offerings());
        let types = types.map_err(|error| TypesError::Aws { action: "describing instance types", error })?;
        let offerings = offerings
            .map_err(|error| TypesError::Aws { action: "describing instance type zone offerings", error })?;
        self.replace_discovered(types, offerings)
    }

    /// Replaces the discovered instance types. An empty response is an error and changes nothing.
    pub fn replace_discovered(
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

    /// The instance types that EC2 returned; empty before its first response.
    pub fn discovered(&self) -> Arc<Discovered> {
        Arc::clone(&self.shared.discovered.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn memory(&self) -> &DiscoveredMemory {
        &self.shared.memory
    }

    /// The subnets that give instances public addresses, whose price is part of the node's price.
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

    /// Sets the prices that NodeOverlays state for instance types that have no other price.
    pub fn set_stated_prices(&self, prices: BTreeMap<String, f64>) {
        let mut current = self.shared.stated_prices.write().unwrap_or_else(PoisonError::into_inner);
        if **current != prices {
            *current = Arc::new(prices);
        }
    }

    /// The settings of the node class, including its placement group.
    pub async fn view(&self, class: &EC2NodeClass) -> Arc<ClassView> {
        let view = self.view_of_object(class);
        let Some(selector) = &class.spec.placement_group_selector else { return view };
        let group = self.shared.sources.placement_groups.find_or_last_known(selector).await;
        let mut view = (*view).clone();
        view.facts.placement_group = group.as_ref().and_then(placement_groups::facts);
        // If the node class selects a placement group that does not exist, nothing is launched, because its instances
        // must not run outside of the group.
        view.is_unlaunchable = view.facts.placement_group.is_none();
        Arc::new(view)
    }

    /// The settings are cached, because a node class is parsed much more often than it changes, and parsing is
    /// expensive.
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

    /// All instance types of a node class, including those that are unavailable, sorted by name.
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

    /// Drops the cached instance types of a deleted node class.
    pub fn forget(&self, class_name: &str) {
        self.shared.resolved.lock().unwrap_or_else(PoisonError::into_inner).remove(class_name);
        self.shared.views.lock().unwrap_or_else(PoisonError::into_inner).remove(class_name);
    }

    /// Why no instance of the type can be launched with the node class; `None` if it can.
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
    fn mark_spot_unavailable(&self, instance_type: &str, zone: &str) {
        let pool = UnavailableOffering {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: karpenter_api::labels::CAPACITY_TYPE_SPOT.to_owned(),
            scope: Scope::AnyLaunch,
        };
        self.unavailable().mark_pool(pool, "SpotInterruption");
    }

    fn mark_reservation_exhausted(&self, reservation_id: &str) {
        self.reservations().counts().exhausted(reservation_id);
    }
}
