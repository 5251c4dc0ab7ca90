//! The validation rules of v1alpha5's webhooks. They are checked before the conversion, because an object that the
//! webhooks would have rejected is not converted. All violations of an object are reported.
//!
//! Upstream: karpenter-core v0.31 `pkg/apis/v1alpha5/provisioner_validation.go`.

mod kubelet;
mod provider;
mod provisioner;

pub(crate) use kubelet::check as check_kubelet;
pub(crate) use provider::{SettingsLocation, check as check_provider};
pub(crate) use provisioner::check as check_provisioner;
