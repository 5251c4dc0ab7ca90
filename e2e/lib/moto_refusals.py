"""Missing AWS resources, denied calls and invalid settings: each error appears in the conditions of its EC2NodeClass and in one
log line with the fix, does not affect other classes, and disappears when it is corrected."""

import json

from moto_stage import CLUSTER, NO_FAULTS

DENIED = "UnauthorizedOperation"


def logged_errors(stage, name):
    """The errors of the last controller about a class."""
    lines = stage.logs(f"karpenter-{stage.controllers:03d}").splitlines()
    parsed = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in parsed if line["level"] == "ERROR" and line.get("nodeclass") == name]


def refusals(stage, _):
    stage.start_account(1, *NO_FAULTS)
    stage.start_cluster()
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    stage.apply(stage.node_class("good"))
    stage.until("a class is ready", 120, lambda: stage.condition("good", "Ready")[0].startswith("True"))

    # Name, invalid setting, and the expected condition, status, reason and part of the message.
    table = [
        ("no-subnet", {"subnetSelectorTerms": [{"tags": {"no-such": "tag"}}]}, "SubnetsReady",
         "False SubnetsNotFound", "SubnetSelector did not match any Subnets"),
        ("no-subnet-id", {"subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}]}, "SubnetsReady",
         "False SubnetsNotFound", "SubnetSelector did not match any Subnets"),
        ("no-group", {"securityGroupSelectorTerms": [{"name": "no-such-group"}]}, "SecurityGroupsReady",
         "False SecurityGroupsNotFound", "SecurityGroupSelector did not match any SecurityGroups"),
        ("no-image", {"amiSelectorTerms": [{"id": "ami-0123456789abcdef0"}]}, "AMIsReady",
         "False AMINotFound", "AMISelector did not match any AMIs"),
        ("no-role", {"role": "no-such-role"}, "InstanceProfileReady", "False RoleNotFound", "no-such-role"),
        ("no-setting", {"kubelet": {"maxPodz": 5}}, "ValidationSucceeded", "False InvalidKubeletConfiguration",
         "maxPodz"),
        ("no-disk", {"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]}, "ValidationSucceeded",
         "False InvalidBlockDeviceMappings", "spec.blockDeviceMappings[0].ebs is missing"),
        ("over-alias", {"amiFamily": "AL2", "amiSelectorTerms": [{"alias": "al2@latest"}]}, "AMIsReady",
         "False UnsupportedAlias", "AL2"),
    ]
    stage.apply(*[stage.node_class(name, **spec) for name, spec, *_ in table])
    for name, _, kind, expected, words in table:
        def shows(name=name, kind=kind, expected=expected, words=words):
            said, message = stage.condition(name, kind)
            return said == expected and words in message and stage.condition(name, "Ready")[0].startswith("False")

        stage.until(f"{name}: {kind} is {expected}", 60, shows)
    for name, *_ in table:
        lines = logged_errors(stage, name)
        assert len(lines) == 1, (name, lines)
        assert lines[0].get("advice"), lines
        print(f"{name}: {lines[0]['error']}: {lines[0]['advice']}")
    assert stage.condition("good", "Ready")[0].startswith("True")
    stage.apply(*[stage.node_class(name) for name, *_ in table])
    stage.until("all of them are ready once they are put right", 120, lambda: all(
        stage.condition(name, "Ready")[0].startswith("True") for name, *_ in table))

    # Denied calls: ready classes stay ready, new classes wait for the permission.
    forbidden = [
        ("subnets", {"ec2_DescribeSubnets": DENIED}, "SubnetsReady", "Unknown SubnetsResolutionFailed"),
        ("groups", {"ec2_DescribeSecurityGroups": DENIED}, "SecurityGroupsReady",
         "Unknown SecurityGroupsResolutionFailed"),
        ("images", {"ec2_DescribeImages": DENIED}, "AMIsReady", "Unknown AMIsResolutionFailed"),
        ("profiles", {"iam_CreateInstanceProfile": "AccessDenied"}, "InstanceProfileReady",
         "Unknown InstanceProfileResolutionFailed"),
        ("templates", {"ec2_CreateLaunchTemplate": DENIED}, "ValidationSucceeded",
         "False CreateLaunchTemplateAuthCheckFailed"),
        ("fleets", {"ec2_CreateFleet": DENIED}, "ValidationSucceeded", "False CreateFleetAuthCheckFailed"),
        ("machines", {"ec2_RunInstances": DENIED}, "ValidationSucceeded", "False RunInstancesAuthCheckFailed"),
        ("expired", {"ec2_DescribeSubnets": "ExpiredToken"}, "SubnetsReady", "Unknown SubnetsResolutionFailed"),
    ]
    for name, actions, kind, expected in forbidden:
        stage.refuse(**actions)
        stage.apply(stage.node_class(name))
        stage.until(f"{name} may not be used: {kind} is {expected}", 60,
                    lambda kind=kind, name=name, expected=expected: stage.condition(name, kind)[0] == expected)
        lines = [line for line in logged_errors(stage, name) if line.get("condition") == kind]
        assert len(lines) == 1 and lines[0].get("advice"), (name, lines)
        print(f"{name}: {lines[0]['error']}: {lines[0]['advice']}")
        assert stage.condition("good", "Ready")[0].startswith("True"), stage.condition("good", "Ready")
        stage.refuse()
        # A failed dry run is cached for half an hour, but not for another spec.
        stage.apply(stage.node_class(name, userData=f"#!/bin/sh\n# {name}\n"))
        stage.until(f"{name} may be used again", 150, lambda name=name: stage.condition(name, "Ready")[0].startswith("True"))

    # A missing queue is retried, logged once, and used once it exists.
    stage.kill_controller()
    stage.queue = "later"
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    log = f"karpenter-{stage.controllers:03d}"
    words = "failed to read interruption queue"
    stage.until("a missing queue is logged", 120, lambda: words in stage.logs(log))
    stage.sqs.create_queue(QueueName="later")
    stage.until("a queue that comes is used", 120, lambda: "watching interruption queue" in stage.logs(log))
    lines = [line for line in stage.logs(log).splitlines() if words in line]
    assert len(lines) == 1 and "--interruption-queue" in lines[0], lines
    assert stage.condition("good", "Ready")[0].startswith("True")
    assert "panicked" not in stage.logs("karpenter")
    print(f"{len(table)} mistakes, {len(forbidden)} refusals and a missing queue of {CLUSTER}: all reported, all resolved")
