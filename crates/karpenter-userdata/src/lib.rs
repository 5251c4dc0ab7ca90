//! User data of every AMI family.
//!
//! [`render`] is a function of [`Input`] only: equal inputs give equal bytes. Custom user data of the EC2NodeClass is merged
//! by the rules of the family: MIME parts for Amazon Linux, TOML for Bottlerocket, PowerShell for Windows. For custom AMIs
//! it is used unchanged.
//!
//! The crate also holds other properties of an AMI family that a launch needs: default block devices, metadata options, and
//! which kubelet settings the bootstrap supports. It does not select AMIs, decide labels of nodes or validate kubelet
//! configurations.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap`.

pub mod bottlerocket;
pub mod defaults;
pub mod input;
pub mod prepare;
pub mod size;

mod al2;
mod al2023;
mod kubelet_args;
mod mime;
mod windows;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use input::{Input, Kubelet};
pub use karpenter_catalog::aws::AmiFamily;
pub use mime::MimeError;
pub use size::{Size, SizeVerdict};

/// User data of an instance, and warnings about the custom user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserData {
    pub text: String,
    pub warnings: Vec<Warning>,
}

impl UserData {
    fn plain(text: String) -> Self {
        Self { text, warnings: Vec::new() }
    }

    /// Base64, as launch templates require.
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.text)
    }

    /// EC2's limit applies to the size before base64.
    pub fn size(&self) -> Size {
        Size::of(&self.text)
    }
}

/// Custom user data without effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Warning {
    #[error("user data: unknown setting {path} is ignored")]
    UnknownSetting { path: String },
    #[error("user data: MIME archive without parts is ignored")]
    EmptyArchive,
}

/// Why user data cannot be rendered. Each needs a change of the EC2NodeClass or the cluster, except `ClusterCidrMissing`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The caller reports the node class as not ready: the CIDR is read from the cluster in the background.
    #[error("resolving cluster CIDR")]
    ClusterCidrMissing,
    #[error("decoding the cluster's CA bundle: {reason}")]
    CaBundle { reason: String },
    #[error("parsing custom user data: {0}")]
    Mime(#[from] MimeError),
    #[error("invalid user data: line {line}: {reason}")]
    Toml { line: usize, reason: String },
    #[error("invalid user data: {path} must be {expected}, not {found}")]
    TomlType { path: String, expected: &'static str, found: &'static str },
    #[error("writing user data: {reason}")]
    Write { reason: String },
}

/// Renders the user data of one instance.
pub fn render(input: &Input) -> Result<UserData, UserDataError> {
    match input.family {
        AmiFamily::Al2 => al2::render(input),
        AmiFamily::Al2023 => al2023::render(input),
        AmiFamily::Bottlerocket => bottlerocket::render(input),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Ok(UserData::plain(windows::render(input)))
        }
        AmiFamily::Custom => Ok(UserData::plain(input.custom_user_data.clone().unwrap_or_default())),
    }
}
