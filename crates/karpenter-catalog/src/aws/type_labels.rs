//! Labels that depend only on the instance type.
//!
//! Every label of the provider is present for every instance type: if a type has no value for it, the requirement is
//! `DoesNotExist`, so a NodePool that requires the label does not match.

use karpenter_model::labels as core;
use karpenter_model::requirements::Requirements;

use super::info::TypeInfo;
use super::labels;
use crate::intern::Interner;

pub(super) fn requirements(info: &TypeInfo, interner: &mut Interner) -> Requirements {
    let mut requirements = Requirements::new();
    requirements.add_shared(interner.single(core::INSTANCE_TYPE, &info.name));
    requirements.add_shared(interner.single(core::ARCH, architecture(info)));
    // Tenancy is decided at launch, so both shared and dedicated tenancy are allowed.
    requirements.add_shared(interner.any_of(labels::INSTANCE_TENANCY, ["dedicated", "default"]));
    for (key, value) in values(info) {
        requirements.add_shared(interner.single_or_absent(key, value.as_deref()));
    }
    requirements
}

/// The first of the type's architectures that has a Kubernetes name, by that name.
pub(super) fn architecture(info: &TypeInfo) -> &'static str {
    let known = info.architectures.iter().find_map(|architecture| match &**architecture {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    });
    known.unwrap_or("")
}

/// The label values of an instance type; `None` means that the label does not exist.
fn values(info: &TypeInfo) -> Vec<(&'static str, Option<String>)> {
    let text = |value: &str| Some(value.to_owned());
    let (family, size) = info.family_and_size().unzip();
    let (category, generation) = category_and_generation(&info.name).unzip();
    let nvme = info.instance_storage.as_ref().filter(|storage| &*storage.nvme_support != "unsupported");
    let ebs_mbps = info.ebs.maximum_mbps.filter(|_| &*info.ebs.optimized_support == "default");
    let gpu = if let [gpu] = info.gpus.as_slice() { Some(gpu) } else { None };
    let accelerator = accelerator(info);
    vec![
        (labels::INSTANCE_CATEGORY, category.map(str::to_owned)),
        (labels::INSTANCE_GENERATION, generation.map(str::to_owned)),
        (labels::INSTANCE_FAMILY, family.map(str::to_owned)),
        (labels::INSTANCE_SIZE, size.map(str::to_owned)),
        (labels::INSTANCE_CAPABILITY_FLEX, Some(info.family().contains("-flex").to_string())),
        (labels::INSTANCE_CPU, Some(info.vcpus.to_string())),
        (labels::INSTANCE_CPU_MANUFACTURER, Some(lower_kebab(&info.cpu_manufacturer))),
        (labels::INSTANCE_CPU_CLOCK_MHZ, Some(info.sustained_clock_mhz.unwrap_or(0).to_string())),
        (labels::INSTANCE_MEMORY, Some(info.memory_mib.to_string())),
        (labels::INSTANCE_HYPERVISOR, text(&info.hypervisor)),
        (labels::INSTANCE_ENCRYPTION_IN_TRANSIT, Some(info.encryption_in_transit.to_string())),
        (labels::NITRO_SANDBOX, Some(info.nitro_enclaves.to_string())),
        (labels::INSTANCE_LOCAL_NVME, nvme.and_then(|storage| storage.total_gb).map(|gb| gb.to_string())),
        (labels::INSTANCE_EBS_BANDWIDTH, ebs_mbps.map(|mbps| mbps.to_string())),
        (labels::INSTANCE_NETWORK_BANDWIDTH, info.network_bandwidth_mbps.map(|mbps| mbps.to_string())),
        (labels::INSTANCE_GPU_NAME, gpu.map(|gpu| lower_kebab(&gpu.name))),
        (labels::INSTANCE_GPU_MANUFACTURER, gpu.map(|gpu| lower_kebab(&gpu.manufacturer))),
        (labels::INSTANCE_GPU_COUNT, gpu.map(|gpu| gpu.count.to_string())),
        (labels::INSTANCE_GPU_MEMORY, gpu.map(|gpu| gpu.memory_mib.to_string())),
        (labels::INSTANCE_ACCELERATOR_NAME, accelerator.as_ref().map(|(name, _, _)| name.clone())),
        (labels::INSTANCE_ACCELERATOR_MANUFACTURER, accelerator.as_ref().map(|(_, maker, _)| maker.clone())),
        (labels::INSTANCE_ACCELERATOR_COUNT, accelerator.as_ref().map(|(_, _, count)| count.to_string())),
    ]
}

/// Name, manufacturer and count of the accelerators; `None` unless the type has exactly one kind. EC2 lists Neuron
/// devices also as inference accelerators; the listing as Neuron devices is used.
fn accelerator(info: &TypeInfo) -> Option<(String, String, u32)> {
    match (info.neuron_devices.as_slice(), info.inference_accelerators.as_slice()) {
        ([device], _) => Some((lower_kebab(&device.name), "aws".to_owned(), device.count)),
        ([], [accelerator]) => {
            Some((lower_kebab(&accelerator.name), lower_kebab(&accelerator.manufacturer), accelerator.count))
        }
        _ => None,
    }
}

/// Splits the family name into letters, with an optional memory size such as `-6tb`, and the digits of the generation.
fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let (category, rest) = split_where(name, |character| !character.is_ascii_lowercase())?;
    let after_size = rest.strip_prefix('-').and_then(|rest| {
        let (_, rest) = split_where(rest, |character| !character.is_ascii_digit())?;
        rest.strip_prefix("tb")
    });
    let (generation, rest) =
        split_where(after_size.unwrap_or(rest), |character| !character.is_ascii_digit())?;
    rest.contains('.').then_some((category, generation))
}

/// Splits before the first character for which `ends` is true; `None` if the first part would be empty.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let (first, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    (!first.is_empty()).then_some((first, rest))
}

fn lower_kebab(text: &str) -> String {
    text.replace(' ', "-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::category_and_generation;

    #[test]
    fn category_and_generation_come_from_the_name() {
        let check = |name, expected| assert_eq!(category_and_generation(name), expected, "{name}");
        check("m5.large", Some(("m", "5")));
        check("u-6tb1.56xlarge", Some(("u", "1")));
        check("u7i-12tb.224xlarge", Some(("u", "7")));
        check("hpc7g.16xlarge", Some(("hpc", "7")));
        check("p6-b200.48xlarge", Some(("p", "6")));
        check("x12gd.metal", Some(("x", "12")));
        check("mac-m4.metal", None);
        check("u-6tb.large", None);
        check("7x.large", None);
        check("m5", None);
    }
}
