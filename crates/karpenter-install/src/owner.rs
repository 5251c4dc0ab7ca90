//! Whose an object is, by what is written on it, and what stands against writing over it. Decides only.

use serde_json::Value;

use crate::MANAGER;
use crate::controllers::{Controller, Program};
use crate::kinds::{self, entry, text, title};
use crate::leases::Lease;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Installed by us under this name.
    Us(String),
    Helm {
        release: String,
        namespace: String,
    },
    /// Nobody signed it.
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

/// What an installation meets on a cluster.
#[derive(Debug, Default)]
pub struct Met<'a> {
    /// Each object that will be applied, with what is there in its place.
    pub objects: Vec<(&'a Value, Option<Value>)>,
    pub controllers: &'a [Controller],
    /// Leases that somebody holds at this moment.
    pub held_leases: &'a [Lease],
    /// Whether a controller will run afterwards.
    pub brings_controller: bool,
    pub name: &'a str,
    pub namespace: &'a str,
    pub takes_over: bool,
}

/// Why the installation must not go on; each line says what to do.
pub fn objections(met: &Met<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut of_helm = Vec::new();
    let mut unsigned = Vec::new();
    for (wanted, found) in &met.objects {
        let Some(found) = found else { continue };
        let is_definition = wanted["kind"] == kinds::DEFINITION.kind;
        if wanted["kind"] == kinds::NAMESPACE.kind {
            continue;
        }
        match owner(found) {
            Owner::Us(_) => {}
            // Definitions are the same API whoever brings them, so they may change hands when asked to.
            Owner::Helm { .. } if is_definition && met.takes_over => {}
            Owner::Helm { release, namespace } => of_helm.push((title(wanted), release, namespace)),
            Owner::Unsigned if is_definition || met.takes_over => {}
            Owner::Unsigned => unsigned.push(title(wanted)),
        }
    }
    if let Some((_, release, namespace)) = of_helm.first() {
        let names: Vec<&str> = of_helm.iter().map(|(title, ..)| title.as_str()).collect();
        let advice = if met.takes_over {
            format!("choose names of our own with --name {}-rs", met.name)
        } else {
            "either go on with Helm (charts/karpenter reads the same values), or swap with --take-over: other \
             controllers are scaled to zero and scaled up again by karpenter uninstall --nodes hand-over"
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
            "{} {} there already and not ours: --take-over makes {} ours, --name chooses other names",
            listed(&names),
            if names.len() == 1 { "is" } else { "are" },
            if names.len() == 1 { "it" } else { "them" },
        ));
    }
    if met.brings_controller && !met.takes_over {
        lines.extend(rivals(met));
    }
    lines
}

/// Controllers that would work at the same time.
fn rivals(met: &Met<'_>) -> Vec<String> {
    let is_this = |controller: &Controller| {
        controller.owner == Owner::Us(met.name.to_owned())
            || (controller.namespace == met.namespace && controller.name == met.name)
    };
    let others: Vec<&Controller> =
        met.controllers.iter().filter(|controller| controller.replicas > 0 && !is_this(controller)).collect();
    let mut lines: Vec<String> = others
        .iter()
        .map(|controller| {
            let advice = match &controller.owner {
                Owner::Us(name) => {
                    format!("use --name {name}, or take it away: karpenter uninstall --name {name} --nodes hand-over")
                }
                _ => "--take-over scales it to zero, and karpenter uninstall --nodes hand-over scales it up again"
                    .to_owned(),
            };
            format!(
                "{} runs as Deployment {}/{} with {} replicas, and two must not work at once: {advice}",
                match controller.program {
                    Program::Ours => "another copy of this Karpenter",
                    Program::Other => "another Karpenter",
                },
                controller.namespace,
                controller.name,
                controller.replicas,
            )
        })
        .collect();
    for lease in met.held_leases {
        let is_explained = lease.namespace == met.namespace
            || met.controllers.iter().any(|controller| controller.namespace == lease.namespace);
        if !is_explained {
            lines.push(format!(
                "{} holds the lease {}/{} and works outside of the cluster: stop it, or install into its namespace \
                 with --namespace {}",
                lease.holder, lease.namespace, lease.name, lease.namespace
            ));
        }
    }
    lines
}

/// The first few of many names.
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
    fn signatures_are_read() {
        assert_eq!(owner(&object("Role", ours())), Owner::Us("karpenter".to_owned()));
        let release = Owner::Helm { release: "karpenter".to_owned(), namespace: "kube-system".to_owned() };
        assert_eq!(owner(&object("Role", helm())), release);
        assert_eq!(owner(&object("Role", json!({}))), Owner::Unsigned);
    }

    /// Kind, what is written on the one that is there, whether taking over was asked for, and whether it goes on.
    #[test]
    fn what_is_there_may_stand_against_it() {
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
            let met = Met {
                objects: vec![(&wanted, found.clone())],
                name: "karpenter",
                takes_over,
                ..Met::default()
            };
            let lines = objections(&met);
            assert_eq!(lines.is_empty(), goes_on, "{kind} {found:?} {takes_over}: {lines:?}");
        }
    }

    #[test]
    fn a_second_controller_is_refused_unless_it_stands_still_or_is_taken_over() {
        let met = |controllers: &[Controller], takes_over| {
            let met = Met {
                controllers,
                brings_controller: true,
                name: "karpenter",
                namespace: "kube-system",
                takes_over,
                ..Met::default()
            };
            objections(&met)
        };
        let helm = Owner::Helm { release: "k".to_owned(), namespace: "elsewhere".to_owned() };
        assert!(met(&[controller(helm.clone(), 2)], false)[0].contains("--take-over"));
        assert!(met(&[controller(helm.clone(), 2)], true).is_empty());
        assert!(met(&[controller(helm, 0)], false).is_empty());
        assert!(met(&[controller(Owner::Us("other".to_owned()), 1)], false)[0].contains("--name other"));
        assert!(met(&[controller(Owner::Us("karpenter".to_owned()), 1)], false).is_empty());
    }

    #[test]
    fn somebody_outside_of_the_cluster_is_noticed_by_the_lease() {
        let lease = |namespace: &str| Lease {
            namespace: namespace.to_owned(),
            name: "karpenter-leader-election".to_owned(),
            holder: "laptop_1".to_owned(),
            ..Lease::default()
        };
        let met = |leases: &[Lease]| {
            let met = Met {
                held_leases: leases,
                brings_controller: true,
                name: "karpenter",
                namespace: "kube-system",
                ..Met::default()
            };
            objections(&met)
        };
        assert!(met(&[lease("kube-system")]).is_empty());
        assert!(met(&[lease("karpenter")])[0].contains("laptop_1"));
    }
}
