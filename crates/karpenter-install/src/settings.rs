//! The settings of an installation, and their validation. This module does not read the cluster.

use std::collections::BTreeMap;

use karpenter_api::labels::Provider;

use crate::quantity::is_positive;

/// Which parts are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// CRDs, RBAC, and a controller that runs in the cluster.
    Everything,
    /// CRDs, and RBAC for a controller that runs outside of the cluster.
    WithoutController,
    /// CRDs only.
    OnlyDefinitions,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub provider: Provider,
    pub scope: Scope,
    /// Whether CRDs are applied; if not, they must exist already.
    pub with_definitions: bool,
    /// The name of the installation, which is the name, or the beginning of the name, of all its objects.
    pub name: String,
    pub namespace: String,
    pub image: Option<String>,
    pub replicas: u32,
    pub cpu: String,
    pub memory: String,
    /// The environment variables of the controller, under the names that `karpenter controller --help` lists.
    pub variables: BTreeMap<String, String>,
    pub account_annotations: BTreeMap<String, String>,
    /// Whether the controller serves the v1alpha5 API (Provisioner and AWSNodeTemplate).
    pub serves_legacy: bool,
}

impl Settings {
    pub fn new(provider: Provider) -> Self {
        Self {
            provider,
            scope: Scope::Everything,
            with_definitions: true,
            name: "karpenter".to_owned(),
            namespace: "kube-system".to_owned(),
            image: None,
            replicas: 2,
            cpu: "1".to_owned(),
            memory: "1Gi".to_owned(),
            variables: BTreeMap::new(),
            account_annotations: BTreeMap::new(),
            serves_legacy: false,
        }
    }

    pub fn brings_controller(&self) -> bool {
        self.scope == Scope::Everything
    }

    /// Whether feature gates or default topology spreads need additional permissions.
    pub(crate) fn needs_features(&self) -> bool {
        let gates = self.variables.get("FEATURE_GATES").map(String::as_str).unwrap_or_default();
        let is_on = |gate: &str| {
            gates.split(',').filter_map(|pair| pair.split_once('=')).any(|(name, value)| {
                name.trim().eq_ignore_ascii_case(gate) && value.trim().eq_ignore_ascii_case("true")
            })
        };
        let spreads = self.variables.get("SCHEDULER_CONFIG").is_some_and(|config| !config.trim().is_empty());
        ["NodeOverlay", "CapacityBuffer", "PodDeletionCostManagement"].into_iter().any(is_on) || spreads
    }

    /// All errors in the settings, one line each.
    pub fn mistakes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.scope == Scope::OnlyDefinitions && !self.with_definitions {
            lines.push("--crds-only together with --skip-crds leaves nothing to do".to_owned());
        }
        if self.scope == Scope::OnlyDefinitions {
            return lines;
        }
        // The longest name derived from the installation's name ends with `-features`.
        if !is_dns_label(&self.name) || self.name.len() > 50 {
            lines.push(format!(
                "--name {:?}: valid are up to 50 lower-case letters, digits and hyphens",
                self.name
            ));
        }
        if !is_dns_label(&self.namespace) {
            lines.push(format!(
                "--namespace {:?}: valid are up to 63 lower-case letters, digits and hyphens",
                self.namespace
            ));
        }
        if !self.brings_controller() {
            return lines;
        }
        match self.image.as_deref() {
            None | Some("") => lines.push(
                "--image is missing: no image is published, so build one (docs/install/image.md), push it to a registry \
                 that nodes can pull from, and name it; or use --without-controller or --crds-only"
                    .to_owned(),
            ),
            Some(image) if !is_image(image) => lines.push(format!(
                "--image {image:?}: valid is REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST, without spaces or scheme"
            )),
            Some(image) if image.starts_with("public.ecr.aws/karpenter/") => lines.push(format!(
                "--image {image} is upstream Karpenter, which does not accept the arguments of this program; \
                 install it with its own chart"
            )),
            Some(_) => {}
        }
        if self.replicas == 0 || self.replicas > 10 {
            lines.push(format!("--replicas {}: valid are 1 to 10; one of them is the leader", self.replicas));
        }
        for (flag, amount) in [("--cpu", &self.cpu), ("--memory", &self.memory)] {
            if !is_positive(amount) {
                lines.push(format!("{flag} {amount:?}: valid is an amount above zero, such as 1 or 1Gi"));
            }
        }
        if self.provider == Provider::Aws
            && self.variables.get("CLUSTER_NAME").is_none_or(|name| name.trim().is_empty())
        {
            lines.push(
                "--cluster-name is missing: with --provider aws, instances have it in their tags".to_owned(),
            );
        }
        for name in self.variables.keys().filter(|name| !is_variable(name)) {
            lines.push(format!(
                "--env {name:?}: valid are letters, digits and underscores, not beginning with a digit"
            ));
        }
        lines
    }
}

fn is_dns_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_image(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@+".contains(&byte);
    text.bytes().all(is_allowed)
        && !text.contains("//")
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
}

fn is_variable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Settings {
        Settings {
            image: Some("registry.example/karpenter/controller:1".to_owned()),
            ..Settings::new(Provider::Kwok)
        }
    }

    fn variable(settings: &mut Settings, name: &str, value: &str) {
        settings.variables.insert(name.to_owned(), value.to_owned());
    }

    #[test]
    fn every_error_names_its_flag() {
        assert_eq!(good().mistakes(), Vec::<String>::new());
        type Damage = fn(&mut Settings);
        let cases: [(&str, Damage); 11] = [
            ("--image", |settings| settings.image = None),
            ("--image", |settings| settings.image = Some("https://registry.example/x".to_owned())),
            ("--image", |settings| settings.image = Some("a b".to_owned())),
            ("upstream Karpenter", |settings| {
                settings.image = Some("public.ecr.aws/karpenter/controller:1.8.0".to_owned())
            }),
            ("--name", |settings| settings.name = "Karpenter".to_owned()),
            ("--namespace", |settings| settings.namespace = "-x".to_owned()),
            ("--replicas", |settings| settings.replicas = 0),
            ("--cpu", |settings| settings.cpu = "much".to_owned()),
            ("--memory", |settings| settings.memory = "0".to_owned()),
            ("--cluster-name", |settings| settings.provider = Provider::Aws),
            ("--env", |settings| variable(settings, "1A", "x")),
        ];
        for (flag, damage) in cases {
            let mut settings = good();
            damage(&mut settings);
            let lines = settings.mistakes();
            assert_eq!(lines.len(), 1, "{flag}: {lines:?}");
            assert!(lines[0].contains(flag), "{flag}: {lines:?}");
        }
    }

    #[test]
    fn settings_of_parts_that_are_not_installed_are_not_validated() {
        let definitions =
            Settings { scope: Scope::OnlyDefinitions, name: "X".to_owned(), ..Settings::new(Provider::Aws) };
        assert!(definitions.mistakes().is_empty());
        assert!(Settings { with_definitions: false, ..definitions }.mistakes()[0].contains("--skip-crds"));
        let outside = Settings { scope: Scope::WithoutController, ..Settings::new(Provider::Aws) };
        assert!(outside.mistakes().is_empty());
    }

    #[test]
    fn features_are_read_from_the_variables() {
        let with = |name: &str, value: &str| {
            let mut settings = good();
            variable(&mut settings, name, value);
            settings.needs_features()
        };
        assert!(with("FEATURE_GATES", "SpotToSpotConsolidation=true, NodeOverlay=true"));
        assert!(with("FEATURE_GATES", "PodDeletionCostManagement=true"));
        assert!(with("SCHEDULER_CONFIG", "podTopologySpread: {}"));
        assert!(!with("FEATURE_GATES", "NodeOverlay=false,NodeRepair=true"));
        assert!(!good().needs_features());
    }
}
