//! Relaxation of preferences: drops the preferences of a pod one at a time in a fixed order until it fits.
//!
//! Level 0 is the pod as written, or without preferences if the preference policy is to ignore them. Each further level
//! drops one more preference.
//!
//! Upstream: pkg/controllers/provisioning/scheduling/preferences.go.

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::PreferencePolicy;
use karpenter_model::taints::Toleration;

/// The pod at level 0.
pub(crate) fn base(spec: &PodSpec, policy: PreferencePolicy) -> PodSpec {
    let mut base = spec.clone();
    if policy == PreferencePolicy::Ignore {
        base.preferred_terms.clear();
        base.preferred_affinity.clear();
        base.preferred_anti_affinity.clear();
        base.spread.retain(|spread| spread.hard);
    }
    base
}

/// The pod of the next level, with one more preference dropped; `None` if the pod has no preferences left.
pub(crate) fn next(spec: &PodSpec, any_preferred_taint: bool) -> Option<PodSpec> {
    let mut relaxed = spec.clone();
    if relaxed.required_terms.len() > 1 {
        relaxed.required_terms.remove(0);
        return Some(relaxed);
    }
    if !relaxed.preferred_affinity.is_empty() {
        relaxed.preferred_affinity.remove(0);
        return Some(relaxed);
    }
    if !relaxed.preferred_anti_affinity.is_empty() {
        relaxed.preferred_anti_affinity.remove(0);
        return Some(relaxed);
    }
    if !relaxed.preferred_terms.is_empty() {
        relaxed.preferred_terms.remove(0);
        return Some(relaxed);
    }
    if let Some(position) = relaxed.spread.iter().position(|spread| !spread.hard) {
        relaxed.spread.swap_remove(position);
        return Some(relaxed);
    }
    let toleration = Toleration::prefer_no_schedule();
    if any_preferred_taint && !relaxed.tolerations.contains(&toleration) {
        relaxed.tolerations.push(toleration);
        return Some(relaxed);
    }
    None
}
