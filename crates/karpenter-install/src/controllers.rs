//! Recognizes Deployments that run this or another implementation of Karpenter, and reads their settings. This module
//! does not write to the cluster.

use std::collections::BTreeMap;

use karpenter_api::labels::Provider;
use kube::Client;
use serde_json::Value;

use crate::Error;
use crate::kinds::{self, DEPLOYMENT, entry, text};
use crate::owner::{Owner, owner};

/// An annotation of a Deployment that `karpenter install` scaled to zero: the number of replicas it had before.
pub(crate) const REPLICAS_BEFORE: &str = "install.karpenter.sh/replicas-before";
/// An annotation of a Deployment that `karpenter install` scaled to zero: the name of the installation that replaces
/// it.
pub(crate) const TAKEN_OVER_BY: &str = "install.karpenter.sh/taken-over-by";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Program {
    /// This program.
    #[default]
    Ours,
    /// Another implementation.
    Other,
}

/// A Deployment that runs Karpenter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub namespace: String,
    pub name: String,
    pub image: String,
    pub program: Program,
    pub provider: Option<Provider>,
    pub owner: Owner,
    pub replicas: i64,
    pub ready: i64,
    /// The number of existing pods, whatever their phase.
    pub pods: i64,
    pub service_account: String,
    /// The controller's environment variables that have literal values, and its flags under the names of their
    /// variables.
    pub variables: BTreeMap<String, String>,
    pub replicas_before: Option<i64>,
    pub taken_over_by: Option<String>,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            name: String::new(),
            image: String::new(),
            program: Program::Ours,
            provider: None,
            owner: Owner::Unsigned,
            replicas: 0,
            ready: 0,
            pods: 0,
            service_account: "default".to_owned(),
            variables: BTreeMap::new(),
            replicas_before: None,
            taken_over_by: None,
        }
    }
}

impl Controller {
    pub fn has_gate(&self, gate: &str) -> bool {
        let gates = self.variables.get("FEATURE_GATES").map(String::as_str).unwrap_or_default();
        let of_gate = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            (name.trim() == gate).then(|| is_true(value.trim()))
        };
        // If a gate is listed twice, its last value applies.
        gates.split(',').filter_map(of_gate).next_back().unwrap_or(false)
    }

    pub fn is_switched_on(&self, variable: &str) -> bool {
        self.variables.get(variable).is_some_and(|value| is_true(value))
    }
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Reads the settings of a Deployment; `None` if it does not run Karpenter.
pub fn recognise(deployment: &Value) -> Option<Controller> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let is_named = entry(deployment, "/metadata/labels", "app.kubernetes.io/name") == Some("karpenter");
    let container = containers.iter().find(|container| {
        let image = text(container, "/image");
        is_controller_image(image)
            || words(container).first().is_some_and(|word| *word == "controller") && is_named
    });
    let container = match container {
        Some(container) => container,
        None if is_named => containers.first()?,
        None => return None,
    };
    let words = words(container);
    let provider_at = words.iter().position(|word| *word == "--provider");
    let provider_word = provider_at
        .and_then(|at| words.get(at + 1).copied())
        .or(words.iter().find_map(|word| word.strip_prefix("--provider=")));
    let is_ours = words.first().is_some_and(|word| *word == "controller") && provider_word.is_some();
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
    let annotation = |key: &str| entry(deployment, "/metadata/annotations", key);
    let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
    Some(Controller {
        namespace: text(deployment, "/metadata/namespace").to_owned(),
        name: kinds::name(deployment).to_owned(),
        image: text(container, "/image").to_owned(),
        program: if is_ours { Program::Ours } else { Program::Other },
        provider: match provider_word {
            Some("aws") => Some(Provider::Aws),
            Some("kwok") => Some(Provider::Kwok),
            _ => None,
        },
        owner: owner(deployment),
        replicas: number("/spec/replicas").unwrap_or(1),
        ready: number("/status/readyReplicas").unwrap_or(0),
        pods: number("/status/replicas").unwrap_or(0),
        service_account: match text(deployment, "/spec/template/spec/serviceAccountName") {
            "" => "default".to_owned(),
            account => account.to_owned(),
        },
        variables: variables
            .filter_map(|variable| {
                Some((
                    variable.get("name")?.as_str()?.to_owned(),
                    variable.get("value")?.as_str()?.to_owned(),
                ))
            })
            .chain(flags(&words))
            .collect(),
        replicas_before: annotation(REPLICAS_BEFORE).and_then(|text| text.parse().ok()),
        taken_over_by: annotation(TAKEN_OVER_BY).map(str::to_owned),
    })
}

fn words(container: &Value) -> Vec<&str> {
    let list = container.get("args").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The values of flags that this crate reads, by the names of the corresponding environment variables.
fn flags(words: &[&str]) -> Vec<(String, String)> {
    let value_of = |flag: &str| {
        let at = words.iter().position(|word| word.split('=').next() == Some(flag))?;
        match words[at].split_once('=') {
            Some((_, value)) => Some(value.to_owned()),
            None => words.get(at + 1).map(|next| (*next).to_owned()).or(Some(String::new())),
        }
    };
    let is_legacy = words.contains(&"--legacy-api").then(|| ("LEGACY_API".to_owned(), "true".to_owned()));
    let gates = value_of("--feature-gates").map(|value| ("FEATURE_GATES".to_owned(), value));
    is_legacy.into_iter().chain(gates).collect()
}

/// Whether an image is `…/karpenter/controller`, from any registry and with any tag or digest.
fn is_controller_image(image: &str) -> bool {
    let path = image.split('@').next().unwrap_or_default();
    let path = match path.rsplit_once('/') {
        Some((folder, last)) => format!("{folder}/{}", last.split(':').next().unwrap_or_default()),
        None => path.split(':').next().unwrap_or_default().to_owned(),
    };
    let mut parts = path.rsplit('/');
    matches!((parts.next(), parts.next()), (Some("controller"), Some("karpenter")) | (Some("karpenter"), _))
}

/// All Deployments of the cluster that run Karpenter, sorted by namespace and name.
pub(crate) async fn find(client: &Client) -> Result<Vec<Controller>, Error> {
    let found = kinds::list(client, DEPLOYMENT, "").await.map_err(Error::api("cannot list Deployments"))?;
    Ok(found.iter().filter_map(recognise).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(labels: Value, image: &str, args: Value) -> Value {
        json!({"metadata": {"name": "karpenter", "namespace": "kube-system", "labels": labels},
            "spec": {"replicas": 2, "template": {"spec": {"serviceAccountName": "karpenter", "containers": [
                {"name": "controller", "image": image, "args": args, "env": [{"name": "A", "value": "true"}]}]}}},
            "status": {"readyReplicas": 1}})
    }

    #[test]
    fn program_is_recognized_by_labels_and_image() {
        let named = json!({"app.kubernetes.io/name": "karpenter"});
        let upstream =
            deployment(named.clone(), "public.ecr.aws/karpenter/controller:1.8.1@sha256:ab", json!(null));
        let upstream = recognise(&upstream).expect("recognised");
        assert_eq!((upstream.program, upstream.provider), (Program::Other, None));
        assert_eq!((upstream.replicas, upstream.ready), (2, 1));
        let ours = deployment(
            json!({}),
            "registry.example:5000/karpenter/controller",
            json!(["controller", "--provider", "kwok"]),
        );
        let ours = recognise(&ours).expect("recognised");
        assert_eq!((ours.program, ours.provider), (Program::Ours, Some(Provider::Kwok)));
        assert!(ours.is_switched_on("A") && !ours.is_switched_on("B"));
        let renamed = deployment(
            named,
            "registry.example/tools/k:1",
            json!([
                "controller",
                "--provider=aws",
                "--legacy-api",
                "--feature-gates=NodeOverlay=true,CapacityBuffer=false"
            ]),
        );
        let renamed = recognise(&renamed).expect("recognised");
        assert_eq!(renamed.provider, Some(Provider::Aws));
        assert!(renamed.is_switched_on("LEGACY_API"), "a flag sets the variable too");
        assert!(renamed.has_gate("NodeOverlay") && !renamed.has_gate("CapacityBuffer"));
        assert!(!renamed.has_gate("NodeRepair"));
        for foreign in ["nginx", "registry.example/karpenter/webhook:1", "karpenter-docs"] {
            assert_eq!(recognise(&deployment(json!({}), foreign, json!(null))), None, "{foreign}");
        }
    }
}
