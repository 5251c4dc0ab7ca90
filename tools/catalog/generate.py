#!/usr/bin/env python3
"""Builds the AWS instance catalog that karpenter-catalog embeds.

Inputs are data only: the instance-type and offering listings bundled with the
Python package moto, and generated tables of the Go modules
github.com/aws/karpenter-provider-aws and
github.com/aws/amazon-vpc-resource-controller-k8s. The output is one binary file;
`columns.py`, which writes it, describes its layout.

The same inputs always give the same bytes. `--check` rebuilds the file in
memory and fails if the checked-in one differs.
"""

import argparse
import importlib.metadata
import pathlib
import sys

import columns
import sources

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "crates" / "karpenter-catalog" / "data" / "aws.bin"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the checked-in file, write nothing")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    arguments = parser.parse_args()

    installed = importlib.metadata.version("moto")
    if installed != sources.MOTO_VERSION:
        sys.exit(f"moto {installed} is installed, {sources.MOTO_VERSION} is needed (see requirements.txt)")

    writer = build(sources.load())
    data = writer.finish()
    if arguments.check:
        if arguments.output.read_bytes() != data:
            sys.exit(f"{arguments.output} differs from the sources; run generate.py and commit the result")
        print(f"{arguments.output.name} is up to date ({len(data)} bytes)")
        return
    arguments.output.write_bytes(data)
    for name, size in writer.column_sizes():
        print(f"{size:8} {name}")
    print(f"{len(data):8} total, {writer.row_count} types")


def build(facts):
    """Converts the loaded data into columns, one value per instance type."""
    names = sorted(facts.instance_types)
    writer = columns.Writer(len(names))
    for name, version, holds in facts.provenance:
        writer.source(name, version, holds)
    for region, zones in sorted(facts.zones.items()):
        writer.region(region, zones)
    for table in facts.price_tables:
        writer.price_table(table.region, table.currency, table.generated_at)
    supplements(facts, writer)

    text = writer.text
    infos = [facts.instance_types[name] for name in names]

    def scalar(column, value):
        writer.scalars(column, [value(info) for info in infos])

    def sequence(column, value):
        writer.sequences(column, [value(info) for info in infos])

    scalar("family", lambda i: text(i["InstanceType"].split(".")[0]))
    scalar("size", lambda i: text(i["InstanceType"].split(".")[1]))
    scalar("vcpus", lambda i: i["VCpuInfo"]["DefaultVCpus"])
    scalar("cores", lambda i: i["VCpuInfo"]["DefaultCores"])
    scalar("threads_per_core", lambda i: i["VCpuInfo"]["DefaultThreadsPerCore"])
    scalar("memory_mib", lambda i: i["MemoryInfo"]["SizeInMiB"])
    scalar("hypervisor", lambda i: text(i.get("Hypervisor", "")))
    scalar("flags", flags)
    sequence("architectures", lambda i: [text(a) for a in i["ProcessorInfo"]["SupportedArchitectures"]])
    scalar("cpu_manufacturer", lambda i: text(i["ProcessorInfo"].get("Manufacturer", "")))
    sequence("cpu_features", lambda i: [text(f) for f in sorted(i["ProcessorInfo"].get("SupportedFeatures", []))])
    scalar("clock_mhz", lambda i: optional(thousandths(i["ProcessorInfo"].get("SustainedClockSpeedInGhz"))))
    sequence("usage_classes", lambda i: [text(u) for u in sorted(i["SupportedUsageClasses"])])
    sequence("placement_strategies", lambda i: [text(s) for s in sorted(i["PlacementGroupInfo"]["SupportedStrategies"])])

    network = lambda i: i["NetworkInfo"]
    scalar("ena_support", lambda i: text(network(i)["EnaSupport"]))
    scalar("efa_interfaces", lambda i: optional(network(i).get("EfaInfo", {}).get("MaximumEfaInterfaces")))
    scalar("ipv4_per_interface", lambda i: network(i)["Ipv4AddressesPerInterface"])
    scalar("ipv6_per_interface", lambda i: network(i)["Ipv6AddressesPerInterface"])
    scalar("default_network_card", lambda i: network(i)["DefaultNetworkCardIndex"])
    sequence("network_cards", network_cards)
    scalar("network_bandwidth_mbps", lambda i: optional(facts.bandwidth_mbps.get(i["InstanceType"])))
    sequence("vpc_limits", lambda i: list(facts.vpc_limits.get(i["InstanceType"], ())))

    sequence("instance_storage", lambda i: instance_storage(i.get("InstanceStorageInfo"), text))
    sequence("ebs", lambda i: ebs(i["EbsInfo"], text))
    sequence("gpus", lambda i: devices(i.get("GpuInfo", {}).get("Gpus", []), text))
    sequence("neuron_devices", lambda i: neuron_devices(i.get("NeuronInfo", {}).get("NeuronDevices", []), text))
    sequence(
        "inference_accelerators",
        lambda i: devices(i.get("InferenceAcceleratorInfo", {}).get("Accelerators", []), text),
    )

    for table in facts.price_tables:
        scalar(f"price_micros/{table.region}", lambda i: table.micros.get(i["InstanceType"], 0))
    for region in sorted(facts.zones):
        offered = facts.offered_zones.get(region)
        if offered is None:
            continue
        order = [zone for zone, _ in facts.zones[region]]
        scalar(
            f"zones/{region}",
            lambda i: sum(1 << order.index(zone) for zone in offered.get(i["InstanceType"], ())),
        )
    return writer


def supplements(facts, writer):
    """Data of the tables about types that are not in the listing; the API of EC2 returns the rest."""
    priced = {name for table in facts.price_tables for name in table.micros}
    named = priced | facts.bandwidth_mbps.keys() | facts.vpc_limits.keys()
    for name in sorted(named - facts.instance_types.keys()):
        writer.supplement(
            name,
            optional(facts.bandwidth_mbps.get(name)),
            facts.vpc_limits.get(name, ()),
            [table.micros.get(name, 0) for table in facts.price_tables],
        )


def flags(info):
    """Boolean properties, lowest bit first. The reader has the same bits in the same order."""
    network = info["NetworkInfo"]
    bits = [
        info["BareMetal"],
        info["CurrentGeneration"],
        info["BurstablePerformanceSupported"],
        network["EncryptionInTransitSupported"],
        network["Ipv6Supported"],
        info["NitroEnclavesSupport"] == "supported",
        info["NitroTpmSupport"] == "supported",
    ]
    return sum(1 << position for position, bit in enumerate(bits) if bit)


def optional(value):
    """0 for an absent value, value + 1 otherwise."""
    return 0 if value is None else value + 1


def thousandths(value):
    return None if value is None else int(value * 1000 + 0.5)


def network_cards(info):
    flat = []
    for position, card in enumerate(info["NetworkInfo"]["NetworkCards"]):
        if card["NetworkCardIndex"] != position:
            raise ValueError(f"{info['InstanceType']}: network cards are not in index order")
        flat += [
            card["MaximumNetworkInterfaces"],
            thousandths(card["BaselineBandwidthInGbps"]),
            thousandths(card["PeakBandwidthInGbps"]),
            int("efa-only" in card["InterfaceTypes"]),
        ]
    return flat


def instance_storage(storage, text):
    if storage is None:
        return []
    flat = [storage["TotalSizeInGB"], text(storage.get("NvmeSupport", ""))]
    for disk in storage["Disks"]:
        flat += [disk["Count"], disk["SizeInGB"], text(disk["Type"])]
    return flat


def ebs(info, text):
    optimized = info.get("EbsOptimizedInfo", {})
    return [
        text(info["EbsOptimizedSupport"]),
        info["MaximumEbsAttachments"],
        optional(optimized.get("BaselineBandwidthInMbps")),
        optional(optimized.get("MaximumBandwidthInMbps")),
    ]


def devices(listed, text):
    flat = []
    for device in listed:
        flat += [text(device["Name"]), text(device["Manufacturer"]), device["Count"], device["MemoryInfo"]["SizeInMiB"]]
    return flat


def neuron_devices(listed, text):
    flat = []
    for device in listed:
        core = device["CoreInfo"]
        flat += [
            text(device["Name"]),
            device["Count"],
            core["Count"],
            core["Version"],
            device["MemoryInfo"]["SizeInMiB"],
        ]
    return flat


if __name__ == "__main__":
    main()
