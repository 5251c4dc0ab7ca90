//! The instance types of each NodePool.
//!
//! NodePools with the same settings share one catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::types::{EC2NodeClass, NodePool};
use karpenter_catalog::aws::AwsNodeClass;
use karpenter_catalog::{aws, kwok};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;

use crate::convert::node_class::aws_node_class;
use crate::notes::Note;

/// The source of instance types.
#[derive(Debug, Clone)]
pub enum CatalogChoice {
    /// A list from the user, in kwok's format, for every NodePool.
    InstanceTypes(Arc<Vec<InstanceType>>),
    /// The generic kwok list for every NodePool.
    Kwok,
    /// The AWS catalog, with the settings of each NodePool's EC2NodeClass applied to these defaults.
    Aws(Box<AwsNodeClass>),
    /// The AWS catalog with these settings for NodePools that reference an EC2NodeClass, and the generic kwok list for
    /// all others.
    ByNodeClass(Box<AwsNodeClass>),
}

const AWS_GROUP: &str = "karpenter.k8s.aws";

pub(crate) struct Catalogs<'a> {
    choice: &'a CatalogChoice,
    classes: &'a [EC2NodeClass],
    made: Vec<(Origin, Arc<Vec<InstanceType>>)>,
    noted_classes: BTreeSet<&'a str>,
}

/// The settings that determine a catalog; equal settings give equal catalogs.
#[derive(PartialEq)]
enum Origin {
    Given,
    Kwok,
    Aws(Box<AwsNodeClass>),
}

impl<'a> Catalogs<'a> {
    pub(crate) fn new(choice: &'a CatalogChoice, classes: &'a [EC2NodeClass]) -> Self {
        Self { choice, classes, made: Vec::new(), noted_classes: BTreeSet::new() }
    }

    /// The index of the NodePool's catalog.
    pub(crate) fn for_pool(&mut self, pool: &NodePool, notes: &mut Vec<Note>) -> usize {
        match self.choice {
            CatalogChoice::InstanceTypes(types) => self.index_of(Origin::Given, || types.clone()),
            CatalogChoice::Kwok => self.kwok(),
            CatalogChoice::Aws(base) => self.aws(base, pool, notes),
            CatalogChoice::ByNodeClass(base) if pool.spec.template.spec.node_class_ref.group == AWS_GROUP => {
                self.aws(base, pool, notes)
            }
            CatalogChoice::ByNodeClass(_) => self.kwok(),
        }
    }

    fn kwok(&mut self) -> usize {
        self.index_of(Origin::Kwok, || Arc::new(kwok::generic()))
    }

    fn aws(&mut self, base: &AwsNodeClass, pool: &NodePool, notes: &mut Vec<Note>) -> usize {
        let reference = &pool.spec.template.spec.node_class_ref;
        let classes = self.classes;
        let found =
            classes.iter().find(|class| class.metadata.name.as_deref() == Some(reference.name.as_str()));
        let class = match found {
            Some(raw) => {
                let (class, skipped) = aws_node_class(raw, base);
                let name = raw.metadata.name.as_deref().unwrap_or_default();
                if self.noted_classes.insert(name) {
                    notes.extend(skipped.into_iter().map(|setting| Note::SettingSkipped {
                        node_class: format!("EC2NodeClass {name}"),
                        path: setting.path,
                        why: setting.why,
                    }));
                }
                class
            }
            None => {
                notes.push(Note::NodeClassMissing {
                    pool: pool.metadata.name.clone().unwrap_or_default(),
                    kind: reference.kind.clone(),
                    name: reference.name.clone(),
                });
                base.clone()
            }
        };
        let types = class.clone();
        self.index_of(Origin::Aws(Box::new(class)), || Arc::new(aws::catalog().resolve(&types)))
    }

    fn index_of(&mut self, origin: Origin, make: impl FnOnce() -> Arc<Vec<InstanceType>>) -> usize {
        if let Some(position) = self.made.iter().position(|(known, _)| *known == origin) {
            return position;
        }
        self.made.push((origin, make()));
        self.made.len() - 1
    }

    /// The label keys of Karpenter's core and of every catalog in use.
    pub(crate) fn well_known(&self) -> BTreeSet<Arc<str>> {
        let mut keys: BTreeSet<Arc<str>> = labels::WELL_KNOWN.into_iter().map(Arc::from).collect();
        for (origin, types) in &self.made {
            match origin {
                Origin::Given | Origin::Kwok => keys.extend(kwok::well_known_labels(types)),
                Origin::Aws(_) => keys.extend(aws::labels::WELL_KNOWN.into_iter().map(Arc::from)),
            }
        }
        keys
    }

    pub(crate) fn into_catalogs(self) -> Vec<Arc<Vec<InstanceType>>> {
        self.made.into_iter().map(|(_, types)| types).collect()
    }
}
