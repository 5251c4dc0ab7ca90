//! The properties of a NodePool that the rules need.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels::{self, NODEPOOL};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::taints::{Effect, Taint};
use serde_json::Value;

use crate::{Subject, list, pairs, text, title};

pub(crate) struct Pool<'a> {
    pub(crate) input: usize,
    /// The title in findings: `NodePool x`, and the Provisioner from which it was converted, if there is one.
    pub(crate) object: String,
    pub(crate) name: &'a str,
    pub(crate) value: &'a Value,
    pub(crate) provisioner: Option<&'a str>,
    pub(crate) weight: i64,
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    /// The requirements in the NodePool's template, without its labels.
    pub(crate) requirements: Requirements,
    /// What is true for the labels of all nodes of the NodePool: the template's requirements and labels, and the
    /// NodePool's name.
    pub(crate) offered: Requirements,
    /// The taints that keep pods off the nodes, which are all except those with PreferNoSchedule.
    pub(crate) repelling_taints: BTreeSet<Taint>,
    pub(crate) catalog: Option<&'a [InstanceType]>,
}

impl<'a> Pool<'a> {
    pub(crate) fn read(input: usize, subject: &Subject<'a>, catalog: Option<&'a [InstanceType]>) -> Self {
        let value = subject.value;
        let name = text(value, "/metadata/name");
        let labels: Vec<(&str, &str)> = pairs(value, "/spec/template/metadata/labels").collect();
        let requirements: Requirements =
            list(value, "/spec/template/spec/requirements").iter().filter_map(read_requirement).collect();
        let mut offered = requirements.clone();
        for (key, value) in labels.iter().copied().chain([(NODEPOOL, name)]) {
            offered.add(Requirement::in_values(labels::normalize(key), [value]));
        }
        if let Some(provisioner) = subject.provisioner {
            offered.add(Requirement::in_values("karpenter.sh/provisioner-name", [provisioner]));
        }
        let object = match subject.provisioner {
            Some(provisioner) => format!("NodePool {name} (from Provisioner {provisioner})"),
            None => title(value),
        };
        Self {
            input,
            object,
            name,
            value,
            provisioner: subject.provisioner,
            weight: value.pointer("/spec/weight").and_then(Value::as_i64).unwrap_or(0),
            labels,
            requirements,
            offered,
            repelling_taints: list(value, "/spec/template/spec/taints")
                .iter()
                .filter_map(read_repelling_taint)
                .collect(),
            catalog,
        }
    }

    pub(crate) fn subject(&self) -> (usize, &str) {
        (self.input, &self.object)
    }

    /// The instance types that the NodePool can launch for a pod with the requirements `wanted`.
    pub(crate) fn types(&self, wanted: &Requirements) -> impl Iterator<Item = &'a InstanceType> {
        let mut all = self.offered.clone();
        all.extend(wanted);
        self.catalog.unwrap_or_default().iter().filter(move |one| {
            one.requirements.intersects(&all)
                && one
                    .offerings
                    .iter()
                    .any(|offering| offering.is_launchable() && offering.requirements.intersects(&all))
        })
    }
}

pub(crate) fn read_requirement(value: &Value) -> Option<Requirement> {
    let key: Arc<str> = labels::normalize(value.get("key")?.as_str()?).into();
    let operator = Operator::parse(value.get("operator")?.as_str()?)?;
    Some(Requirement::new(key, operator, list(value, "/values").iter().filter_map(Value::as_str)))
}

pub(crate) fn read_repelling_taint(value: &Value) -> Option<Taint> {
    let effect = Effect::parse(text(value, "/effect"))?;
    let is_repelling = effect != Effect::PreferNoSchedule;
    is_repelling.then(|| Taint {
        key: text(value, "/key").into(),
        value: text(value, "/value").into(),
        effect,
    })
}
