//! Windows: one PowerShell block, the user's lines first and the image's bootstrap script last.
//!
//! The user's text is not looked at; local disks have no policy here, because the script knows none.

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
