"""EC2 and IAM are eventually consistent: for some seconds, other calls do not find a new object. This hides new launch
templates, instance profiles and instances, with the error codes of AWS."""

import re
import time
import xml.etree.ElementTree as ElementTree

from stand_in import Refused

INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


class Consistency:
    def __init__(self, seconds, clock=time.monotonic):
        self.seconds, self.clock, self.hidden_until, self.refused = seconds, clock, {}, 0

    def hide(self, *names):
        self.hidden_until.update({name: self.clock() + self.seconds for name in names})

    def hidden(self, names):
        return [name for name in names if self.hidden_until.get(name, 0) > self.clock()]

    def refuse(self, status, code, message):
        self.refused += 1
        raise Refused(status, code, message)

    def before(self, operation, asked, templates):
        """Rejects a request that refers to a hidden object; `templates` are the data of launch templates by name."""
        if not self.seconds:
            return
        if operation in ("CreateFleet", "RunInstances", "DescribeLaunchTemplates", "DeleteLaunchTemplate"):
            self.check_templates(template_names(operation, asked))
        if operation in ("CreateFleet", "RunInstances"):
            self.check_profiles([templates.get(name, {}).get("IamInstanceProfile", {}).get("Name")
                                 for name in template_names(operation, asked)])
        if operation in ("DescribeInstances", "TerminateInstances", "CreateTags"):
            hidden = self.hidden(asked.get("InstanceIds", []) + asked.get("Resources", []))
            if hidden:
                ids = ", ".join(hidden)
                plural, verb = ("s", "do") if len(hidden) > 1 else ("", "does")
                self.refuse(400, "InvalidInstanceID.NotFound", f"The instance ID{plural} '{ids}' {verb} not exist")
        if operation in ("GetInstanceProfile", "AddRoleToInstanceProfile") and self.hidden([asked["InstanceProfileName"]]):
            self.refuse(404, "NoSuchEntity", f"Instance Profile {asked['InstanceProfileName']} cannot be found.")

    def check_templates(self, names):
        hidden = self.hidden(names)
        if hidden:
            self.refuse(400, "InvalidLaunchTemplateName.NotFoundException",
                        f"The specified launch template, with template name {hidden[0]}, does not exist.")

    def check_profiles(self, names):
        hidden = self.hidden(names)
        if hidden:
            self.refuse(400, "InvalidParameterValue", f"Value ({hidden[0]}) for parameter iamInstanceProfile.name is "
                        "invalid. Invalid IAM Instance Profile name")

    def after(self, operation, asked, answer):
        """The response without hidden objects; objects that it created are hidden from now on."""
        status, headers, body = answer
        if not self.seconds or status != 200:
            return answer
        if operation == "CreateLaunchTemplate":
            self.hide(asked["LaunchTemplateName"])
        if operation == "CreateInstanceProfile":
            self.hide(asked["InstanceProfileName"])
        if operation == "CreateFleet":
            self.hide(*INSTANCE.findall(body.decode()))
        if operation == "DescribeInstances":
            return status, headers, without(body, "instancesSet", "instanceId", self.hidden)
        if operation == "DescribeLaunchTemplates":
            return status, headers, without(body, "launchTemplates", "launchTemplateName", self.hidden)
        return answer


def template_names(operation, asked):
    if operation == "CreateFleet":
        return [one["LaunchTemplateSpecification"]["LaunchTemplateName"] for one in asked["LaunchTemplateConfigs"]]
    if operation == "RunInstances":
        return [asked.get("LaunchTemplate", {}).get("LaunchTemplateName")]
    return asked.get("LaunchTemplateNames", [])


def without(body, list_name, name, hidden):
    """A response of EC2 without the hidden members of its lists."""
    root = ElementTree.fromstring(body)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    ElementTree.register_namespace("", space.strip("{}"))
    for items in root.iter(space + list_name):
        for item in list(items):
            if hidden([item.findtext(space + name)]):
                items.remove(item)
    return ElementTree.tostring(root)
