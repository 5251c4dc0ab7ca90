//! Offerings without capacity. After a launch found none, they are listed as unavailable for [`UNAVAILABLE_FOR`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_model::instance_type::{InstanceType, Offering};

/// How long an offering stays unavailable after a launch found that it has no capacity.
pub const UNAVAILABLE_FOR: Duration = Duration::from_secs(180);

/// An offering, identified by instance type, zone and capacity type.
type Key = (Arc<str>, Arc<str>, Arc<str>);

fn key(name: &Arc<str>, offering: &Offering) -> Key {
    let text = |value: Option<&Arc<str>>| value.cloned().unwrap_or_else(|| Arc::from(""));
    (name.clone(), text(offering.zone()), text(offering.capacity_type()))
}

/// The unavailable offerings, and the instance types in which these offerings are marked.
#[derive(Debug)]
pub(crate) struct UnavailableOfferings {
    all: Arc<Vec<InstanceType>>,
    until: BTreeMap<Key, Timestamp>,
    current: Arc<Vec<InstanceType>>,
}

impl UnavailableOfferings {
    pub(crate) fn new(all: Arc<Vec<InstanceType>>) -> Self {
        Self { current: all.clone(), all, until: BTreeMap::new() }
    }

    pub(crate) fn mark_unavailable(&mut self, name: &Arc<str>, offering: &Offering, now: Timestamp) {
        let span = SignedDuration::try_from(UNAVAILABLE_FOR).unwrap_or(SignedDuration::ZERO);
        let until = now.checked_add(span).unwrap_or(Timestamp::MAX);
        self.until.insert(key(name, offering), until);
        self.rebuild();
    }

    /// The instance types at the given time. The list is shared; it is built again only when the availability of an
    /// offering changes.
    pub(crate) fn types(&mut self, now: Timestamp) -> Arc<Vec<InstanceType>> {
        let before = self.until.len();
        self.until.retain(|_, until| *until > now);
        if self.until.len() != before {
            self.rebuild();
        }
        self.current.clone()
    }

    fn rebuild(&mut self) {
        if self.until.is_empty() {
            self.current = self.all.clone();
            return;
        }
        let mut types = (*self.all).clone();
        for instance_type in &mut types {
            for offering in &mut instance_type.offerings {
                if self.until.contains_key(&key(&instance_type.name, offering)) {
                    offering.available = false;
                }
            }
        }
        self.current = Arc::new(types);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_offering_is_available_again_after_three_minutes() {
        let types = Arc::new(karpenter_catalog::kwok::generic());
        let mut unavailable = UnavailableOfferings::new(types.clone());
        let start = Timestamp::from_second(1_000_000).expect("a time");
        let at = |seconds: i64| start + SignedDuration::from_secs(seconds);
        let refused = &types[3].offerings[1];
        unavailable.mark_unavailable(&types[3].name, refused, start);
        let closed = |current: &[InstanceType]| -> Vec<(String, usize)> {
            let indexed = current.iter().flat_map(|instance_type| {
                let offerings = instance_type.offerings.iter().enumerate();
                offerings.map(|(index, offering)| (instance_type.name.to_string(), index, offering.available))
            });
            indexed.filter(|(_, _, open)| !open).map(|(name, index, _)| (name, index)).collect()
        };
        assert_eq!(closed(&unavailable.types(at(0))), [(types[3].name.to_string(), 1)]);
        assert_eq!(closed(&unavailable.types(at(179))).len(), 1);
        assert_eq!(closed(&unavailable.types(at(180))), []);
    }
}
