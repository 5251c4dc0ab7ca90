//! Determines the owner of an object from its labels and annotations, and finds conflicts of an installation with
//! existing objects. The functions are pure.

use serde_json::Value;

use crate::MANAGER;
use crate::controllers::{Controller, Program};
use crate::kinds::{self, entry, text, title};
use crate::leases::Lease;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// `karpenter install` created the object, for the installation with this name.
    Us(String),
    Helm {
        release: String,
        namespace: String,
    },
    /// No known owner.
    Unsigned,
}

pub fn owner(object: &Value) -> Owner {
    let label = |key: &str| entry(object, "/metadata/labels", key);
    let annotation = |key: &str| entry(object, "/metadata/annotations", key);
    let manager = label("app.kubernetes.io/managed-by");
    if manager == Some(MANAGER) {
        return Owner::Us(label("app.kubernetes.io/instance").unwrap_or_default().to_owned());
    }
    let release = annotation("meta.helm.sh/release-name");
    if release.is_some() || manager == Some("Helm") {
        return Owner::Helm {
            release: release.or(label("app.kubernetes.io/instance")).unwrap_or("karpenter").to_owned(),
            namespace: annotation("meta.helm.sh/release-namespace")
                .unwrap_or(text(object, "/metadata/namespace"))
                .to_owned(),
        };
    }
    Owner::Unsigned
}

/// The existing objects and controllers with which an installation may conflict.
#[derive(Debug, Default)]
pub struct Existing<'a> {
    /// Each object to apply, with the existing object of the same kind and name.
    pub objects: Vec<(&'a Value, Option<Value>)>,
    pub controllers: &'a [Controller],
    /// The Leases that are held at present.
    pub held_leases: &'a [Lease],
    /// Whether the installation has a controller in the cluster.
    pub brings_controller: bool,
    pub name: &'a str,
    pub namespace: &'a str,
    pub takes_over: bool,
}

/// Why the installation must not continue; each line states a fix.
pub fn objections(existing: &Existing<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut of_helm = Vec::new();
    let mut unsigned = Vec::new();
    for (wanted, found) in &existing.objects {
        let Some(found) = found else { continue };
        let is_definition = wanted["kind"] == kinds::DEFINITION.kind;
        if wanted["kind"] == kinds::NAMESPACE.kind {
            continue;
        }
        match owner(found) {
            Owner::Us(_) => {}
            // CRDs are the same for every installer, so with `--take-over` they are adopted.
            Owner::Helm { .. } if is_definition && existing.takes_over => {}
            Owner::Helm { release, namespace } => of_helm.push((title(wanted), release, namespace)),
            Owner::Unsigned if is_definition || existing.takes_over => {}
            Owner::Unsigned => unsigned.push(title(wanted)),
        }
    }
    if let Some((_, release, namespace)) = of_helm.first() {
        let names: Vec<&str> = of_helm.iter().map(|(title, ..)| title.as_str()).collect();
        let advice = if existing.takes_over {
            format!("choose other names with --name {}-rs", existing.name)
        } else {
            "either continue with Helm (charts/karpenter reads the same values), or use --take-over: other \
             controllers are scaled to zero, and karpenter uninstall --nodes hand-over restores them"
                .to_owned()
        };
        lines.push(format!(
            "{} belong{} to the Helm release {release} in {namespace}: {advice}",
            listed(&names),
            if names.len() == 1 { "s" } else { "" },
        ));
    }
    if !unsigned.is_empty() {
        let names: Vec<&str> = unsigned.iter().map(String::as_str).collect();
        lines.push(format!(
            "{} {} not installed by this command: --take-over adopts {}, --name chooses other names",
            listed(&names),
            if names.len() == 1 { "is" } else { "are" },
            if names.len() == 1 { "it" } else { "them" },
        ));
    }
    if existing.brings_controller && !existing.takes_over {
        lines.extend(other_controllers(existing));
    }
    lines
}

/// The controllers that would be active at the same time as the new one.
fn other_controllers(existing: &Existing<'_>) -> Vec<String> {
    let is_this = |controller: &Controller| {
        controller.owner == Owner::Us(existing.name.to_owned())
            || (controller.namespace == existing.namespace && controller.name == existing.name)
    };
    let others: Vec<&Controller> = existing
        .controllers
        .iter()
        .filter(|controller| controller.replicas > 0 && !is_this(controller))
        .collect();
    let mut lines: Vec<String> = others
        .iter()
        .map(|controller| {
            let advice = match &controller.owner {
                Owner::Us(name) => {
                    format!("use --name {name}, or remove it: karpenter uninstall --name {name} --nodes hand-over")
                }
                _ => "--take-over scales it to zero, and karpenter uninstall --nodes hand-over restores it"
                    .to_owned(),
            };
            format!(
                "{} runs as Deployment {}/{} with {} replicas, and two controllers must not be active: {advice}",
                match controller.program {
                    Program::Ours => "another installation of this Karpenter",
                    Program::Other => "another Karpenter",
                },
                controller.namespace,
                controller.name,
                controller.replicas,
            )
        })
        .collect();
    for lease in existing.held_leases {
        let is_explained = lease.namespace == existing.namespace
            || existing.controllers.iter().any(|controller| controller.namespace == lease.namespace);
        if !is_explained {
            lines.push(format!(
                "{} holds the lease {}/{} and is active outside of the cluster: stop it, or install into its namespace \
                 with --namespace {}",
                lease.holder, lease.namespace, lease.name, lease.namespace
            ));
        }
    }
    lines
}

/// The first names of a list, followed by how many more there are.
pub(crate) fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0..=SHOWN => names.join(", "),
        count => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, metadata: Value) -> Value {
        let mut metadata = metadata;
        metadata["name"] = json!("karpenter");
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    }

    fn helm() -> Value {
        json!({"labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "karpenter", "meta.helm.sh/release-namespace": "kube-system"}})
    }

    fn ours() -> Value {
        json!({"labels": {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/instance": "karpenter"}})
    }

    fn controller(owner: Owner, replicas: i64) -> Controller {
        Controller {
            namespace: "elsewhere".to_owned(),
            name: "karpenter".to_owned(),
            owner,
            replicas,
            ..Controller::default()
        }
    }

    #[test]
    fn owner_is_read_from_labels_and_annotations() {
        assert_eq!(owner(&object("Role", ours())), Owner::Us("karpenter".to_owned()));
        let release = Owner::Helm { release: "karpenter".to_owned(), namespace: "kube-system".to_owned() };
        assert_eq!(owner(&object("Role", helm())), release);
        assert_eq!(owner(&object("Role", json!({}))), Owner::Unsigned);
    }

    /// Columns: kind, metadata of the existing object, whether `--take-over` is passed, whether the installation
    /// continues.
    #[test]
    fn objects_of_other_owners_conflict() {
        let cases = [
            ("ClusterRole", None, false, true),
            ("ClusterRole", Some(ours()), false, true),
            ("ClusterRole", Some(json!({})), false, false),
            ("ClusterRole", Some(json!({})), true, true),
            ("ClusterRole", Some(helm()), false, false),
            ("ClusterRole", Some(helm()), true, false),
            ("CustomResourceDefinition", Some(json!({})), false, true),
            ("CustomResourceDefinition", Some(helm()), false, false),
            ("CustomResourceDefinition", Some(helm()), true, true),
            ("Namespace", Some(helm()), false, true),
        ];
        for (kind, found, takes_over, goes_on) in cases {
            let wanted = object(kind, ours());
            let found = found.map(|metadata| object(kind, metadata));
            let existing = Existing {
                objects: vec![(&wanted, found.clone())],
                name: "karpenter",
                takes_over,
                ..Existing::default()
            };
            let lines = objections(&existing);
            assert_eq!(lines.is_empty(), goes_on, "{kind} {found:?} {takes_over}: {lines:?}");
        }
    }

    #[test]
    fn active_controller_conflicts_unless_taken_over() {
        let existing = |controllers: &[Controller], takes_over| {
            let existing = Existing {
                controllers,
                brings_controller: true,
                name: "karpenter",
                namespace: "kube-system",
                takes_over,
                ..Existing::default()
            };
            objections(&existing)
        };
        let helm = Owner::Helm { release: "k".to_owned(), namespace: "elsewhere".to_owned() };
        assert!(existing(&[controller(helm.clone(), 2)], false)[0].contains("--take-over"));
        assert!(existing(&[controller(helm.clone(), 2)], true).is_empty());
        assert!(existing(&[controller(helm, 0)], false).is_empty());
        assert!(existing(&[controller(Owner::Us("other".to_owned()), 1)], false)[0].contains("--name other"));
        assert!(existing(&[controller(Owner::Us("karpenter".to_owned()), 1)], false).is_empty());
    }

    #[test]
    fn controller_outside_of_the_cluster_conflicts_by_its_lease() {
        let lease = |namespace: &str| Lease {
            namespace: namespace.to_owned(),
            name: "karpenter-leader-election".to_owned(),
            holder: "laptop_1".to_owned(),
            ..Lease::default()
        };
        let existing = |leases: &[Lease]| {
            let existing = Existing {
                held_leases: leases,
                brings_controller: true,
                name: "karpenter",
                namespace: "kube-system",
                ..Existing::default()
            };
            objections(&existing)
        };
        assert!(existing(&[lease("kube-system")]).is_empty());
        assert!(existing(&[lease("karpenter")])[0].contains("laptop_1"));
    }
}
