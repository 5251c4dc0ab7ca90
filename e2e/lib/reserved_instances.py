"""moto does not support launches into capacity reservations. This launches on demand instead and records the reservation of
each instance, for DescribeInstances and the number of available instances."""

import re
import xml.etree.ElementTree as ElementTree

TARGET = "TargetCapacitySpecification.DefaultTargetCapacityType"
MOTO_TARGETS = ("on-demand", "spot")
LIFECYCLES = {"capacity-block": "capacity-block", "interruptible-capacity-reservation": "interruptible-capacity-reservation"}


class ReservedInstances:
    def __init__(self, stand_in):
        self.stand_in, self.held = stand_in, {}

    def form(self, operation, form):
        """The form parameters of CreateFleet in a form that moto accepts."""
        if operation == "CreateFleet" and form.get(TARGET) not in MOTO_TARGETS:
            return {**form, TARGET: "on-demand"}
        return form

    def after(self, operation, asked, answer, templates):
        status, headers, body = answer
        if status != 200:
            return answer
        if operation == "CreateFleet":
            names = [one["LaunchTemplateSpecification"]["LaunchTemplateName"] for one in asked["LaunchTemplateConfigs"]]
            data = templates.get(names[0], {})
            target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
            if target:
                for instance in set(re.findall(r"i-[0-9a-f]{8,17}", body.decode())):
                    market = data.get("InstanceMarketOptions", {}).get("MarketType")
                    self.held[instance] = (target["CapacityReservationId"], LIFECYCLES.get(market))
                    self.count(target["CapacityReservationId"], -1)
        if operation == "TerminateInstances":
            for instance in asked["InstanceIds"]:
                if instance in self.held:
                    self.count(self.held.pop(instance)[0], 1)
        if operation == "DescribeInstances" and self.held:
            return status, headers, self.shown(body)
        return answer

    def count(self, reservation_id, change):
        for one in self.stand_in.there["CapacityReservations"]:
            if one["CapacityReservationId"] == reservation_id:
                one["AvailableInstanceCount"] += change

    def shown(self, body):
        root = ElementTree.fromstring(body)
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        ElementTree.register_namespace("", space.strip("{}"))
        for items in root.iter(space + "instancesSet"):
            for item in items:
                reservation_id, lifecycle = self.held.get(item.findtext(space + "instanceId"), (None, None))
                if not reservation_id:
                    continue
                ElementTree.SubElement(item, space + "capacityReservationId").text = reservation_id
                specification = ElementTree.SubElement(item, space + "capacityReservationSpecification")
                preference = ElementTree.SubElement(specification, space + "capacityReservationPreference")
                preference.text = "capacity-reservations-only"
                if lifecycle:
                    ElementTree.SubElement(item, space + "instanceLifecycle").text = lifecycle
        return ElementTree.tostring(root)
