//! Decodes the columns of the catalog file into [`TypeInfo`] values, price tables and zones.
//!
//! Column names and the order of items in sequences must agree with `tools/catalog/generate.py`. A value out of range
//! is an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::{Columns, Reader};
use super::info::{Accelerator, Disk, Ebs, InstanceStorage, NetworkCard, NeuronDevice, TypeInfo, VpcLimits};
use super::tables::Supplement;
use super::{AwsCatalog, AwsZone, PriceTable, Source};
use crate::CatalogError;

const MAGIC: &[u8] = b"KCATAWS2";

pub(super) fn decode(data: &'static [u8]) -> Result<AwsCatalog, CatalogError> {
    let mut reader = Reader::new(data);
    if reader.bytes(MAGIC.len())? != MAGIC {
        return Err(reader.damaged("the file does not start with the magic bytes of the catalog"));
    }
    let strings = list(&mut reader, |reader| reader.string().map(Arc::from))?;
    let sources = list(&mut reader, |reader| {
        Ok(Source { name: reader.string()?, version: reader.string()?, holds: reader.string()? })
    })?;
    let regions = list(&mut reader, |reader| {
        let region = reader.string()?;
        let zones = list(reader, |reader| {
            let name = reader.string()?.to_owned();
            let id = reader.string()?;
            Ok(AwsZone { name, id: (!id.is_empty()).then(|| id.to_owned()) })
        })?;
        Ok((region, zones))
    })?;
    let price_headers =
        list(&mut reader, |reader| Ok((reader.string()?, reader.string()?, reader.string()?)))?;
    let supplements = list(&mut reader, |reader| supplement(reader, price_headers.len()))?;
    let columns = Columns::read(&mut reader)?;
    if !reader.is_at_end() {
        return Err(reader.damaged("there is data after the last column"));
    }

    let types = Rows { strings: &strings, columns: &columns }.types()?;
    if !types.is_sorted_by(|earlier, later| earlier.name < later.name) {
        return Err(CatalogError::Damaged {
            at: 0,
            what: "type names are not in ascending order".to_owned(),
        });
    }
    let mut price_tables = BTreeMap::new();
    for (region, currency, generated_at) in price_headers {
        let micros = columns.scalars(&format!("price_micros/{region}"))?.to_vec();
        price_tables.insert(region, PriceTable { region, currency, generated_at, micros });
    }
    let mut offered_zones = BTreeMap::new();
    for name in columns.names() {
        if let Some(region) = name.strip_prefix("zones/") {
            offered_zones.insert(region, columns.scalars(name)?.to_vec());
        }
    }
    Ok(AwsCatalog {
        sources,
        types,
        regions: regions.into_iter().collect(),
        price_tables,
        offered_zones,
        supplements: supplements.into_iter().collect(),
    })
}

fn supplement(
    reader: &mut Reader,
    price_table_count: usize,
) -> Result<(&'static str, Supplement), CatalogError> {
    let name = reader.string()?;
    let network_bandwidth_mbps = optional(reader.varint()?)?;
    let limits = list(reader, Reader::varint)?;
    let prices_micros = (0..price_table_count).map(|_| reader.varint()).collect::<Result<Vec<u64>, _>>()?;
    let vpc_limits = vpc_limits(&limits)?;
    Ok((name, Supplement { network_bandwidth_mbps, vpc_limits, prices_micros }))
}

fn vpc_limits(items: &[u64]) -> Result<Option<VpcLimits>, CatalogError> {
    let mut limits = groups(items, |[trunking, branch, ipv4]| {
        Ok(VpcLimits {
            trunking: trunking != 0,
            branch_interfaces: narrow(branch)?,
            ipv4_addresses_per_interface: narrow(ipv4)?,
        })
    })?;
    Ok(limits.pop())
}

fn list<T>(
    reader: &mut Reader,
    read: impl Fn(&mut Reader) -> Result<T, CatalogError>,
) -> Result<Vec<T>, CatalogError> {
    (0..reader.count()?).map(|_| read(reader)).collect()
}

/// The decoded columns, and the strings that they refer to by index.
struct Rows<'a> {
    strings: &'a [Arc<str>],
    columns: &'a Columns,
}

impl Rows<'_> {
    fn types(&self) -> Result<Vec<TypeInfo>, CatalogError> {
        let scalars = |name| self.columns.scalars(name);
        let sequences = |name| self.columns.sequences(name);
        let (families, sizes) = (scalars("family")?, scalars("size")?);
        let (vcpus, cores) = (scalars("vcpus")?, scalars("cores")?);
        let threads_per_core = scalars("threads_per_core")?;
        let memory_mib = scalars("memory_mib")?;
        let hypervisors = scalars("hypervisor")?;
        let flags = scalars("flags")?;
        let architectures = sequences("architectures")?;
        let cpu_manufacturers = scalars("cpu_manufacturer")?;
        let cpu_features = sequences("cpu_features")?;
        let clock_mhz = scalars("clock_mhz")?;
        let usage_classes = sequences("usage_classes")?;
        let placement_strategies = sequences("placement_strategies")?;
        let ena_support = scalars("ena_support")?;
        let efa_interfaces = scalars("efa_interfaces")?;
        let ipv4_per_interface = scalars("ipv4_per_interface")?;
        let ipv6_per_interface = scalars("ipv6_per_interface")?;
        let default_network_card = scalars("default_network_card")?;
        let network_cards = sequences("network_cards")?;
        let network_bandwidth = scalars("network_bandwidth_mbps")?;
        let vpc_limit_rows = sequences("vpc_limits")?;
        let instance_storage = sequences("instance_storage")?;
        let ebs = sequences("ebs")?;
        let gpus = sequences("gpus")?;
        let neuron_devices = sequences("neuron_devices")?;
        let inference_accelerators = sequences("inference_accelerators")?;

        (0..self.columns.row_count())
            .map(|row| {
                let (family, size) = (self.string(families[row])?, self.string(sizes[row])?);
                // The flags have the bit order in which `tools/catalog/generate.py` writes them.
                let flag = |bit: u32| flags[row] >> bit & 1 == 1;
                Ok(TypeInfo {
                    name: Arc::from(format!("{family}.{size}")),
                    vcpus: narrow(vcpus[row])?,
                    cores: narrow(cores[row])?,
                    threads_per_core: narrow(threads_per_core[row])?,
                    memory_mib: memory_mib[row],
                    hypervisor: self.string(hypervisors[row])?,
                    bare_metal: flag(0),
                    current_generation: flag(1),
                    burstable: flag(2),
                    encryption_in_transit: flag(3),
                    ipv6: flag(4),
                    nitro_enclaves: flag(5),
                    nitro_tpm: flag(6),
                    architectures: self.string_list(architectures.row(row))?,
                    cpu_manufacturer: self.string(cpu_manufacturers[row])?,
                    cpu_features: self.string_list(cpu_features.row(row))?,
                    sustained_clock_mhz: optional(clock_mhz[row])?,
                    usage_classes: self.string_list(usage_classes.row(row))?,
                    placement_strategies: self.string_list(placement_strategies.row(row))?,
                    ena_support: self.string(ena_support[row])?,
                    efa_interfaces: optional(efa_interfaces[row])?,
                    ipv4_addresses_per_interface: narrow(ipv4_per_interface[row])?,
                    ipv6_addresses_per_interface: narrow(ipv6_per_interface[row])?,
                    default_network_card: narrow(default_network_card[row])?,
                    network_cards: groups(network_cards.row(row), |[interfaces, baseline, peak, efa]| {
                        Ok(NetworkCard {
                            interfaces_max: narrow(interfaces)?,
                            baseline_mbps: narrow(baseline)?,
                            peak_mbps: narrow(peak)?,
                            efa: efa != 0,
                        })
                    })?,
                    network_bandwidth_mbps: optional(network_bandwidth[row])?,
                    vpc_limits: vpc_limits(vpc_limit_rows.row(row))?,
                    instance_storage: self.instance_storage(instance_storage.row(row))?,
                    ebs: self.ebs(ebs.row(row))?,
                    gpus: self.accelerators(gpus.row(row))?,
                    neuron_devices: groups(
                        neuron_devices.row(row),
                        |[name, count, cores, core_version, memory_mib]| {
                            Ok(NeuronDevice {
                                name: self.string(name)?,
                                count: narrow(count)?,
                                cores_per_device: narrow(cores)?,
                                core_version: narrow(core_version)?,
                                memory_mib,
                            })
                        },
                    )?,
                    inference_accelerators: self.accelerators(inference_accelerators.row(row))?,
                })
            })
            .collect()
    }

    fn string(&self, index: u64) -> Result<Arc<str>, CatalogError> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.strings.get(index).cloned().ok_or_else(|| inconsistent("a string index is out of range"))
    }

    fn string_list(&self, indexes: &[u64]) -> Result<Vec<Arc<str>>, CatalogError> {
        indexes.iter().map(|index| self.string(*index)).collect()
    }

    fn accelerators(&self, items: &[u64]) -> Result<Vec<Accelerator>, CatalogError> {
        groups(items, |[name, manufacturer, count, memory_mib]| {
            Ok(Accelerator {
                name: self.string(name)?,
                manufacturer: self.string(manufacturer)?,
                count: narrow(count)?,
                memory_mib,
            })
        })
    }

    fn instance_storage(&self, items: &[u64]) -> Result<Option<InstanceStorage>, CatalogError> {
        let (total_gb, nvme_support, disks) = match items {
            [] => return Ok(None),
            [total_gb, nvme_support, disks @ ..] => (*total_gb, *nvme_support, disks),
            _ => return Err(inconsistent("instance storage has no NVMe field")),
        };
        let disks = groups(disks, |[count, size_gb, kind]| {
            Ok(Disk { count: narrow(count)?, size_gb, kind: self.string(kind)? })
        })?;
        Ok(Some(InstanceStorage {
            total_gb: Some(total_gb),
            nvme_support: self.string(nvme_support)?,
            disks,
        }))
    }

    fn ebs(&self, items: &[u64]) -> Result<Ebs, CatalogError> {
        match items {
            [optimized_support, attachments, baseline, maximum] => Ok(Ebs {
                optimized_support: self.string(*optimized_support)?,
                attachments_max: narrow(*attachments)?,
                baseline_mbps: optional(*baseline)?,
                maximum_mbps: optional(*maximum)?,
            }),
            _ => Err(inconsistent("the EBS column does not have four values")),
        }
    }
}

/// Splits a flat sequence into groups of `N` items each.
fn groups<T, const N: usize>(
    items: &[u64],
    make: impl Fn([u64; N]) -> Result<T, CatalogError>,
) -> Result<Vec<T>, CatalogError> {
    let (whole, rest) = items.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(inconsistent("a sequence is truncated"));
    }
    whole.iter().map(|group| make(*group)).collect()
}

fn narrow(value: u64) -> Result<u32, CatalogError> {
    u32::try_from(value).map_err(|_| inconsistent("a value does not fit 32 bits"))
}

/// The generator writes 0 for an absent value and value + 1 otherwise.
fn optional(value: u64) -> Result<Option<u32>, CatalogError> {
    value.checked_sub(1).map(narrow).transpose()
}

fn inconsistent(what: &str) -> CatalogError {
    CatalogError::Inconsistent { what: what.to_owned() }
}
