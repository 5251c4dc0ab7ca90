//! Converts PodDisruptionBudgets, and determines which of them select a pod.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_disruption::cluster::PodBudget;
use rustc_hash::FxHashMap;

use crate::pod::Pod;
use crate::pods;
use crate::workloads::{name_of, namespace_of};

pub(super) struct PodBudgets<'a> {
    raw: Vec<&'a PodDisruptionBudget>,
    values: Vec<PodBudget>,
    by_namespace: FxHashMap<&'a str, Vec<u32>>,
}

impl<'a> PodBudgets<'a> {
    /// Sorts the budgets by name, so that the result does not depend on the order of the input.
    pub(super) fn new(budgets: &'a [Arc<PodDisruptionBudget>]) -> Self {
        let mut raw: Vec<&PodDisruptionBudget> = budgets.iter().map(AsRef::as_ref).collect();
        raw.sort_by_key(|one| (namespace_of(&one.metadata), name_of(&one.metadata)));
        let values = raw.iter().map(|one| value(one)).collect();
        let mut by_namespace: FxHashMap<&str, Vec<u32>> = FxHashMap::default();
        for (index, one) in raw.iter().enumerate() {
            by_namespace.entry(namespace_of(&one.metadata)).or_default().push(index as u32);
        }
        Self { raw, values, by_namespace }
    }

    /// The budgets that select the pod, ascending.
    pub(super) fn of(&self, pod: &Pod) -> Vec<u32> {
        let in_namespace = self.by_namespace.get(pod.namespace()).map_or(&[][..], Vec::as_slice);
        let selects = |index: &&u32| pods::budget_selects(self.raw[**index as usize], pod);
        in_namespace.iter().filter(selects).copied().collect()
    }

    pub(super) fn raw(&self, index: u32) -> &'a PodDisruptionBudget {
        self.raw[index as usize]
    }

    pub(super) fn into_values(self) -> Vec<PodBudget> {
        self.values
    }
}

fn value(budget: &PodDisruptionBudget) -> PodBudget {
    let allowed = budget.status.as_ref().map_or(0, |status| status.disruptions_allowed);
    PodBudget {
        name: format!("{}/{}", namespace_of(&budget.metadata), name_of(&budget.metadata)).into(),
        disruptions_allowed: u32::try_from(allowed).unwrap_or(0),
        always_allows_unready: pods::always_allows_unready(budget),
        is_fully_blocking: pods::allows_nothing(budget),
    }
}
