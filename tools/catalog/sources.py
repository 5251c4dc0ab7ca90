"""Loads the data of the catalog, with its sources."""

import collections
import gzip
import json
import pathlib
import re
import subprocess

MOTO_VERSION = "5.2.5"
PROVIDER_MODULE = "github.com/aws/karpenter-provider-aws"
PROVIDER_VERSION = "v1.14.1"
# The source of upstream's limits of network interfaces; newer than the last release of upstream.
VPC_MODULE = "github.com/aws/amazon-vpc-resource-controller-k8s"
VPC_VERSION = "v1.8.2"

Facts = collections.namedtuple(
    "Facts",
    "provenance instance_types zones offered_zones price_tables bandwidth_mbps vpc_limits",
)
PriceTable = collections.namedtuple("PriceTable", "region currency generated_at micros")


def load():
    # Imported here, because parsing the Go tables does not need moto.
    import moto.ec2
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    resources = pathlib.Path(moto.ec2.__file__).parent / "resources"
    instance_types = {
        name: info
        for name, info in read_json(resources / "instance_types.json.gz").items()
        if passes_discovery_filters(info)
    }

    offered_zones = {}
    for path in sorted((resources / "instance_type_offerings" / "availability-zone").glob("*.json.gz")):
        offered = collections.defaultdict(list)
        for offering in read_json(path):
            offered[offering["InstanceType"]].append(offering["Location"])
        offered_zones[path.name.removesuffix(".json.gz")] = offered
    zones = {}
    for region, offered in offered_zones.items():
        ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones.get(region, [])}
        zones[region] = [(name, ids.get(name, "")) for name in sorted({z for listed in offered.values() for z in listed})]

    provider = pathlib.Path(module_directory(PROVIDER_MODULE, PROVIDER_VERSION))
    vpc = pathlib.Path(module_directory(VPC_MODULE, VPC_VERSION))
    pricing = provider / "pkg" / "providers" / "pricing"
    instancetype = provider / "pkg" / "providers" / "instancetype"
    price_tables = []
    for file, currency in (
        ("zz_generated.pricing_aws.go", "USD"),
        ("zz_generated.pricing_aws_us_gov.go", "USD"),
        ("zz_generated.pricing_aws_cn.go", "CNY"),
    ):
        price_tables += read_prices((pricing / file).read_text(), currency)
    price_tables.sort(key=lambda table: table.region)
    # Regions with prices but without a listing of offerings have zones too.
    for table in price_tables:
        if table.region not in zones:
            zones[table.region] = sorted(
                (zone.name, zone.zone_id) for zone in RegionsAndZonesBackend.zones.get(table.region, [])
            )

    provenance = [
        ("moto", MOTO_VERSION, "instance types, offerings per zone, zone ids"),
        (PROVIDER_MODULE, PROVIDER_VERSION, "on-demand prices, network bandwidth"),
        (VPC_MODULE, VPC_VERSION, "VPC limits"),
    ]
    return Facts(
        provenance,
        instance_types,
        zones,
        offered_zones,
        price_tables,
        read_bandwidth((instancetype / "zz_generated.bandwidth.go").read_text()),
        read_vpc_limits((vpc / "pkg" / "aws" / "vpc" / "limits.go").read_text()),
    )


def passes_discovery_filters(info):
    """Upstream's filter: hardware virtualization on a 64-bit x86 or Arm processor."""
    architectures = info["ProcessorInfo"]["SupportedArchitectures"]
    return "hvm" in info["SupportedVirtualizationTypes"] and bool({"x86_64", "arm64"} & set(architectures))


def read_json(path):
    with gzip.open(path) as file:
        return json.load(file)


def module_directory(module, version):
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"], check=True, capture_output=True, text=True
    )
    return json.loads(answer.stdout)["Dir"]


def read_prices(text, currency):
    generated_at = re.search(r"^// generated at (\S+)", text, re.M).group(1)
    tables = []
    for line in text.splitlines():
        opening = re.match(r'\t"([a-z0-9-]+)": \{$', line)
        if opening:
            tables.append(PriceTable(opening.group(1), currency, generated_at, {}))
            continue
        if line.lstrip().startswith("//"):
            continue
        for name, whole, fraction in re.findall(r'"([a-z0-9-]+\.[a-z0-9-]+)": (\d+)\.(\d{6})\b', line):
            tables[-1].micros[name] = int(whole) * 1_000_000 + int(fraction)
    return tables


def read_bandwidth(text):
    return {name: int(mbps) for name, mbps in re.findall(r'^\s+"([a-z0-9.-]+)": *(\d+),', text, re.M)}


def read_vpc_limits(text):
    """(trunking, branch interfaces, IPv4 addresses per interface) by type name."""
    limits = {}
    for name, body in re.findall(r'^\t"([a-z0-9.-]+)": *\{(.*?)^\t\},', text, re.M | re.S):
        field = lambda key: re.search(rf"\b{key}: *([^,\n]+)", body).group(1)
        limits[name] = (
            int(field("IsTrunkingCompatible") == "true"),
            int(field("BranchInterface")),
            int(field("IPv4PerInterface")),
        )
    return limits
