//! Default launch settings of each AMI family, and the kubelet features that the family's bootstrap supports.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/resolver.go`.

use karpenter_catalog::aws::DEFAULT_VOLUME_TYPE;
use karpenter_model::quantity::Quantity;

use crate::AmiFamily;

/// Which features an AMI family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureFlags {
    /// Whether the memory reserved for the kubelet depends on the number of pods that ENIs allow, instead of the
    /// configured number of pods.
    pub uses_eni_limited_memory_overhead: bool,
    pub pods_per_core: bool,
    /// Whether ENIs (network interfaces) limit the number of pods.
    pub supports_eni_limited_pod_density: bool,
    /// Whether every field of the kubelet configuration is supported. Otherwise, a field is supported only if it has a
    /// command line flag or a Bottlerocket setting.
    pub supports_arbitrary_kubelet_config: bool,
}

impl FeatureFlags {
    pub fn of(family: AmiFamily) -> Self {
        Self {
            uses_eni_limited_memory_overhead: matches!(
                family,
                AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Custom
            ),
            pods_per_core: family != AmiFamily::Bottlerocket,
            supports_eni_limited_pod_density: !family.is_windows(),
            supports_arbitrary_kubelet_config: family == AmiFamily::Al2023,
        }
    }
}

/// A volume of an instance whose node class has no `blockDeviceMappings`. All such volumes are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultBlockDevice {
    pub device_name: &'static str,
    pub volume_size_gib: i64,
    pub volume_type: &'static str,
    pub encrypted: bool,
}

impl DefaultBlockDevice {
    pub fn volume_size(&self) -> Option<Quantity> {
        format!("{}Gi", self.volume_size_gib).parse().ok()
    }
}

/// The default volumes of an AMI family. For custom AMIs the list is empty, because EC2 uses the AMI's own mappings.
pub fn block_devices(family: AmiFamily) -> Vec<DefaultBlockDevice> {
    let device = |(device_name, volume_size_gib): &(&'static str, i64)| DefaultBlockDevice {
        device_name,
        volume_size_gib: *volume_size_gib,
        volume_type: DEFAULT_VOLUME_TYPE,
        encrypted: true,
    };
    family.default_volumes().iter().map(device).collect()
}

/// Instance metadata options, with values as EC2 spells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataOptions {
    pub http_endpoint: &'static str,
    /// Whether the IPv6 endpoint is enabled; `None` if EC2 does not support the option in the region, see
    /// [`supports_metadata_ipv6`].
    pub http_protocol_ipv6: Option<&'static str>,
    pub http_put_response_hop_limit: i64,
    pub http_tokens: &'static str,
}

/// The options for a node class without metadata options, which exists only if the defaults of the CRD were bypassed.
pub fn metadata_options(region: &str, cluster_is_ipv6: bool) -> MetadataOptions {
    let ipv6 = if cluster_is_ipv6 { "enabled" } else { "disabled" };
    MetadataOptions {
        http_endpoint: "disabled",
        http_protocol_ipv6: supports_metadata_ipv6(region).then_some(ipv6),
        http_put_response_hop_limit: 2,
        http_tokens: "required",
    }
}

/// Whether EC2 accepts `httpProtocolIPv6` in the region.
pub fn supports_metadata_ipv6(region: &str) -> bool {
    const WITHOUT: [&str; 6] = [
        "us-iso-east-1",
        "us-iso-west-1",
        "us-isob-east-1",
        "us-isob-west-1",
        "us-isof-south-1",
        "us-isof-east-1",
    ];
    !WITHOUT.contains(&region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_every_family() {
        for family in AmiFamily::ALL {
            let flags = FeatureFlags::of(family);
            let shown = [
                flags.uses_eni_limited_memory_overhead,
                flags.pods_per_core,
                flags.supports_eni_limited_pod_density,
                flags.supports_arbitrary_kubelet_config,
            ];
            let expected = match family {
                AmiFamily::Al2 | AmiFamily::Custom => [true, true, true, false],
                AmiFamily::Al2023 => [true, true, true, true],
                AmiFamily::Bottlerocket => [false, false, true, false],
                _ => [false, true, false, false],
            };
            assert_eq!(shown, expected, "{family:?}");
        }
    }

    #[test]
    fn default_volumes_of_every_family() {
        for family in AmiFamily::ALL {
            let devices = block_devices(family);
            let shown: Vec<(&str, i64)> =
                devices.iter().map(|device| (device.device_name, device.volume_size_gib)).collect();
            let expected: &[(&str, i64)] = match family {
                AmiFamily::Al2 | AmiFamily::Al2023 => &[("/dev/xvda", 20)],
                AmiFamily::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
                AmiFamily::Custom => &[],
                _ => &[("/dev/sda1", 50)],
            };
            assert_eq!(shown, expected, "{family:?}");
            for device in devices {
                assert_eq!((device.volume_type, device.encrypted), ("gp3", true));
                assert_eq!(
                    device.volume_size().map(|size| size.value_ceil()),
                    Some(device.volume_size_gib << 30)
                );
            }
        }
    }

    #[test]
    fn metadata_ipv6_depends_on_cluster_and_region() {
        for (region, ipv6, expected) in [
            ("us-east-1", false, Some("disabled")),
            ("us-east-1", true, Some("enabled")),
            ("us-iso-east-1", true, None),
            ("us-isof-south-1", false, None),
            ("us-gov-west-1", true, Some("enabled")),
        ] {
            let options = metadata_options(region, ipv6);
            assert_eq!(options.http_protocol_ipv6, expected, "{region} {ipv6}");
            let rest = (options.http_endpoint, options.http_put_response_hop_limit, options.http_tokens);
            assert_eq!(rest, ("disabled", 2, "required"));
        }
    }
}
