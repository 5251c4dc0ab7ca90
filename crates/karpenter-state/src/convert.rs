//! Converts Kubernetes objects to the planner's values, one kind per file.
//!
//! Conversion cannot fail. Objects that an API server would reject were rejected before ([`crate::objects`]). If
//! Karpenter would reject a setting of a pod, the converted pod has a refusal, which is reported as the reason why the
//! pod is not planned.

pub(crate) mod affinity;
pub(crate) mod node;
pub(crate) mod node_class;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod requirement;
pub(crate) mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint as RawTaint;
use karpenter_model::labels;
use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{ResourceList, capacity_amount};
use karpenter_model::selector::Labels;
use karpenter_model::taints::{Effect, Taint};

use crate::intern::Interner;

/// Converts deprecated label keys to their stable keys. If an object has both, the stable key has priority over the
/// deprecated one.
pub(crate) fn node_labels(raw: Option<&BTreeMap<String, String>>, interner: &mut Interner) -> Labels {
    let Some(raw) = raw else { return Labels::new() };
    let mut converted = Labels::new();
    for (key, value) in raw {
        let stable = labels::normalize(key);
        if stable != key && raw.contains_key(stable) {
            continue;
        }
        converted.insert(interner.get(stable), interner.get(value));
    }
    converted
}

/// Converts taints with a known effect; an API server does not store others.
pub(crate) fn taints<'a>(raw: impl IntoIterator<Item = &'a RawTaint>, interner: &mut Interner) -> Vec<Taint> {
    let convert = |taint: &RawTaint| {
        Some(Taint {
            key: interner.get(&taint.key),
            value: interner.get(taint.value.as_deref().unwrap_or_default()),
            effect: Effect::parse(&taint.effect)?,
        })
    };
    raw.into_iter().filter_map(convert).collect()
}

/// Converts amounts of capacity, rounded down.
pub(crate) fn capacity<'a>(
    amounts: impl IntoIterator<Item = (&'a str, Quantity)>,
    interner: &mut Interner,
) -> ResourceList {
    amounts
        .into_iter()
        .map(|(name, quantity)| (interner.get(name), capacity_amount(name, &quantity)))
        .collect()
}
