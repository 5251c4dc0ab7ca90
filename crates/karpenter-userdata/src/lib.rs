//! Renders the user data of every AMI family.
//!
//! The result of [`render`] depends only on [`Input`]: equal inputs give equal bytes. Custom user data of the
//! EC2NodeClass is merged by the rules of the family: as MIME parts for Amazon Linux, TOML for Bottlerocket, and
//! PowerShell for Windows. For custom AMIs it is used unchanged.
//!
//! The crate also has other properties of AMI families that a launch needs: default block devices, metadata options,
//! and which kubelet settings the bootstrap supports. Selecting AMIs, choosing the labels of nodes and validating
//! kubelet configurations is done in `karpenter-aws`.
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

/// The user data of an instance, and warnings about the custom user data in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserData {
    pub text: String,
    pub warnings: Vec<Warning>,
}

impl UserData {
    fn plain(text: String) -> Self {
        Self { text, warnings: Vec::new() }
    }

    /// The user data in base64, which launch templates require.
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.text)
    }

    /// How the size compares with EC2's limit, which applies to the size before base64 encoding.
    pub fn size(&self) -> Size {
        Size::of(&self.text)
    }
}

/// A part of the custom user data that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Warning {
    #[error("user data: unknown setting {path} is ignored")]
    UnknownSetting { path: String },
    #[error("user data: MIME archive without parts is ignored")]
    EmptyArchive,
}

/// Why user data cannot be rendered. Each error except `ClusterCidrMissing` needs a change of the EC2NodeClass or of
/// the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The CIDR is read from the cluster in the background. Until then, the caller reports the node class as not ready.
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
