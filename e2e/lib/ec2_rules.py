"""Requests that EC2 rejects although its service model allows them: a table of invalid combinations with EC2's error codes.
Requests are parameters as wire_model.py reads them; templates are looked up by name."""

import base64
import collections

USER_DATA_BYTES_MAX = 16 * 1024
TAGS_MAX = 50
OVERRIDES_MAX = 300
TEMPLATES_PER_PAGE_MAX = 200
RESOURCES_PER_CALL_MAX = 1000

COMBINATION, VALUE = "InvalidParameterCombination", "InvalidParameterValue"
IP_FIELDS = ("AssociatePublicIpAddress", "Ipv4PrefixCount", "Ipv6PrefixCount", "Ipv6AddressCount", "PrimaryIpv6",
             "SecondaryPrivateIpAddressCount", "ConnectionTrackingSpecification")


def repeated(values):
    return [value for value, count in collections.Counter(values).items() if count > 1]


def interface_rules(interfaces):
    places = [(one.get("NetworkCardIndex", 0), one.get("DeviceIndex")) for one in interfaces]
    if repeated(places):
        yield VALUE, f"Each network interface requires a unique device index, {repeated(places)} are not"
    if interfaces and (0, 0) not in places:
        yield VALUE, "A network interface with device index 0 on network card 0 is required"
    for one, place in zip(interfaces, places):
        if one.get("InterfaceType", "interface") not in ("interface", "efa", "efa-only"):
            yield VALUE, f"Invalid interface type {one['InterfaceType']}"
        if one.get("InterfaceType") == "efa-only":
            if place == (0, 0):
                yield VALUE, "The primary network interface cannot be an EFA-only interface"
            given = [field for field in IP_FIELDS if field in one]
            if given:
                yield VALUE, f"EFA-only interfaces have no IP addresses, {given} cannot be set"
        if "Ipv4PrefixCount" in one and "SecondaryPrivateIpAddressCount" in one:
            yield COMBINATION, "Prefixes and secondary addresses cannot be used together"
    if len(interfaces) > 1 and any(one.get("AssociatePublicIpAddress") for one in interfaces):
        yield COMBINATION, "A public IP address cannot be associated with several network interfaces"


def disk_rules(mappings):
    if repeated(one.get("DeviceName") for one in mappings):
        yield "InvalidBlockDeviceMapping", "Device names must be unique"
    for one in mappings:
        disk = one.get("Ebs", {})
        kind = disk.get("VolumeType", "gp2")
        if "Throughput" in disk and kind != "gp3":
            yield COMBINATION, f"The parameter throughput is not supported for {kind} volumes"
        if "Iops" in disk and kind not in ("gp3", "io1", "io2"):
            yield COMBINATION, f"The parameter iops is not supported for {kind} volumes"
        if kind in ("io1", "io2") and "Iops" not in disk:
            yield "MissingParameter", f"The parameter iops must be specified for {kind} volumes"
        if "KmsKeyId" in disk and disk.get("Encrypted") is False:
            yield "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set"
        if "VolumeSize" not in disk and "SnapshotId" not in disk:
            yield "MissingParameter", "The request must contain the parameter size or snapshotId"


def tag_rules(specifications):
    kinds = [one["ResourceType"] for one in specifications]
    if repeated(kinds):
        yield VALUE, f"Duplicate resource types in tag specifications: {repeated(kinds)}"
    for one in specifications:
        keys = [tag["Key"] for tag in one.get("Tags", [])]
        if not keys:
            yield "MissingParameter", f"The tag specification of {one['ResourceType']} has no tags"
        if repeated(keys):
            yield VALUE, f"Duplicate tag keys: {repeated(keys)}"
        if any(key.lower().startswith("aws:") for key in keys):
            yield VALUE, "Tag keys starting with 'aws:' are reserved for internal use"
        if len(keys) > TAGS_MAX:
            yield "TagLimitExceeded", f"More than {TAGS_MAX} tags"


def create_launch_template(asked, _):
    data = asked["LaunchTemplateData"]
    interfaces = data.get("NetworkInterfaces", [])
    if interfaces and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        yield COMBINATION, "Network interfaces and an instance-level security groups may not be specified on the same request"
    yield from interface_rules(interfaces)
    yield from disk_rules(data.get("BlockDeviceMappings", []))
    yield from tag_rules(data.get("TagSpecifications", []))
    yield from tag_rules(asked.get("TagSpecifications", []))
    if len(base64.b64decode(data.get("UserData", ""))) > USER_DATA_BYTES_MAX:
        yield VALUE, f"User data is limited to {USER_DATA_BYTES_MAX} bytes"
    hops = data.get("MetadataOptions", {}).get("HttpPutResponseHopLimit", 1)
    if not 1 <= hops <= 64:
        yield VALUE, "HttpPutResponseHopLimit must be between 1 and 64"
    reservation = data.get("CapacityReservationSpecification", {})
    target = reservation.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    if target and reservation.get("CapacityReservationPreference") == "none":
        yield COMBINATION, "A capacity reservation target cannot be used with the preference none"
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    if market == "capacity-block" and not target:
        yield "MissingParameter", "A capacity block needs the id of its capacity reservation"
    if market == "spot" and target:
        yield COMBINATION, "Spot Instances cannot be launched into capacity reservations"
    kinds = [one["ResourceType"] for one in data.get("TagSpecifications", [])]
    if "spot-instances-request" in kinds and target:
        yield COMBINATION, "spot-instances-request cannot be tagged where no Spot Instance is requested"


def create_fleet(asked, templates):
    configs = asked.get("LaunchTemplateConfigs", [])
    overrides = [override for config in configs for override in config.get("Overrides", [])]
    pools = [(one.get("InstanceType"), one.get("SubnetId"), one.get("AvailabilityZone"), one.get("ImageId"),
              config["LaunchTemplateSpecification"].get("LaunchTemplateName"))
             for config in configs for one in config.get("Overrides", [])]
    if len(overrides) > OVERRIDES_MAX:
        yield VALUE, f"More than {OVERRIDES_MAX} launch template overrides"
    if repeated(pools):
        yield "InvalidFleetConfig", f"The fleet configuration contains duplicate instance pools: {repeated(pools)[:3]}"
    target = asked["TargetCapacitySpecification"].get("DefaultTargetCapacityType")
    if "OnDemandOptions" in asked and target == "spot" or "SpotOptions" in asked and target != "spot":
        yield COMBINATION, f"Options for another capacity type than {target}"
    for config in configs:
        data = templates.get(config["LaunchTemplateSpecification"].get("LaunchTemplateName"), {})
        preference = data.get("CapacityReservationSpecification", {}).get("CapacityReservationPreference")
        market = data.get("InstanceMarketOptions", {}).get("MarketType")
        if target == "spot" and preference == "capacity-reservations-only":
            yield COMBINATION, "Spot Instances cannot be launched into capacity reservations"
        if (target == "capacity-block") != (market == "capacity-block"):
            yield COMBINATION, "Capacity blocks need both the fleet's target and the template's market type"
        in_template = any("SubnetId" in one for one in data.get("NetworkInterfaces", []))
        if in_template and any("SubnetId" in one for one in config.get("Overrides", [])):
            yield COMBINATION, "Subnets of network interfaces and of overrides may not be specified on the same request"
    yield from tag_rules(asked.get("TagSpecifications", []))


def run_instances(asked, templates):
    data = templates.get(asked.get("LaunchTemplate", {}).get("LaunchTemplateName"), {})
    if asked.get("SubnetId") and (asked.get("NetworkInterfaces") or data.get("NetworkInterfaces")):
        yield COMBINATION, "Network interfaces and an instance-level subnet ID may not be specified on the same request"
    yield from interface_rules(asked.get("NetworkInterfaces", []))
    yield from tag_rules(asked.get("TagSpecifications", []))


def with_ids_or_pages(ids):
    def rules(asked, _):
        if asked.get(ids) and "MaxResults" in asked:
            yield COMBINATION, f"The parameter {ids} cannot be used with the parameter maxResults"
    return rules


def describe_launch_templates(asked, _):
    if asked.get("MaxResults", 1) > TEMPLATES_PER_PAGE_MAX:
        yield VALUE, f"MaxResults is limited to {TEMPLATES_PER_PAGE_MAX}"


def few_resources(ids):
    def rules(asked, _):
        if not 1 <= len(asked.get(ids, [])) <= RESOURCES_PER_CALL_MAX:
            yield VALUE, f"{ids} must have 1 to {RESOURCES_PER_CALL_MAX} members"
    return rules


RULES = {
    "CreateLaunchTemplate": create_launch_template, "CreateFleet": create_fleet, "RunInstances": run_instances,
    "DescribeLaunchTemplates": describe_launch_templates, "DescribeInstances": with_ids_or_pages("InstanceIds"),
    "DescribeCapacityReservations": with_ids_or_pages("CapacityReservationIds"),
    "TerminateInstances": few_resources("InstanceIds"), "CreateTags": few_resources("Resources"),
}


def broken(operation, asked, templates):
    """Code and message of the first rule that a request violates; `templates` are the data of the launch templates so far."""
    rules = RULES.get(operation)
    return next(rules(asked, templates), None) if rules else None
