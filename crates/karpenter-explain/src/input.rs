//! The input of an explanation: the planner's problem, the cluster as disruption uses it, and facts about objects that
//! are in neither of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::settings::Settings;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::problem::{NodePool, Problem};
use karpenter_view::{ObjectRef, Source};
use serde_json::Value;

/// Everything that an explanation may use.
#[derive(Debug, Clone)]
pub struct ExplainInput {
    pub source: Source,
    /// The current time; `None` if the input has no timestamp.
    pub now_secs: Option<i64>,
    pub notes: Vec<String>,
    /// Pending pods, with those that workloads have not created yet.
    pub problem: Problem,
    pub cluster: Cluster,
    pub settings: Settings,
    pub facts: Facts,
}

/// Facts about objects, by name.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Facts about pods, by namespace/name.
    pub pods: BTreeMap<String, PodFacts>,
    pub workloads: BTreeMap<ObjectRef, WorkloadFacts>,
    pub pools: BTreeMap<String, PoolFacts>,
    /// NodePools that launch no nodes, and are therefore not part of the problem.
    pub excluded_pools: Vec<ExcludedPool>,
    /// Node classes of the input. If the input has none of a kind, it is unknown whether a class of this kind exists.
    pub node_classes: Vec<ObjectRef>,
    pub claims: BTreeMap<String, ClaimFacts>,
    /// Facts about PodDisruptionBudgets, by namespace/name.
    pub pod_budgets: BTreeMap<String, PodBudgetFacts>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    /// The workload whose template the pod comes from, or the pod itself.
    pub owner: ObjectRef,
    pub state: PodState,
    pub created_secs: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodState {
    Pending,
    Gated,
    Nominated { node: String },
    Bound { node: String },
    Terminating,
    Finished,
}

/// The parts of a pod template that a fix may change, as they are in the object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadFacts {
    pub tolerations: Vec<Value>,
    pub node_selector: BTreeMap<String, String>,
    pub containers: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolFacts {
    pub node_class: Option<ObjectRef>,
    /// `spec.template.spec.requirements` of the NodePool.
    pub requirements: Vec<Value>,
    /// `spec.disruption.budgets` of the NodePool.
    pub budgets: Vec<BudgetFacts>,
    /// The condition `Ready`, unless it is true or absent.
    pub not_ready: Option<NotReady>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotReady {
    pub reason: String,
    pub message: String,
    pub since_secs: Option<i64>,
}

/// An entry of `spec.disruption.budgets`.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetFacts {
    /// The entry as it is in the NodePool.
    pub raw: Value,
    pub nodes: String,
    /// The reasons to which the entry applies; `None`: all reasons.
    pub reasons: Option<Vec<String>>,
    pub schedule: Option<String>,
    pub duration_secs: Option<i64>,
    /// The number of nodes that the entry currently allows to be disrupted in this NodePool; `None` if the entry is not
    /// active.
    pub allowed: Option<u64>,
}

/// A NodePool that launches no nodes.
#[derive(Debug, Clone)]
pub struct ExcludedPool {
    /// The NodePool as it would be in the problem, but without `catalog`.
    pub pool: NodePool,
    pub instance_types: Arc<Vec<InstanceType>>,
    pub why: Excluded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excluded {
    Static,
    Deleting,
    NotReady,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimFacts {
    pub node_pool: Option<String>,
    pub node_class: Option<ObjectRef>,
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub capacity_type: Option<String>,
    pub price_per_hour: Option<f64>,
    pub provider_id: Option<String>,
    pub node: Option<String>,
    pub created_secs: Option<i64>,
    pub launched_secs: Option<i64>,
    pub registered_secs: Option<i64>,
    pub initialized_secs: Option<i64>,
    pub is_deleting: bool,
    pub nominated_pods: u64,
    /// The message of the first condition that is not true.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodBudgetFacts {
    pub max_unavailable: Option<String>,
    pub min_available: Option<String>,
    /// The number of pods that the PodDisruptionBudget selects and that are not healthy: `status.expectedPods` minus
    /// `status.currentHealthy`.
    pub unhealthy: u64,
}

impl ExplainInput {
    /// The NodePool that launches no nodes.
    pub fn excluded(&self, name: &str) -> Option<&ExcludedPool> {
        self.facts.excluded_pools.iter().find(|one| &*one.pool.name == name)
    }

    /// A copy of the problem in which the NodePool launches nodes.
    pub(crate) fn problem_with(&self, excluded: &ExcludedPool) -> Problem {
        let mut problem = self.problem.clone();
        add_pool(&mut problem, excluded);
        problem
    }
}

pub(crate) fn add_pool(problem: &mut Problem, excluded: &ExcludedPool) {
    problem.catalogs.push(excluded.instance_types.clone());
    let catalog = problem.catalogs.len() - 1;
    problem.pools.push(NodePool { catalog, ..excluded.pool.clone() });
}
