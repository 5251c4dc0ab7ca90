//! kwok's built-in instance types: every combination of size, memory ratio, operating system and architecture.
//!
//! Upstream: `kwok/tools/gen_instance_types.go`.

use std::collections::BTreeMap;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::quantity::{Quantity, QuantityFormat};
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};

use super::{Definition, OfferingDefinition};
use crate::intern::Interner;

const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// GiB of memory per core, and the prefix of the family with that ratio: c for compute, s for standard, m for memory.
const MEMORY_RATIOS: [(i64, &str); 3] = [(2, "c"), (4, "s"), (8, "m")];
const OPERATING_SYSTEMS: [&str; 2] = ["linux", "windows"];
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

const PODS_PER_CPU: i64 = 16;
const PODS_MAX: i64 = 1024;
const EPHEMERAL_STORAGE_GIB: i64 = 20;
const PRICE_PER_CPU: f64 = 0.025;
const PRICE_PER_GIGABYTE: f64 = 0.001;
const SPOT_PRICE_FACTOR: f64 = 0.7;

/// Upstream generated its list once, and added the parts of a price in random order. For these two types the order
/// changes the last digit, which decides between two types that should have the same price.
const ADDED_MEMORY_FIRST: [&str; 2] = ["c-48x-arm64-windows", "c-192x-arm64-linux"];

/// The 144 generic types, smallest first.
pub fn generic() -> Vec<InstanceType> {
    let mut interner = Interner::default();
    let mut types = Vec::new();
    for cpu in CPUS {
        for (memory_ratio, family) in MEMORY_RATIOS {
            for operating_system in OPERATING_SYSTEMS {
                for architecture in ARCHITECTURES {
                    let name = format!("{family}-{cpu}x-{architecture}-{operating_system}");
                    let memory_gib = cpu * memory_ratio;
                    let definition = Definition {
                        name: &name,
                        architecture,
                        operating_systems: vec![operating_system],
                        resources: resources(cpu, memory_gib),
                        offerings: offerings(price(&name, cpu, memory_gib), &mut interner),
                    };
                    types.push(definition.resolve(&mut interner));
                }
            }
        }
    }
    types
}

fn resources(cpu: i64, memory_gib: i64) -> BTreeMap<&'static str, Quantity> {
    let gib = |count: i64| Quantity::from_value(count << 30, QuantityFormat::BinarySi);
    let count = |count: i64| Quantity::from_value(count, QuantityFormat::DecimalSi);
    BTreeMap::from([
        (CPU, count(cpu)),
        (MEMORY, gib(memory_gib)),
        (PODS, count((cpu * PODS_PER_CPU).min(PODS_MAX))),
        (EPHEMERAL_STORAGE, gib(EPHEMERAL_STORAGE_GIB)),
    ])
}

fn price(name: &str, cpu: i64, memory_gib: i64) -> f64 {
    let memory_price = PRICE_PER_GIGABYTE * (memory_gib << 30) as f64 / 1e9;
    if ADDED_MEMORY_FIRST.contains(&name) {
        // The price is rounded once instead of twice, which gives the digits of upstream's list.
        PRICE_PER_CPU.mul_add(cpu as f64, memory_price)
    } else {
        PRICE_PER_CPU * cpu as f64 + memory_price
    }
}

fn offerings(price: f64, interner: &mut Interner) -> Vec<OfferingDefinition> {
    let mut offerings = Vec::new();
    for zone in ZONES {
        for (capacity_type, factor) in
            [(labels::CAPACITY_TYPE_SPOT, SPOT_PRICE_FACTOR), (labels::CAPACITY_TYPE_ON_DEMAND, 1.0)]
        {
            offerings.push(OfferingDefinition {
                requirements: vec![
                    interner.single(labels::CAPACITY_TYPE, capacity_type),
                    interner.single(labels::ZONE, zone),
                ],
                price_per_hour: price * factor,
                reservation_capacity: None,
                reservation_id_label: None,
            });
        }
    }
    offerings
}
