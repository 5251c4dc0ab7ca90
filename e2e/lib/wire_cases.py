"""The classes, pools and pods whose requests e2e/moto --wire compares with upstream's, case by case.

A case states only its differences from the simplest case: `spec` of the EC2NodeClass, `types` and further `requirements` of the
NodePool, `pool` (labels, taints), `requests` of the pod. Clusters differ in address family and feature gates; each has its
own controller.
"""

AWS = "karpenter.k8s.aws/"
ACCOUNT = "123456789012"
KMS_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"
EFA = {"vpc.amazonaws.com/efa": "1"}
ALL_KUBELET = {
    "clusterDNS": ["10.0.0.99"], "maxPods": 42, "podsPerCore": 4, "cpuCFSQuota": False,
    "kubeReserved": {"cpu": "250m", "memory": "700Mi", "ephemeral-storage": "2Gi"},
    "systemReserved": {"cpu": "100m", "memory": "100Mi"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
    "evictionSoft": {"memory.available": "500Mi"}, "evictionSoftGracePeriod": {"memory.available": "1m"},
    "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 50,
}
BOTTLEROCKET_KUBELET = {key: value for key, value in ALL_KUBELET.items() if key != "podsPerCore"}
TOML = "[settings.kernel]\nlockdown = \"integrity\"\n[settings.kubernetes]\n\"shutdown-grace-period\" = \"30s\"\n"
MIME = ("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"OWN\"\n\n--OWN\n"
        "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/bash\necho own\n\n--OWN--\n")
DISK = {"volumeSize": "100Gi", "volumeType": "gp3", "iops": 6000, "throughput": 250, "encrypted": True,
        "kmsKeyID": KMS_KEY, "deleteOnTermination": True, "snapshotID": "snap-0123456789abcdef0",
        "volumeInitializationRate": 200}


def alias(family, **spec):
    """A class with an alias, which determines the AMI family."""
    return {"amiSelectorTerms": [{"alias": f"{family}@latest"}], "amiFamily": None, "userData": None, **spec}


def disks(*mappings):
    return {"blockDeviceMappings": [{"deviceName": name, "ebs": ebs} for name, ebs in mappings]}


def interfaces(*kinds):
    """Interface types, one per network card; from the second card on the device index is 1."""
    return {"networkInterfaces": [{"networkCardIndex": card, "deviceIndex": int(card > 0), "interfaceType": kind}
                                  for card, kind in enumerate(kinds)]}


def reservation(number, instance_type, **more):
    return {
        "CapacityReservationId": f"cr-{number:017x}", "OwnerId": ACCOUNT, "InstanceType": instance_type,
        "AvailabilityZone": "us-west-2b", "AvailabilityZoneId": "usw2-az1", "TotalInstanceCount": 3, "AvailableInstanceCount": 2,
        "InstanceMatchCriteria": "targeted", "ReservationType": "default", "State": "active", "Tenancy": "default",
        "StartDate": "2026-01-01T00:00:00.000Z", "EndDateType": "unlimited", "InstancePlatform": "Linux/UNIX",
        "Tags": [{"Key": "case", "Value": f"reserved-{number}"}], **more,
    }


# One id and one instance type each: upstream gives a NodeClaim all reservations of its instance type.
RESERVATIONS = [
    reservation(1, "m5.4xlarge"), reservation(2, "c5.4xlarge", InstanceMatchCriteria="open"),
    reservation(3, "p5.48xlarge", ReservationType="capacity-block", EndDateType="limited",
                EndDate="2036-01-01T00:00:00.000Z"),
    reservation(4, "r5.4xlarge", Interruptible=True),
    reservation(5, "m5.8xlarge", State="expired"), reservation(6, "m6i.4xlarge", OwnerId="210987654321"),
]
PLACEMENT_GROUPS = [
    {"GroupId": f"pg-{number:017x}", "GroupName": f"group-{strategy}", "State": "available", "Strategy": strategy, **more}
    for number, (strategy, more) in enumerate([
        ("cluster", {}), ("spread", {"SpreadLevel": "rack"}), ("partition", {"PartitionCount": 3})], 1)
]


def placement(number):
    return {"placementGroupSelector": {"id": PLACEMENT_GROUPS[number]["GroupId"]}}


def reserved(*ids):
    return {"capacityReservationSelectorTerms": [{"id": f"cr-{number:017x}"} for number in ids]}


ON_DEMAND, SPOT, RESERVED = "on-demand", "spot", "reserved"


def case(spec=None, types=("m5.large",), capacity=ON_DEMAND, requirements=None, pool=None, requests=None):
    return {"spec": spec or {}, "types": list(types), "capacity": capacity, "requirements": requirements or {},
            "pool": pool or {}, "requests": requests or {}}


IPV4_CASES = {
    "custom": case(),
    "custom-no-user-data": case({"userData": None}),
    "image-by-parameter": case({"amiFamily": "AL2023", "userData": None, "amiSelectorTerms": [
        {"ssmParameter": "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"}]}),
    "al2-by-id": case({"amiFamily": "AL2", "userData": None}),
    "al2-own-user-data": case({"amiFamily": "AL2", "userData": "#!/bin/bash\necho own\n"}),
    "al2-kubelet": case({"amiFamily": "AL2", "userData": None, "kubelet": ALL_KUBELET}),
    "al2023": case(alias("al2023")),
    "al2023-arm64": case(alias("al2023"), ["m7g.large"]),
    "al2023-two-architectures": case(alias("al2023"), ["m5.large", "m7g.large"]),
    "al2023-nvidia": case(alias("al2023"), ["g4dn.xlarge"], requests={"nvidia.com/gpu": "1"}),
    "al2023-neuron": case(alias("al2023"), ["inf2.xlarge"], requests={"aws.amazon.com/neuron": "1"}),
    "al2023-kubelet": case(alias("al2023", kubelet=ALL_KUBELET)),
    "al2023-shell-user-data": case(alias("al2023", userData="#!/bin/bash\necho own\n")),
    "al2023-mime-user-data": case(alias("al2023", userData=MIME)),
    "al2023-instance-store": case(alias("al2023", instanceStorePolicy="RAID0"), ["m5d.large"]),
    "al2023-taints-and-labels": case(alias("al2023"), pool={
        "labels": {"team": "wire", "example.com/size": "big"},
        "taints": [{"key": "dedicated", "value": "wire", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "example.com/agent", "effect": "NoExecute"}]}),
    "bottlerocket": case(alias("bottlerocket")),
    "bottlerocket-nvidia": case(alias("bottlerocket"), ["g4dn.xlarge"], requests={"nvidia.com/gpu": "1"}),
    "bottlerocket-kubelet": case(alias("bottlerocket", kubelet=BOTTLEROCKET_KUBELET)),
    "bottlerocket-user-data": case(alias("bottlerocket", userData=TOML)),
    "bottlerocket-instance-store": case(alias("bottlerocket", instanceStorePolicy="RAID0"), ["m5d.large"]),
    "windows2019": case(alias("windows2019"), requirements={"kubernetes.io/os": ["windows"]}),
    "windows2022": case(alias("windows2022"), requirements={"kubernetes.io/os": ["windows"]}),
    "windows2025": case(alias("windows2025"), requirements={"kubernetes.io/os": ["windows"]}),
    "windows2022-user-data": case(alias("windows2022", userData="Write-Host own"),
                                  requirements={"kubernetes.io/os": ["windows"]}),
    "disk-all-fields": case(disks(("/dev/xvda", DISK))),
    "disk-io2": case(disks(("/dev/xvda", {"volumeSize": "50Gi", "volumeType": "io2", "iops": 1000}))),
    "disk-sizes": case(disks(("/dev/xvda", {"volumeSize": "100G"}), ("/dev/xvdb", {"volumeSize": "20Gi"}),
                             ("/dev/xvdc", {"volumeSize": "1Ti", "volumeType": "st1", "deleteOnTermination": False}))),
    "disk-root-volume": case({"blockDeviceMappings": [
        {"deviceName": "/dev/sda1", "rootVolume": True, "ebs": {"volumeSize": "30Gi"}},
        {"deviceName": "/dev/sdb", "ebs": {"snapshotID": "snap-0123456789abcdef0"}}]}),
    "metadata-all-fields": case({"metadataOptions": {
        "httpEndpoint": "enabled", "httpProtocolIPv6": "enabled", "httpPutResponseHopLimit": 3, "httpTokens": "optional"}}),
    "metadata-disabled": case({"metadataOptions": {"httpEndpoint": "disabled"}}),
    "public-ip": case({"associatePublicIPAddress": True}),
    "no-public-ip": case({"associatePublicIPAddress": False}),
    "detailed-monitoring": case({"detailedMonitoring": True}),
    "ip-prefixes": case({"ipPrefixCount": 4}),
    "connection-tracking": case({"connectionTracking": {
        "tcpEstablishedTimeout": 600, "udpStreamTimeout": 120, "udpTimeout": 45}}),
    "connection-tracking-one": case({"connectionTracking": {"udpTimeout": 45}}),
    "efa": case(types=["p4d.24xlarge"], requests={**EFA, "nvidia.com/gpu": "1"}),
    "efa-one-card": case({"associatePublicIPAddress": True, "ipPrefixCount": 2}, ["g4dn.8xlarge"],
                         requests={**EFA, "nvidia.com/gpu": "1"}),
    "network-interfaces": case(interfaces("interface", "efa-only"), ["p5.48xlarge"], requests={"nvidia.com/gpu": "1"}),
    "network-interfaces-all": case({**interfaces("interface", "efa-only", "interface"), "associatePublicIPAddress": False,
                                    "ipPrefixCount": 3, "connectionTracking": {"tcpEstablishedTimeout": 900}},
                                   ["p5.48xlarge"], requests={"nvidia.com/gpu": "1"}),
    "nested-virtualization": case({"cpuOptions": {"nestedVirtualization": "enabled"}}, ["m8i.large"]),
    "spot": case(capacity=SPOT),
    "spot-tags": case({"tags": {"team": "wire", "empty": ""}}, capacity=SPOT),
    "spot-several-types": case(types=["m5.large", "c5.large", "r5.large"], capacity=SPOT),
    "several-types": case(types=["m5.large", "c5.large", "r5.large"]),
    "context": case({"context": "wire-context"}),
    "tags": case({"tags": {"team": "wire", "Name": "own-name"}}),
    "own-profile": case({"role": None, "instanceProfile": "own-profile"}),
    "dedicated": case(requirements={AWS + "instance-tenancy": ["dedicated"]}),
    "one-zone": case(requirements={"topology.kubernetes.io/zone": ["us-west-2b"]}),
    "placement-cluster": case(placement(0), ["m5.4xlarge"]),
    "placement-spread": case(placement(1)),
    "placement-partition": case(placement(2), requirements={AWS + "placement-group-partition": ["2"]}),
    "placement-by-name": case({"placementGroupSelector": {"name": "group-cluster"}}, ["m5.4xlarge"]),
    "reserved": case(reserved(1), ["m5.4xlarge"], RESERVED),
    "reserved-open": case(reserved(2), ["c5.4xlarge"], RESERVED),
    "reserved-by-tag": case({"capacityReservationSelectorTerms": [{"tags": {"case": "reserved-1"}}]}, ["m5.4xlarge"],
                            RESERVED),
    "capacity-block": case(reserved(3), ["p5.48xlarge"], RESERVED, requests={"nvidia.com/gpu": "1"}),
    "interruptible-reservation": case(reserved(4), ["r5.4xlarge"], RESERVED),
}
IPV6_CASES = {
    "ipv6-custom": case(), "ipv6-al2023": case(alias("al2023")), "ipv6-bottlerocket": case(alias("bottlerocket")),
    "ipv6-prefixes": case({"ipPrefixCount": 2}),
    "ipv6-efa": case(types=["p4d.24xlarge"], requests={**EFA, "nvidia.com/gpu": "1"}),
    "ipv6-network-interfaces": case(interfaces("interface", "efa-only"), ["p5.48xlarge"],
                                    requests={"nvidia.com/gpu": "1"}),
    "ipv6-metadata": case({"metadataOptions": {"httpProtocolIPv6": "disabled"}}),
}
OPEN_CASES = {"open-on-demand": case(), "open-spot": case(capacity=SPOT)}

# Name, address of the cluster DNS, service CIDR, feature gates, cases.
CLUSTERS = [
    ("ipv4", "10.100.0.10", {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"}, "", IPV4_CASES),
    ("ipv6", "fd30:1c53:5f8a::a", {"serviceIpv6Cidr": "fd30:1c53:5f8a::/108", "ipFamily": "ipv6"}, "", IPV6_CASES),
    ("open", "10.100.0.10", {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"}, "ReservedCapacity=false",
     OPEN_CASES),
]
