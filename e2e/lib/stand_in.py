"""Answers what moto does not: prices, capacity reservations, placement groups, zonal shifts and the images of EKS.

Answers are values by the names of botocore's service models and are written to the wire by these models. Whatever has
pages in AWS has pages of two here, except where a list is long. Filters are applied, so one that is missing shows.
"""

import datetime
import hashlib
import json
import re
import time

from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.utilities.utils import load_resource

PAGE_SIZE = 2
PRODUCTS_PER_PAGE = 100
AMAZON = "602401143452"

# SSM parameters with AMI ids: of Amazon Linux, Bottlerocket and Windows, by Kubernetes version, variant and release.
AL2023 = r"/aws/service/eks/optimized-ami/[\d.]+/amazon-linux-2023/(?P<arch>x86_64|arm64)/(standard|nvidia|neuron)/[\w.-]+/image_id"
AL2 = r"/aws/service/eks/optimized-ami/[\d.]+/amazon-linux-2(?P<variant>-arm64|-gpu|)/[\w.-]+/image_id"
BOTTLEROCKET = r"/aws/service/bottlerocket/aws-k8s-[\d.]+(-nvidia)?/(?P<arch>x86_64|arm64)/[\w.-]+/image_id"
WINDOWS = r"/aws/service/ami-windows-latest/Windows_Server-20\d\d-English-(Core|Full)-EKS_Optimized-[\d.]+/image_id"


class Refused(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def key_until(ends):
    """An access key id that contains its expiry time."""
    return f"ASIAUNTIL{int(ends):011d}"


def is_expired(key):
    found = re.fullmatch(r"ASIAUNTIL(\d{11})", key)
    return bool(found) and int(found.group(1)) < time.time()


def write(service, operation, result):
    """Status, headers and body of a response."""
    model = get_service_model(service).operation_model(operation)
    protocol = model.service_model.metadata["protocol"]
    said = get_serializer_class(service, protocol)(model).serialize(result)
    body = said["body"]
    headers = [(name, value) for name, value in said["headers"].items() if name.lower() == "content-type"]
    return said["status_code"], headers, body.encode() if isinstance(body, str) else body


def page(items, parameters, name, size=PAGE_SIZE, token="NextToken"):
    """The requested page of a list, and the token of the next one."""
    begin = int(parameters.get(token, "page-0").removeprefix("page-"))
    more = {token: f"page-{begin + size}"} if begin + size < len(items) else {}
    return {name: items[begin:begin + size], **more}


def fits(item, filters, fields):
    """Whether an item has one of the values of every filter; `fields` maps filters to members."""
    for one in filters:
        name, values = one["Name"], one.get("Values", [])
        if name.startswith("tag:"):
            has = [tag["Value"] for tag in item.get("Tags", []) if tag["Key"] == name[4:]]
        elif name == "tag-key":
            has = [tag["Key"] for tag in item.get("Tags", [])]
        elif name in fields:
            has = [item.get(fields[name])]
        else:
            raise Refused(400, "InvalidParameterValue", f"The filter '{name}' is invalid")
        if not set(has) & set(values):
            return False
    return True


class StandIn:
    """The state besides moto's account; PUT /stand-in of the proxy replaces parts of it."""

    def __init__(self):
        self.there = {"CapacityReservations": [], "PlacementGroups": [], "ZonalShifts": []}
        self.images, self.products = {}, []

    def replace(self, parts):
        self.there.update(parts)

    def answer(self, service, operation, parameters):
        """The response, or None if moto answers the request."""
        service = "sts" if service == "unsigned" else service
        known = getattr(self, f"{service.replace('-', '_')}_{operation}", None)
        result = known(parameters) if known else None
        return None if result is None else write(service, operation, result)

    # --- EC2 ---------------------------------------------------------------------------------------------------------

    def ec2_DescribeCapacityReservations(self, asked):
        ids = asked.get("CapacityReservationIds")
        if ids and "MaxResults" in asked:
            raise Refused(400, "InvalidParameterCombination", "ids and maxResults cannot be used together")
        fields = {"state": "State", "owner-id": "OwnerId", "instance-match-criteria": "InstanceMatchCriteria"}
        there = self.there["CapacityReservations"]
        missing = set(ids or []) - {one["CapacityReservationId"] for one in there}
        if missing:
            raise Refused(400, "InvalidCapacityReservationId.NotFound", f"{sorted(missing)} do not exist")
        found = [one for one in there if (not ids or one["CapacityReservationId"] in ids)
                 and fits(one, asked.get("Filters", []), fields)]
        return page(found, asked, "CapacityReservations")

    def ec2_DescribePlacementGroups(self, asked):
        ids, names = asked.get("GroupIds"), asked.get("GroupNames")
        found = [one for one in self.there["PlacementGroups"] if (not ids or one["GroupId"] in ids)
                 and (not names or one["GroupName"] in names)]
        if not found and (ids or names):
            raise Refused(400, "InvalidPlacementGroup.Unknown", "The Placement Group is unknown.")
        fields = {"state": "State", "strategy": "Strategy", "group-name": "GroupName"}
        return {"PlacementGroups": [one for one in found if fits(one, asked.get("Filters", []), fields)]}

    def ec2_DescribeImages(self, asked):
        wanted = [value for one in asked.get("Filters", []) if one["Name"] == "image-id" for value in one["Values"]]
        wanted += asked.get("ImageIds", [])
        found = [self.images[image_id] for image_id in wanted if image_id in self.images]
        return page(found, asked, "Images") if found else None

    # --- SSM ---------------------------------------------------------------------------------------------------------

    def ssm_GetParameter(self, asked):
        name = asked["Name"]
        found = next((found for found in (re.fullmatch(one, name) for one in (AL2023, AL2, BOTTLEROCKET, WINDOWS))
                      if found), None)
        if not found:
            raise Refused(400, "ParameterNotFound", f"{name} does not exist")
        parts = found.groupdict()
        arch = parts.get("arch") or ("arm64" if parts.get("variant") == "-arm64" else "x86_64")
        # Equal for every Kubernetes version, so that recordings are valid for other versions.
        plain = re.sub(r"1\.\d\d", "1.xx", name)
        image_id = "ami-" + hashlib.sha256(plain.encode()).hexdigest()[:17]
        self.images[image_id] = {
            "ImageId": image_id, "Name": name.removesuffix("/image_id").removeprefix("/aws/service/").replace("/", "-"),
            "Architecture": arch, "State": "available", "OwnerId": AMAZON, "ImageOwnerAlias": "amazon",
            "CreationDate": "2026-01-02T03:04:05.000Z", "RootDeviceName": "/dev/xvda",
        }
        return {"Parameter": {"Name": name, "Type": "String", "Value": image_id, "Version": 1, "DataType": "text"}}

    # --- prices ------------------------------------------------------------------------------------------------------

    def pricing_GetProducts(self, asked):
        self.products = self.products or products()
        wanted = {one["Field"]: one["Value"] for one in asked.get("Filters", [])}
        found = [one for one in self.products if one["serviceCode"] == asked["ServiceCode"] and all(
            field == "regionCode" or one["product"]["attributes"].get(field, one["product"].get(field)) == value
            for field, value in wanted.items())]
        return {**page([json.dumps(one) for one in found], asked, "PriceList", PRODUCTS_PER_PAGE), "FormatVersion": "aws_v1"}

    # --- the cluster -------------------------------------------------------------------------------------------------

    def eks_DescribeCluster(self, asked):
        cluster = self.there.get("Cluster")
        return {"cluster": cluster} if cluster and cluster["name"] == asked["name"] else None

    # --- credentials -------------------------------------------------------------------------------------------------

    def sts_AssumeRoleWithWebIdentity(self, asked):
        """Credentials with the configured lifetime, only for the current token."""
        identity = self.there.get("Identity")
        if not identity:
            return None
        if asked["WebIdentityToken"] != identity["token"]:
            raise Refused(400, "ExpiredTokenException", "Token expired: current date/time must be before the expiration")
        ends = time.time() + identity["seconds"]
        return {"Credentials": {"AccessKeyId": key_until(ends), "SecretAccessKey": "secret", "SessionToken": "session",
                                "Expiration": datetime.datetime.fromtimestamp(ends, datetime.timezone.utc)},
                "SubjectFromWebIdentityToken": "system:serviceaccount:kube-system:karpenter",
                "AssumedRoleUser": {"Arn": asked["RoleArn"], "AssumedRoleId": "AROA0123456789012:karpenter"}}

    # --- zonal shift -------------------------------------------------------------------------------------------------

    def arc_zonal_shift_GetManagedResource(self, asked):
        zones = [f"usw2-az{number}" for number in (1, 2, 3, 4)]
        return {"arn": asked["resourceIdentifier"], "name": "moto", "appliedWeights": {zone: 1.0 for zone in zones},
                "zonalShifts": self.there["ZonalShifts"]}


def price(info):
    """Dollars per hour, computed from vCPUs and memory; not AWS's prices."""
    accelerators = sum(one.get("Count", 0) for kind in ("GpuInfo", "InferenceAcceleratorInfo", "NeuronInfo")
                       for many in info.get(kind, {}).values() if isinstance(many, list) for one in many)
    cpus, gib = info["VCpuInfo"]["DefaultVCpus"], info["MemoryInfo"]["SizeInMiB"] / 1024
    return round(0.03 * cpus + 0.004 * gib + 1.5 * accelerators, 4)


def products():
    """The Linux price of every instance type, and very different prices for Windows, reservations and dedicated tenancy."""
    listed = []
    for name, info in load_resource("ec2/resources/instance_types.json").items():
        is_metal = info.get("BareMetal", False)
        right = {"operatingSystem": "Linux", "capacitystatus": "Used", "preInstalledSw": "NA",
                 "marketoption": "OnDemand", "tenancy": "Dedicated" if is_metal else "Shared"}
        wrong = [{"operatingSystem": "Windows"}, {"capacitystatus": "UnusedCapacityReservation"},
                 {"preInstalledSw": "SQL Std"}, {"tenancy": "Host"}]
        for number, different in enumerate([{}, *wrong]):
            listed.append(product(name, {**right, **different}, is_metal, price(info) + number * 1000, number))
    return listed


def product(name, attributes, is_metal, dollars, number):
    sku = hashlib.sha256(f"{name}{number}".encode()).hexdigest()[:16].upper()
    family = "Compute Instance (bare metal)" if is_metal else "Compute Instance"
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{dollars:.10f}", "CNY": f"{dollars * 7:.10f}"}}
    return {
        "serviceCode": "AmazonEC2",
        "product": {"sku": sku, "productFamily": family, "attributes": {
            "instanceType": name, "servicecode": "AmazonEC2", "serviceCode": "AmazonEC2", **attributes}},
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": {"sku": sku, "priceDimensions": {
            f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension}}}},
        "version": "20260101000000", "publicationDate": "2026-01-01T00:00:00Z",
    }
