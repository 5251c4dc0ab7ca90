"""Every kind of interruption message, sent through EventBridge with the rules of `bootstrap aws`: tests the rules, the queue and
the reaction of the controller together."""

import json
import subprocess

import boto3
from moto_stage import CLUSTER, REGION

PODS = 6


def route(stage):
    """Adds the EventBridge rules of the stack to the existing queue."""
    events = boto3.Session("test", "test", region_name=REGION).client("events", endpoint_url=stage.endpoint)
    printed = subprocess.run([stage.binary, "bootstrap", "aws", "--cluster", CLUSTER, "-o", "cloudformation"], check=True,
                          capture_output=True, text=True).stdout
    queue = stage.sqs.get_queue_attributes(QueueUrl=stage.queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    resources = json.loads(printed)["Resources"]
    rules = {name: made for name, made in resources.items() if made["Type"] == "AWS::Events::Rule"}
    for name, rule in rules.items():
        events.put_rule(Name=name, EventPattern=json.dumps(rule["Properties"]["EventPattern"]))
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue}])
    print(f"{len(rules)} rules")

    def send(detail_type, detail, source="aws.ec2"):
        answer = events.put_events(Entries=[{"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail)}])
        assert answer["FailedEntryCount"] == 0, answer

    return send


def interruptions(stage, begin, leave_nothing):
    begin()
    send = route(stage)
    stage.start_controller()
    stage.apply_class_and_pool()
    stage.until("the class is ready", 120, stage.is_class_ready)
    stage.inflate(PODS, is_apart=True)
    stage.until("pods run, each on a machine of its own", 120,
                lambda: stage.running_pods() == PODS and len(stage.machines()) == PODS)
    spot, stopped, sick, reserved, advised, spared = sorted(machine["InstanceId"] for machine in stage.machines())

    def health(service, instance_id):
        return {"service": service, "eventTypeCategory": "scheduledChange", "eventTypeCode": "X",
                "affectedEntities": [{"entityValue": instance_id}]}

    send("EC2 Spot Instance Interruption Warning", {"instance-id": spot, "instance-action": "terminate"})
    send("EC2 Instance State-change Notification", {"instance-id": stopped, "state": "stopping"})
    send("AWS Health Event", health("EC2", sick), source="aws.health")
    send("EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": reserved})
    send("EC2 Instance Rebalance Recommendation", {"instance-id": advised})
    # Messages that must be ignored, and events that no rule forwards.
    send("EC2 Instance State-change Notification", {"instance-id": spared, "state": "running"})
    send("AWS Health Event", health("RDS", spared), source="aws.health")
    lost = {spot, stopped, sick, reserved}
    stage.until("interrupted machines are replaced", 120, lambda: stage.running_pods() == PODS
                and not lost & {machine["InstanceId"] for machine in stage.machines()})
    left = {machine["InstanceId"] for machine in stage.machines()}
    assert {advised, spared} <= left, (advised, spared, left)
    expected = {"spot_interrupted": 1, "instance_stopped": 1, "scheduled_change": 1,
                "capacity_reservation_interrupted": 1, "rebalance_recommendation": 1, "no_op": 1}

    def received():
        name = "karpenter_interruption_received_messages_total"
        lines = [line.split("} ") for line in stage.metrics() if line.startswith(name)]
        return {labels.split('message_type="')[1].split('"')[0]: float(value) for labels, value in lines}

    stage.until("every message is counted once", 30, lambda: {
        kind: count for kind, count in received().items() if count and not kind.startswith("instance_terminated")
    } == expected)
    events = [event["reason"] for event in stage.items("events")]
    for reason in ("SpotInterrupted", "InstanceStopping", "InstanceUnhealthy", "CapacityReservationInstanceInterrupted",
                   "SpotRebalanceRecommendation", "TerminatingOnInterruption"):
        assert reason in events, (reason, sorted(set(events)))
    leave_nothing()
    assert "panicked" not in stage.logs("karpenter")
