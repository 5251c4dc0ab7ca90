//! The CustomResourceDefinitions of all kinds, as YAML and as compiled schemas.
//!
//! The YAML files are the source of truth: `karpenter crds` prints them and the validation compiles them. Lookups use the
//! full `apiVersion`.

use std::sync::OnceLock;

use crate::validate::ObjectSchema;

/// One CustomResourceDefinition; each serves one version.
#[derive(Debug)]
pub struct Crd {
    /// `<plural>.<group>`, the name of the CRD object.
    pub name: &'static str,
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// The manifest, ready for `kubectl apply`.
    pub yaml: &'static str,
    schema: OnceLock<ObjectSchema>,
}

impl Crd {
    /// `<group>/<version>`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The compiled schema of the served version; compiled on first use.
    pub fn schema(&self) -> &ObjectSchema {
        self.schema.get_or_init(|| {
            ObjectSchema::from_crd_yaml(self.yaml)
                .expect("the embedded CRDs compile; a test compiles each one")
        })
    }
}

macro_rules! crd {
    ($kind:literal, $plural:literal, $group:literal, $version:literal, $namespaced:literal) => {
        crd!($kind, $plural, $group, $version, $namespaced, "")
    };
    ($kind:literal, $plural:literal, $group:literal, $version:literal, $namespaced:literal, $folder:literal) => {
        Crd {
            name: concat!($plural, ".", $group),
            kind: $kind,
            group: $group,
            version: $version,
            namespaced: $namespaced,
            yaml: include_str!(concat!("../crds/", $folder, $group, "_", $plural, ".yaml")),
            schema: OnceLock::new(),
        }
    };
}

static ALL: [Crd; 6] = [
    crd!("NodePool", "nodepools", "karpenter.sh", "v1", false),
    crd!("NodeClaim", "nodeclaims", "karpenter.sh", "v1", false),
    crd!("NodeOverlay", "nodeoverlays", "karpenter.sh", "v1alpha1", false),
    crd!("EC2NodeClass", "ec2nodeclasses", "karpenter.k8s.aws", "v1", false),
    crd!("KWOKNodeClass", "kwoknodeclasses", "karpenter.kwok.sh", "v1alpha1", false),
    crd!("CapacityBuffer", "capacitybuffers", "autoscaling.x-k8s.io", "v1beta1", true),
];

static LEGACY: [Crd; 2] = [
    crd!("Provisioner", "provisioners", "karpenter.sh", "v1alpha5", false, "legacy/"),
    crd!("AWSNodeTemplate", "awsnodetemplates", "karpenter.k8s.aws", "v1alpha1", false, "legacy/"),
];

/// The CRDs of Provisioner and AWSNodeTemplate, which are installed on request only. [`find`] does not return them: manifests
/// are validated as v1, and objects of these kinds are converted first.
pub fn legacy() -> &'static [Crd] {
    &LEGACY
}

/// All CRDs, in the order in which they are applied and printed.
pub fn all() -> &'static [Crd] {
    &ALL
}

/// The CRD that serves this `apiVersion` and `kind`, if it is one of ours.
pub fn find(api_version: &str, kind: &str) -> Option<&'static Crd> {
    let (group, version) = api_version.split_once('/')?;
    ALL.iter().find(|crd| crd.group == group && crd.version == version && crd.kind == kind)
}
