//! Global settings of a v1alpha5 installation (ConfigMap `karpenter-global-settings`). They are read once at start, and
//! each applies unless a flag or variable sets it.
//!
//! If the ConfigMap does not exist or may not be read, there are no settings; that is not an error.

use k8s_openapi::api::core::v1::ConfigMap;
use karpenter_controllers::operator::Options;
use karpenter_legacy::{GLOBAL_SETTINGS, GlobalSettings};
use kube::Client;
use kube::api::Api;

use crate::cli::ControllerArguments;

pub(super) async fn read(client: &Client, namespace: &str) -> GlobalSettings {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let data = match maps.get_opt(GLOBAL_SETTINGS).await {
        Ok(Some(map)) => map.data.unwrap_or_default(),
        Ok(None) => return GlobalSettings::default(),
        Err(error) => {
            tracing::warn!(%error, "cannot read v1alpha5 settings in {namespace}/{GLOBAL_SETTINGS}");
            return GlobalSettings::default();
        }
    };
    let settings = GlobalSettings::read(&data);
    tracing::info!(
        "using v1alpha5 settings of {namespace}/{GLOBAL_SETTINGS} where no flag or variable is set"
    );
    for note in &settings.notes {
        tracing::warn!("{GLOBAL_SETTINGS}: {note}");
    }
    settings
}

/// The arguments, with these settings in place of the defaults.
pub(super) fn complete(arguments: &ControllerArguments, settings: &GlobalSettings) -> ControllerArguments {
    let mut arguments = arguments.clone();
    let defaults = Options::default();
    let options = &mut arguments.options;
    fill(&mut options.batch_max_duration, &defaults.batch_max_duration, settings.batch_max_duration);
    fill(&mut options.batch_idle_duration, &defaults.batch_idle_duration, settings.batch_idle_duration);
    #[cfg(feature = "aws")]
    {
        let defaults = karpenter_aws::options::AwsOptions::default();
        let aws = &mut arguments.aws;
        fill(&mut aws.cluster_name, &defaults.cluster_name, settings.cluster_name.clone());
        fill(&mut aws.cluster_endpoint, &defaults.cluster_endpoint, settings.cluster_endpoint.clone());
        fill(&mut aws.cluster_ca_bundle, &defaults.cluster_ca_bundle, settings.cluster_ca_bundle.clone());
        fill(&mut aws.interruption_queue, &defaults.interruption_queue, settings.interruption_queue.clone());
        fill(&mut aws.isolated_vpc, &defaults.isolated_vpc, settings.isolated_vpc);
        fill(&mut aws.reserved_enis, &defaults.reserved_enis, settings.reserved_enis);
        let overhead = settings.vm_memory_overhead_percent;
        fill(&mut aws.vm_memory_overhead_percent, &defaults.vm_memory_overhead_percent, overhead);
    }
    arguments
}

fn fill<T: PartialEq>(place: &mut T, default: &T, old: Option<T>) {
    if place == default
        && let Some(old) = old
    {
        *place = old;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ControllerArguments,
    }

    #[test]
    fn v1alpha5_settings_replace_defaults_only() {
        let settings = GlobalSettings {
            batch_max_duration: Some(Duration::from_secs(30)),
            batch_idle_duration: Some(Duration::from_secs(5)),
            ..GlobalSettings::default()
        };
        let line = Line::try_parse_from(["controller", "--provider", "kwok", "--batch-idle-duration", "2s"]);
        let completed = complete(&line.expect("arguments").arguments, &settings);
        assert_eq!(completed.options.batch_max_duration, Duration::from_secs(30));
        assert_eq!(completed.options.batch_idle_duration, Duration::from_secs(2));
    }
}
