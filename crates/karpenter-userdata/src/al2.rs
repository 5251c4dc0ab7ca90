//! User data of Amazon Linux 2, and of AMIs with its bootstrap script: a MIME archive that has the custom parts first
//! and, as the last part, the call of the script.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/eksbootstrap.go`.

use crate::input::Input;
use crate::mime::{Archive, Part, SHELL_SCRIPT};
use crate::{UserData, UserDataError, kubelet_args};

pub(crate) fn render(input: &Input) -> Result<UserData, UserDataError> {
    let (mut archive, warnings) = match input.custom_text() {
        "" => (Archive::default(), Vec::new()),
        text if Archive::is_archive(text) => Archive::read(text)?,
        script => (Archive::of(Part::new(SHELL_SCRIPT, script)), Vec::new()),
    };
    archive.push(Part::new(SHELL_SCRIPT, script(input)));
    Ok(UserData { text: archive.write(), warnings })
}

fn script(input: &Input) -> String {
    // bootstrap.sh does not accept `=` between an argument's name and its value.
    let mut text = format!(
        "#!/bin/bash -xe\n\
         exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n\
         /etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' ",
        input.cluster_name, input.cluster_endpoint
    );
    if let Some(ca_bundle) = &input.ca_bundle {
        text.push_str(&format!("--b64-cluster-ca '{ca_bundle}'"));
    }
    if input.kubelet.is_ipv6() {
        text.push_str(" \\\n--ip-family ipv6");
    }
    if let Some(address) = input.kubelet.cluster_dns.first() {
        text.push_str(&format!(" \\\n--dns-cluster-ip '{address}'"));
    }
    if input.kubelet.max_pods.is_some() {
        text.push_str(" \\\n--use-max-pods false");
    }
    text.push_str(&format!(" \\\n--kubelet-extra-args '{}'", kubelet_args::line(input)));
    if input.instance_store_raid0 {
        text.push_str(" \\\n--local-disks raid0");
    }
    text
}
