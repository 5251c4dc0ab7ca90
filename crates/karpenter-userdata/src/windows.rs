//! User data of Windows: one PowerShell block that has the custom lines first and the call of the AMI's bootstrap
//! script last.
//!
//! Custom user data is not parsed. `instanceStorePolicy` has no effect, because the bootstrap script does not support
//! it.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/windows.go`.

use crate::input::Input;
use crate::kubelet_args;

pub(crate) fn render(input: &Input) -> String {
    let mut text = String::from("<powershell>\n");
    if !input.custom_text().is_empty() {
        text.push_str(input.custom_text());
        text.push('\n');
    }
    text.push_str(
        r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#,
    );
    text.push('\n');
    text.push_str(&format!(
        "& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'",
        input.cluster_name, input.cluster_endpoint
    ));
    if let Some(ca_bundle) = &input.ca_bundle {
        text.push_str(&format!(" -Base64ClusterCA '{ca_bundle}'"));
    }
    text.push_str(&format!(" -KubeletExtraArgs '{}'", kubelet_args::line(input)));
    if let Some(address) = input.kubelet.cluster_dns.first() {
        text.push_str(&format!(" -DNSClusterIP '{address}'"));
    }
    text.push_str("\n</powershell>");
    text
}
