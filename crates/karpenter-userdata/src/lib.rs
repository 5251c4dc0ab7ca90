//! What a machine is told when it boots: the user data of every AMI family, as text made from plain values.
//!
//! [`render`] decides the text; it asks nobody, so the same [`Input`] gives the same bytes on every run. What the user
//! wrote is merged in by the family's own rules: MIME parts for Amazon Linux, TOML for Bottlerocket, PowerShell for
//! Windows, nothing at all for custom images.
//!
//! Next to it live the other facts about a family that a launch needs: default block devices, metadata options and
//! what the family's bootstrap can express. Which image a machine boots, which labels a node may carry in the cluster
//! and whether a kubelet configuration is valid is decided elsewhere.

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

/// The text of a machine's user data, and what should be said about how it came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserData {
    pub text: String,
    pub warnings: Vec<Warning>,
}

impl UserData {
    fn plain(text: String) -> Self {
        Self { text, warnings: Vec::new() }
    }

    /// The form a launch template wants.
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.text)
    }

    /// EC2 counts the bytes before base64.
    pub fn size(&self) -> Size {
        Size::of(&self.text)
    }
}

/// Something the user wrote that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Warning {
    #[error("user data: {path} is not a setting that can be passed on, it is left out")]
    UnknownSetting { path: String },
    #[error("user data: the MIME archive has no parts, nothing of it is passed on")]
    EmptyArchive,
}

/// Why there is no user data. Every one of these is something an administrator has to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The caller treats this as a class that is not ready yet: the range is read from the cluster in the background.
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

/// The user data of one machine.
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
