"""EC2's eventual consistency, and rules beyond its service model: new objects are hidden from other calls for some seconds, and
invalid combinations are rejected. No NodeClaim is lost, no instance is without a NodeClaim, and an EC2NodeClass with an
invalid combination does not affect others."""

import botocore.exceptions
import boto3

from moto_stage import NO_FAULTS, REGION, requirement

# Longer than one call with all its retries.
HIDDEN_SECONDS = 8
PODS = 8


def interface(card=0, device=0, **more):
    return {"NetworkCardIndex": card, "DeviceIndex": device, **more}


def tags(count, prefix="key"):
    return [{"Key": f"{prefix}-{number}", "Value": ""} for number in range(count)]


# The error, the template data, the error code. Every rule of ec2_rules.py about templates is broken once.
BAD_TEMPLATES = [
    ("groups at both places", {"SecurityGroupIds": ["sg-1"], "NetworkInterfaces": [interface()]}, "InvalidParameterCombination"),
    ("a device index twice", {"NetworkInterfaces": [interface(), interface()]}, "InvalidParameterValue"),
    ("no primary interface", {"NetworkInterfaces": [interface(1, 1)]}, "InvalidParameterValue"),
    ("EFA by a wrong name", {"NetworkInterfaces": [interface(InterfaceType="EFA")]}, "InvalidParameterValue"),
    ("EFA-only as primary", {"NetworkInterfaces": [interface(InterfaceType="efa-only")]}, "InvalidParameterValue"),
    ("addresses on EFA-only", {"NetworkInterfaces": [interface(), interface(1, 1, InterfaceType="efa-only",
                                                                          Ipv4PrefixCount=1)]}, "InvalidParameterValue"),
    ("a public address on many", {"NetworkInterfaces": [interface(AssociatePublicIpAddress=True), interface(1, 1)]},
     "InvalidParameterCombination"),
    ("a device name twice", {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 1}}] * 2},
     "InvalidBlockDeviceMapping"),
    ("throughput of gp2", {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {
        "VolumeSize": 1, "VolumeType": "gp2", "Throughput": 200}}]}, "InvalidParameterCombination"),
    ("io2 without IOPS", {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {
        "VolumeSize": 1, "VolumeType": "io2"}}]}, "MissingParameter"),
    ("a disk without a size", {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "gp3"}}]},
     "MissingParameter"),
    ("too many tags", {"TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags(51)}]}, "TagLimitExceeded"),
    ("a tag key twice", {"TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags(1) * 2}]},
     "InvalidParameterValue"),
    ("a tag of AWS", {"TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags(1, "aws:a")}]},
     "InvalidParameterValue"),
    ("long user data", {"UserData": "A" * 30000}, "InvalidParameterValue"),
    ("a hop limit of 65", {"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue"),
    ("a target and no preference", {"CapacityReservationSpecification": {
        "CapacityReservationPreference": "none", "CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}},
     "InvalidParameterCombination"),
    ("a block without its id", {"InstanceMarketOptions": {"MarketType": "capacity-block"}}, "MissingParameter"),
]


def code_of(call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return "taken"


def check_rules(stage):
    """Checks that each rule rejects invalid input, because the checks below depend on the rules."""
    ec2 = boto3.client("ec2", endpoint_url=stage.faults_at, region_name=REGION, aws_access_key_id="t",
                       aws_secret_access_key="t")
    for number, (what, data, code) in enumerate(BAD_TEMPLATES):
        found = code_of(ec2.create_launch_template, LaunchTemplateName=f"bad-{number}", LaunchTemplateData=data)
        assert found == code, f"{what}: {found}, {code} is expected"
    reserved = {"CapacityReservationSpecification": {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}}
    assert code_of(ec2.create_launch_template, LaunchTemplateName="reserved", LaunchTemplateData=reserved) == "taken"
    hidden = code_of(ec2.create_fleet, **fleet("reserved", "on-demand"))
    assert hidden == "InvalidLaunchTemplateName.NotFoundException", f"a new template is not hidden: {hidden}"
    for what, asked in [("spot in a reservation", fleet("reserved", "spot")),
                        ("an offer twice", fleet("reserved", "on-demand", overrides=2)),
                        ("a block without a market type", fleet("reserved", "capacity-block"))]:
        assert code_of(ec2.create_fleet, **asked) in ("InvalidParameterCombination", "InvalidFleetConfig"), what
    stage.ec2.delete_launch_template(LaunchTemplateName="reserved")
    print(f"{len(BAD_TEMPLATES)} templates and 3 fleets are refused as EC2 refuses them")


def fleet(template, target, overrides=1):
    return {"Type": "instant", "TargetCapacitySpecification": {
        "TotalTargetCapacity": 1, "DefaultTargetCapacityType": target}, "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
            "Overrides": [{"InstanceType": "m5.large"}] * overrides}]}


def refused_pool(stage):
    """A public IP on several interfaces, which the schema of EC2NodeClass allows."""
    spec = {"associatePublicIPAddress": True, "networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface"}]}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "refused"}, "spec": {"template": {
        "metadata": {"labels": {"pool": "refused"}}, "spec": {
            "requirements": [requirement("node.kubernetes.io/instance-type", "p4d.24xlarge")],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "refused"}}},
        "disruption": {"consolidateAfter": "Never"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "refused", "namespace": "default"}, "spec": {
        "nodeSelector": {"pool": "refused"}, "containers": [{"name": "pause", "image": "pause"}]}}
    return stage.node_class("refused", **spec), pool, pod


def is_even(stage):
    """Checks that every instance has its NodeClaim and every NodeClaim its instance."""
    instances = sorted(one["InstanceId"] for one in stage.machines())
    claimed = sorted(claim.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for claim in stage.items("nodeclaims")
                     if claim["metadata"]["labels"]["karpenter.sh/nodepool"] == "default")
    return instances == claimed


def consistency_story(stage, leave_nothing):
    stage.start_account(1, *NO_FAULTS, "--hide", str(HIDDEN_SECONDS))
    check_rules(stage)
    stage.start_cluster()
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    stage.apply_class_and_pool()
    stage.apply(*refused_pool(stage))
    stage.inflate(PODS, is_apart=True)
    stage.until(f"{PODS} pods run", 240, lambda: stage.running_pods() == PODS)
    stage.until("each instance has its claim", 60, lambda: is_even(stage))
    said = {what: count for what, count in stage.faults().items() if what.startswith("refused ")}
    print(f"refused meanwhile: {said}")
    for code in ("InvalidLaunchTemplateName.NotFoundException", "InvalidInstanceID.NotFound"):
        assert any(what.endswith(code) for what in said), f"nothing was hidden: {code}"
    launched = len(stage.all_instances())
    print(f"{launched} instances were launched for {PODS} pods")
    assert launched == PODS, "an instance was launched more than once for a claim"
    said = stage.condition("refused", "ValidationSucceeded")
    print(f"the class that EC2 refuses: {said}")
    assert "public IP address" in said[1], said
    stage.kubectl("delete", "pod", "refused")
    stage.kubectl("delete", "nodepool", "refused")
    stage.kubectl("delete", "ec2nodeclass", "refused", "--wait=false")
    leave_nothing()
    assert "panicked" not in stage.logs("karpenter")
