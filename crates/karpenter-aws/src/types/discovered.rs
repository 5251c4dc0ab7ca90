//! The instance types and zones in EC2's last response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_catalog::aws::{self, TypeInfo, TypeLabelBuilder, TypeLabels};

use crate::api::ec2::TypeOffering;

/// An instance type, and the labels that depend only on it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownType {
    pub info: TypeInfo,
    pub labels: TypeLabels,
    /// The zones that offer the instance type, sorted.
    pub zones: Vec<Arc<str>>,
}

/// All instance types by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovered {
    version: u64,
    types: Vec<KnownType>,
    zones: BTreeSet<Arc<str>>,
}

impl Discovered {
    /// Builds the value from EC2's responses; properties that EC2 does not return come from built-in tables. If several
    /// types have the same name, the last one is used.
    pub fn new(types: Vec<TypeInfo>, offerings: Vec<TypeOffering>, version: u64) -> Self {
        let mut zones: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut zones_of: BTreeMap<String, BTreeSet<Arc<str>>> = BTreeMap::new();
        for TypeOffering { instance_type, zone } in offerings {
            let zone: Arc<str> = match zones.get(zone.as_str()) {
                Some(known) => Arc::clone(known),
                None => Arc::from(zone),
            };
            zones.insert(Arc::clone(&zone));
            zones_of.entry(instance_type).or_default().insert(zone);
        }
        let mut by_name: BTreeMap<Arc<str>, TypeInfo> = BTreeMap::new();
        for mut info in types {
            aws::catalog().complete(&mut info);
            by_name.insert(Arc::clone(&info.name), info);
        }
        let mut maker = TypeLabelBuilder::default();
        let types = by_name
            .into_values()
            .map(|info| KnownType {
                labels: maker.make(&info),
                zones: zones_of.remove(&*info.name).unwrap_or_default().into_iter().collect(),
                info,
            })
            .collect();
        Self { version, types, zones }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sorted by name.
    pub fn types(&self) -> &[KnownType] {
        &self.types
    }

    /// All zones that offer some instance type.
    pub fn zones(&self) -> &BTreeSet<Arc<str>> {
        &self.zones
    }

    /// The sorted names of instance types that the built-in tables lack.
    pub fn newer_than_tables(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|known| &*known.info.name).filter(|name| !aws::catalog().knows(name))
    }

    pub fn find(&self, name: &str) -> Option<&KnownType> {
        self.position(name).map(|position| &self.types[position])
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.types.binary_search_by(|known| (*known.info.name).cmp(name)).ok()
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.types == other.types && self.zones == other.zones
    }
}
