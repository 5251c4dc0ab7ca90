//! AMI aliases such as `al2023@latest`: which SSM parameters hold the AMI ids of a family, and which instance types
//! each AMI is for.
//!
//! Upstream: `pkg/providers/amifamily/{al2,al2023,bottlerocket,windows}.go`

use karpenter_catalog::aws::AmiFamily;
use karpenter_catalog::aws::labels::{INSTANCE_ACCELERATOR_COUNT, INSTANCE_GPU_COUNT};
use karpenter_model::labels::{OS, WINDOWS_BUILD};
use karpenter_model::requirements::{Requirement, Requirements};

use crate::version::Version;

const LATEST: &str = "latest";
/// The first minor version of Kubernetes for which no AL2 AMIs exist.
const AL2_ENDS_AT_MINOR: u32 = 33;
const WINDOWS_2025_STARTS_AT_MINOR: u32 = 35;

/// A parsed alias: `family@version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    pub family: AmiFamily,
    pub version: String,
}

/// The AMI family has no AMIs for the cluster's Kubernetes version. The error is not retried, because only a change of
/// the node class or of the cluster helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedAlias {
    #[error(
        "AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/userguide/\
         kubernetes-versions-standard.html#kubernetes-1-33)"
    )]
    Al2Ended,
    #[error("Windows Server 2025 requires EKS version 1.35 or higher, current version: {0}")]
    Windows2025TooEarly(Version),
}

/// The kind of instance types that an AMI is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Instance types without accelerators.
    Standard,
    Nvidia,
    Neuron,
    /// Windows with this Windows build number.
    Windows(&'static str),
}

impl Variant {
    /// The requirements of the AMI on instance types, except the one on the architecture.
    pub fn requirements(&self) -> Requirements {
        let requirements = match self {
            Self::Standard => vec![
                Requirement::does_not_exist(INSTANCE_ACCELERATOR_COUNT),
                Requirement::does_not_exist(INSTANCE_GPU_COUNT),
            ],
            Self::Nvidia => vec![Requirement::exists(INSTANCE_GPU_COUNT)],
            Self::Neuron => vec![Requirement::exists(INSTANCE_ACCELERATOR_COUNT)],
            Self::Windows(build) => {
                vec![Requirement::in_values(OS, ["windows"]), Requirement::in_values(WINDOWS_BUILD, [*build])]
            }
        };
        requirements.into_iter().collect()
    }
}

/// An SSM parameter that holds an AMI id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasParameter {
    pub name: String,
    /// The variants that the AMI serves; most AMIs serve one, some several.
    pub variants: Vec<Variant>,
    /// Whether the parameter's value changes when a new AMI is released.
    pub is_mutable: bool,
}

impl Alias {
    /// Parses an alias; `None` if the text has no family or no version, which the API server rejects.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, version) = text.split_once('@')?;
        let is_named =
            |family: &AmiFamily| *family != AmiFamily::Custom && family.as_str().eq_ignore_ascii_case(name);
        let family = AmiFamily::ALL.into_iter().find(is_named)?;
        (!version.is_empty()).then(|| Self { family, version: version.to_owned() })
    }

    /// The SSM parameters of the alias, in a fixed order. Some of them may not exist.
    pub fn parameters(&self, kubernetes: Version) -> Result<Vec<AliasParameter>, UnsupportedAlias> {
        match self.family {
            AmiFamily::Al2 if kubernetes.minor >= AL2_ENDS_AT_MINOR => Err(UnsupportedAlias::Al2Ended),
            AmiFamily::Windows2025 if kubernetes.minor < WINDOWS_2025_STARTS_AT_MINOR => {
                Err(UnsupportedAlias::Windows2025TooEarly(kubernetes))
            }
            AmiFamily::Al2 => Ok(self.al2(kubernetes)),
            AmiFamily::Al2023 => Ok(self.al2023(kubernetes)),
            AmiFamily::Bottlerocket => Ok(self.bottlerocket(kubernetes)),
            AmiFamily::Windows2019 => Ok(windows("2019", "10.0.17763", kubernetes)),
            AmiFamily::Windows2022 => Ok(windows("2022", "10.0.20348", kubernetes)),
            AmiFamily::Windows2025 => Ok(windows("2025", "10.0.26100", kubernetes)),
            AmiFamily::Custom => Ok(Vec::new()),
        }
    }

    fn is_latest(&self) -> bool {
        self.version == LATEST
    }

    fn parameter(&self, name: String, variants: &[Variant]) -> AliasParameter {
        AliasParameter { name, variants: variants.to_vec(), is_mutable: self.is_latest() }
    }

    fn al2(&self, kubernetes: Version) -> Vec<AliasParameter> {
        let kinds: [(&str, &str, &[Variant]); 3] = [
            ("amazon-linux-2", "amazon-eks-node", &[Variant::Standard]),
            ("amazon-linux-2-arm64", "amazon-eks-arm64-node", &[Variant::Standard]),
            ("amazon-linux-2-gpu", "amazon-eks-gpu-node", &[Variant::Neuron, Variant::Nvidia]),
        ];
        let parameters = kinds.into_iter().map(|(folder, prefix, variants)| {
            let image = match self.is_latest() {
                true => "recommended".to_owned(),
                false => format!("{prefix}-{kubernetes}-{}", self.version),
            };
            let name = format!("/aws/service/eks/optimized-ami/{kubernetes}/{folder}/{image}/image_id");
            self.parameter(name, variants)
        });
        parameters.collect()
    }

    fn al2023(&self, kubernetes: Version) -> Vec<AliasParameter> {
        let kinds = [
            ("x86_64", "standard", Variant::Standard),
            ("x86_64", "nvidia", Variant::Nvidia),
            ("x86_64", "neuron", Variant::Neuron),
            ("arm64", "standard", Variant::Standard),
            ("arm64", "nvidia", Variant::Nvidia),
        ];
        let parameters = kinds.into_iter().map(|(architecture, word, variant)| {
            let image = match self.is_latest() {
                true => "recommended".to_owned(),
                false => {
                    format!("amazon-eks-node-al2023-{architecture}-{word}-{kubernetes}-{}", self.version)
                }
            };
            let name = format!(
                "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{word}/{image}/image_id"
            );
            self.parameter(name, &[variant])
        });
        parameters.collect()
    }

    fn bottlerocket(&self, kubernetes: Version) -> Vec<AliasParameter> {
        // An alias names a release as v1.2.3, but the parameter has the version without `v`.
        let version = self.version.trim_start_matches('v');
        let kinds: [(&str, &str, &[Variant]); 4] = [
            ("", "x86_64", &[Variant::Standard, Variant::Neuron]),
            ("", "arm64", &[Variant::Standard]),
            ("-nvidia", "x86_64", &[Variant::Nvidia]),
            ("-nvidia", "arm64", &[Variant::Nvidia]),
        ];
        let parameters = kinds.into_iter().map(|(flavor, architecture, variants)| {
            let name = format!(
                "/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavor}/{architecture}/{version}/image_id"
            );
            self.parameter(name, variants)
        });
        parameters.collect()
    }
}

/// The parameters of a Windows alias. Only the latest Windows AMI is published, so the version of the alias is ignored.
fn windows(year: &str, build: &'static str, kubernetes: Version) -> Vec<AliasParameter> {
    let name = format!(
        "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    );
    vec![AliasParameter { name, variants: vec![Variant::Windows(build)], is_mutable: true }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(minor: u32) -> Version {
        Version { major: 1, minor }
    }

    fn names(alias: &str, minor: u32) -> Vec<String> {
        let parameters = Alias::parse(alias).expect(alias).parameters(version(minor)).expect(alias);
        parameters.into_iter().map(|parameter| parameter.name).collect()
    }

    #[test]
    fn alias_is_parsed() {
        for (text, expected) in [
            ("al2@latest", Some((AmiFamily::Al2, "latest"))),
            ("al2023@v20250101", Some((AmiFamily::Al2023, "v20250101"))),
            ("bottlerocket@v1.2.3", Some((AmiFamily::Bottlerocket, "v1.2.3"))),
            ("windows2019@latest", Some((AmiFamily::Windows2019, "latest"))),
            ("windows2022@latest", Some((AmiFamily::Windows2022, "latest"))),
            ("windows2025@latest", Some((AmiFamily::Windows2025, "latest"))),
            ("custom@latest", None),
            ("ubuntu@latest", None),
            ("al2023", None),
            ("al2023@", None),
            ("@latest", None),
            ("", None),
        ] {
            let read = Alias::parse(text);
            let read = read.as_ref().map(|alias| (alias.family, alias.version.as_str()));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn parameters_of_latest_alias() {
        assert_eq!(
            names("al2@latest", 32),
            [
                "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id",
            ]
        );
        assert_eq!(
            names("al2023@latest", 34),
            [
                "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/neuron/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/standard/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id",
            ]
        );
        assert_eq!(
            names("bottlerocket@latest", 34),
            [
                "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/latest/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/x86_64/latest/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/arm64/latest/image_id",
            ]
        );
        for year in ["2019", "2022", "2025"] {
            let expected = format!(
                "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-1.35/image_id"
            );
            assert_eq!(names(&format!("windows{year}@latest"), 35), [expected]);
        }
    }

    #[test]
    fn parameters_of_pinned_alias() {
        assert_eq!(
            names("al2@v20240101", 30),
            [
                "/aws/service/eks/optimized-ami/1.30/amazon-linux-2/amazon-eks-node-1.30-v20240101/image_id",
                "/aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/amazon-eks-arm64-node-1.30-v20240101/image_id",
                "/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/amazon-eks-gpu-node-1.30-v20240101/image_id",
            ]
        );
        assert_eq!(
            names("al2023@v20250501", 33)[4],
            "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/nvidia/\
             amazon-eks-node-al2023-arm64-nvidia-1.33-v20250501/image_id"
        );
        for alias in ["bottlerocket@v1.46.0", "bottlerocket@1.46.0"] {
            assert_eq!(
                names(alias, 33)[3],
                "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/arm64/1.46.0/image_id"
            );
        }
    }

    #[test]
    fn only_parameters_of_latest_alias_are_mutable() {
        for (alias, expected) in [
            ("al2@latest", true),
            ("al2@v20240101", false),
            ("al2023@latest", true),
            ("al2023@v20250501", false),
            ("bottlerocket@latest", true),
            ("bottlerocket@v1.46.0", false),
            ("windows2022@latest", true),
        ] {
            let parameters = Alias::parse(alias).expect(alias).parameters(version(32)).expect(alias);
            assert!(parameters.iter().all(|parameter| parameter.is_mutable == expected), "{alias}");
        }
    }

    #[test]
    fn family_without_amis_for_kubernetes_version_is_unsupported() {
        for (alias, minor, expected) in [
            ("al2@latest", 32, None),
            (
                "al2@latest",
                33,
                Some(
                    "AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/\
                     userguide/kubernetes-versions-standard.html#kubernetes-1-33)",
                ),
            ),
            ("al2@v20240101", 36, Some("AL2 aliases")),
            (
                "windows2025@latest",
                34,
                Some("Windows Server 2025 requires EKS version 1.35 or higher, current version: 1.34"),
            ),
            ("windows2025@latest", 35, None),
            ("windows2022@latest", 26, None),
            ("al2023@latest", 36, None),
        ] {
            let error = Alias::parse(alias).expect(alias).parameters(version(minor)).err();
            let shown = error.map(|error| error.to_string());
            match expected {
                None => assert_eq!(shown, None, "{alias} {minor}"),
                Some(expected) => {
                    assert!(shown.is_some_and(|text| text.starts_with(expected)), "{alias} {minor}")
                }
            }
        }
    }
}
