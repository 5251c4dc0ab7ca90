//! The CustomResourceDefinitions of all kinds, as YAML and as compiled schemas.
//!
//! The YAML files are the source of truth: `karpenter crds` prints them, and validation compiles their schemas. CRDs
//! are looked up by full `apiVersion` and kind.

use std::sync::OnceLock;

use crate::validate::ObjectSchema;

/// One CustomResourceDefinition. Each of ours serves exactly one version.
#[derive(Debug)]
pub struct Crd {
    /// The name of the CRD object: `<plural>.<group>`.
    pub name: &'static str,
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    /// Whether objects of the kind are namespaced.
    pub namespaced: bool,
    /// The manifest of the CRD, which `kubectl apply` accepts.
    pub yaml: &'static str,
    schema: OnceLock<ObjectSchema>,
}

impl Crd {
    /// The served `apiVersion`: `<group>/<version>`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The compiled schema of the served version; the first call compiles it.
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

/// The CRDs of Provisioner and AWSNodeTemplate, which are installed only on request. [`find`] does not return them,
/// because manifests are validated as v1 objects, and Provisioners and AWSNodeTemplates are converted first.
pub fn legacy() -> &'static [Crd] {
    &LEGACY
}

/// All CRDs except those of [`legacy`], in the order in which they are applied and printed.
pub fn all() -> &'static [Crd] {
    &ALL
}

/// The CRD that serves this `apiVersion` and `kind`; `None` if Karpenter has no such kind.
pub fn find(api_version: &str, kind: &str) -> Option<&'static Crd> {
    let (group, version) = api_version.split_once('/')?;
    ALL.iter().find(|crd| crd.group == group && crd.version == version && crd.kind == kind)
}
