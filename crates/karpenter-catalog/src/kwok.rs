//! Catalogs of the kwok provider, which simulates nodes: a generic set computed by formula, or a list in kwok's JSON
//! format.
//!
//! Both catalogs have the same labels and overhead. The caller reads the JSON file.
//!
//! Upstream: `kwok/cloudprovider/helpers.go`.

mod format;
mod generic;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::quantity::Quantity;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::{CPU, MEMORY, PODS, ResourceList};

pub use format::parse;
pub use generic::generic;

use crate::intern::Interner;

pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";

/// The kubelet's default of `maxPods`, used for entries that state no number of pods.
const DEFAULT_PODS: i64 = 110;
const OVERHEAD_MILLI_CPU: i64 = 100;
const OVERHEAD_MEMORY_BYTES: i64 = 10 << 20;

/// The label keys that a NodePool need not define with this catalog, beyond those of the core: kwok's own labels, and
/// every key that an offering has.
pub fn well_known_labels(types: &[InstanceType]) -> BTreeSet<Arc<str>> {
    let own = [INSTANCE_SIZE, INSTANCE_FAMILY, INSTANCE_CPU, INSTANCE_MEMORY].map(Arc::from);
    let offerings = types.iter().flat_map(|resolved| &resolved.offerings);
    own.into_iter().chain(offerings.flat_map(|offering| offering.requirements.keys().cloned())).collect()
}

/// One instance type before labels and defaults are computed.
struct Definition<'a> {
    name: &'a str,
    architecture: &'a str,
    operating_systems: Vec<&'a str>,
    resources: BTreeMap<&'a str, Quantity>,
    offerings: Vec<OfferingDefinition>,
}

struct OfferingDefinition {
    /// The requirements in the order of the file. If two have the same key, the first one determines the type's labels.
    requirements: Vec<Arc<Requirement>>,
    price_per_hour: f64,
    reservation_capacity: Option<u32>,
    reservation_id_label: Option<Arc<str>>,
}

impl Definition<'_> {
    fn resolve(self, interner: &mut Interner) -> InstanceType {
        let text = |name: &str| self.resources.get(name).map(Quantity::to_string).unwrap_or_default();
        let (cpu, memory) = (text(CPU), text(MEMORY));
        let mut requirements = Requirements::new();
        requirements.add_shared(interner.single(labels::INSTANCE_TYPE, self.name));
        requirements.add_shared(interner.single(labels::ARCH, self.architecture));
        requirements.add_shared(interner.any_of(labels::OS, self.operating_systems.iter().copied()));
        for key in [labels::ZONE, labels::CAPACITY_TYPE] {
            requirements.add(Requirement::in_values(interner.get(key), self.offered_values(key)));
        }
        requirements.add_shared(interner.single(INSTANCE_SIZE, size(self.name).unwrap_or(&cpu)));
        requirements.add_shared(interner.single(INSTANCE_FAMILY, family(self.name)));
        requirements.add_shared(interner.single(INSTANCE_CPU, &cpu));
        requirements.add_shared(interner.single(INSTANCE_MEMORY, &memory));

        let mut capacity = ResourceList::new();
        capacity.set(interner.get(PODS), DEFAULT_PODS);
        for (name, quantity) in &self.resources {
            let amount = karpenter_model::resources::capacity_amount(name, quantity);
            capacity.set(interner.get(name), amount);
        }
        let mut overhead = ResourceList::new();
        overhead.set(interner.get(CPU), OVERHEAD_MILLI_CPU);
        overhead.set(interner.get(MEMORY), OVERHEAD_MEMORY_BYTES);

        let offerings = self.offerings.into_iter().map(|offering| Offering {
            requirements: offering.requirements.into_iter().collect(),
            price_per_hour: offering.price_per_hour,
            // The simulation has unlimited capacity, so every offering is available, whatever the file states.
            available: true,
            reservation_capacity: offering.reservation_capacity,
            reservation_id_label: offering.reservation_id_label,
            ..Offering::default()
        });
        InstanceType {
            name: interner.get(self.name),
            requirements,
            offerings: offerings.collect(),
            capacity,
            overhead,
            volume_attachment_limits: BTreeMap::new(),
        }
    }

    /// All values that offerings have for a label key.
    fn offered_values(&self, key: &str) -> BTreeSet<Arc<str>> {
        let first_statements = self
            .offerings
            .iter()
            .filter_map(|offering| offering.requirements.iter().find(|requirement| &*requirement.key == key));
        first_statements.flat_map(|requirement| requirement.values.iter().cloned()).collect()
    }
}

/// The size in the name of an instance type; `None` unless the name has the form `family.size` with a size that EC2
/// uses.
fn size(name: &str) -> Option<&str> {
    const NAMED: [&str; 6] = ["nano", "micro", "small", "medium", "large", "metal"];
    let (family, size) = name.split_once('.')?;
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let is_family = !family.is_empty() && family.chars().all(is_word);
    let is_multiple =
        size.strip_suffix("xlarge").is_some_and(|factor| factor.chars().all(|digit| digit.is_ascii_digit()));
    (is_family && (is_multiple || NAMED.contains(&size))).then_some(size)
}

/// The family in the name of an instance type: the text before the first dot or dash, or, if there is none, the first
/// character.
fn family(name: &str) -> &str {
    match name.split_once(['.', '-']) {
        Some((family, _)) => family,
        None => name.char_indices().nth(1).map_or(name, |(second, _)| &name[..second]),
    }
}
