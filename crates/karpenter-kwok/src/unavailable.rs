//! Offerings that could not be had a moment ago: they stay listed, but as unavailable, until their time is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_model::instance_type::{InstanceType, Offering};

/// How long an offering that was refused is not tried again.
pub const UNAVAILABLE_FOR: Duration = Duration::from_secs(180);

/// Instance type, zone, capacity type.
type Key = (Arc<str>, Arc<str>, Arc<str>);

fn key(name: &Arc<str>, offering: &Offering) -> Key {
    let text = |value: Option<&Arc<str>>| value.cloned().unwrap_or_else(|| Arc::from(""));
    (name.clone(), text(offering.zone()), text(offering.capacity_type()))
}

/// What was refused, with the list of types as it looks without it.
#[derive(Debug)]
pub(crate) struct Unavailable {
    all: Arc<Vec<InstanceType>>,
    until: BTreeMap<Key, Timestamp>,
    shown: Arc<Vec<InstanceType>>,
}

impl Unavailable {
    pub(crate) fn new(all: Arc<Vec<InstanceType>>) -> Self {
        Self { shown: all.clone(), all, until: BTreeMap::new() }
    }

    pub(crate) fn refuse(&mut self, name: &Arc<str>, offering: &Offering, now: Timestamp) {
        let span = SignedDuration::try_from(UNAVAILABLE_FOR).unwrap_or(SignedDuration::ZERO);
        let until = now.checked_add(span).unwrap_or(Timestamp::MAX);
        self.until.insert(key(name, offering), until);
        self.rebuild();
    }

    /// The types as of now. The same list is handed out until something about it changes.
    pub(crate) fn types(&mut self, now: Timestamp) -> Arc<Vec<InstanceType>> {
        let before = self.until.len();
        self.until.retain(|_, until| *until > now);
        if self.until.len() != before {
            self.rebuild();
        }
        self.shown.clone()
    }

    fn rebuild(&mut self) {
        if self.until.is_empty() {
            self.shown = self.all.clone();
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
        self.shown = Arc::new(types);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_offering_is_back_after_three_minutes() {
        let types = Arc::new(karpenter_catalog::kwok::generic());
        let mut unavailable = Unavailable::new(types.clone());
        let start = Timestamp::from_second(1_000_000).expect("a time");
        let at = |seconds: i64| start + SignedDuration::from_secs(seconds);
        let refused = &types[3].offerings[1];
        unavailable.refuse(&types[3].name, refused, start);
        let closed = |shown: &[InstanceType]| -> Vec<(String, usize)> {
            let indexed = shown.iter().flat_map(|instance_type| {
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
