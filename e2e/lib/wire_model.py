"""Parses captured requests to AWS with the service models of botocore and checks them: unknown parameters, values of another
type, missing required members, enums, ranges, lengths and patterns.

    operation, parameters, faults = wire_model.read(captured)

`captured` is what the fault proxy writes with --capture: service, method, path, target, body. `faults` is the list of errors; it
is empty for a valid request.
"""

import base64
import binascii
import datetime
import functools
import json
import re
import urllib.parse

import botocore.session

# Services are found by the name in the signature; a request without a signature asks STS to exchange a token.
UNSIGNED = "sts"


@functools.cache
def model(service):
    return botocore.session.get_session().get_service_model(UNSIGNED if service == "unsigned" else service)


def read(captured):
    """Operation, parameters by the model's names, and errors."""
    service = model(captured["service"])
    protocol = service.metadata["protocol"]
    if protocol in ("ec2", "query"):
        return read_form(service, captured, protocol)
    if protocol == "json":
        operation = service.operation_model(captured["target"].rsplit(".", 1)[-1])
        faults = []
        wanted = f"{service.metadata['targetPrefix']}.{operation.name}"
        if captured["target"] != wanted:
            faults.append(f"X-Amz-Target is {captured['target']}, not {wanted}")
        parameters = json.loads(captured["body"] or "{}")
        return operation.name, parameters, faults + check(operation.input_shape, parameters, operation.name)
    return read_rest(service, captured)


# --- forms: EC2, IAM, STS --------------------------------------------------------------------------------------------


def read_form(service, captured, protocol):
    form = dict(urllib.parse.parse_qsl(captured["body"], keep_blank_values=True))
    name, version = form.pop("Action", ""), form.pop("Version", "")
    if name not in service.operation_names:
        return name, {}, [f"{name} is no operation of {service.service_name}"]
    faults = [] if version == service.api_version else [f"Version is {version}, not {service.api_version}"]
    operation, unread = service.operation_model(name), dict(form)
    parameters = form_value(operation.input_shape, "", unread, protocol) if operation.input_shape else {}
    faults += [f"{name} has no parameter {key}" for key in unread]
    return name, parameters, faults + check(operation.input_shape, parameters, name)


def member_name(name, shape, protocol):
    """The name of a member in a form."""
    if protocol == "ec2":
        called = shape.serialization.get("queryName")
        if called:
            return called
        called = shape.serialization.get("name")
        return called[:1].upper() + called[1:] if called else name
    return shape.serialization.get("name", name)


def form_value(shape, prefix, unread, protocol):
    """Removes and returns the value at a prefix from the unread parameters; None if there is none."""
    if prefix and not any(key == prefix or key.startswith(prefix + ".") for key in unread):
        return None
    if shape.type_name == "structure":
        found = {}
        for name, member in shape.members.items():
            path = f"{prefix}.{member_name(name, member, protocol)}" if prefix else member_name(name, member, protocol)
            value = form_value(member, path, unread, protocol)
            if value is not None:
                found[name] = value
        return found if found or not prefix else None
    if shape.type_name == "list":
        flat = protocol == "ec2" or shape.serialization.get("flattened")
        inner = prefix if flat else f"{prefix}.{shape.member.serialization.get('name', 'member')}"
        found = []
        while True:
            value = form_value(shape.member, f"{inner}.{len(found) + 1}", unread, protocol)
            if value is None:
                return found or None
            found.append(value)
    text = unread.pop(prefix, None)
    return None if text is None else from_text(shape, text)


def from_text(shape, text):
    """The value with its type, or the text if it does not have that type."""
    kind = shape.type_name
    if kind in ("integer", "long") and re.fullmatch(r"-?\d+", text):
        return int(text)
    if kind in ("float", "double") and re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text):
        return float(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


# --- REST: EKS, ARC zonal shift --------------------------------------------------------------------------------------


def read_rest(service, captured):
    path, _, query = captured["path"].partition("?")
    for name in service.operation_names:
        operation = service.operation_model(name)
        http = operation.http
        template = http["requestUri"].partition("?")[0]
        pattern = re.sub(r"\\\{(\w+)(\\\+)?\\\}", r"(?P<\1>[^/]+)", re.escape(template))
        found = re.fullmatch(pattern, path)
        if not found or http["method"] != captured["method"]:
            continue
        located = {key: urllib.parse.unquote(value) for key, value in found.groupdict().items()}
        located.update(urllib.parse.parse_qsl(query))
        parameters, faults = json.loads(captured["body"] or "{}"), []
        members = operation.input_shape.members if operation.input_shape else {}
        for member, shape in members.items():
            key = shape.serialization.get("name", member)
            if shape.serialization.get("location") in ("uri", "querystring") and key in located:
                parameters[member] = from_text(shape, located.pop(key))
        faults += [f"{name} has no parameter {key}" for key in located]
        return name, parameters, faults + check(operation.input_shape, parameters, name)
    return "", {}, [f"{captured['method']} {path} is no operation of {service.service_name}"]


# --- checks ----------------------------------------------------------------------------------------------------------


def check(shape, value, where):
    """The errors of a value and everything in it."""
    if shape is None:
        return [f"{where} takes no parameters, has {sorted(value)}"] if value else []
    kind = shape.type_name
    if kind == "structure":
        if not isinstance(value, dict):
            return [f"{where} is {value!r}, not a structure"]
        names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
        known = {name: name for name in shape.members} | names
        faults = [f"{where} has no member {name}" for name in value if name not in known]
        present = {known[name] for name in value if name in known}
        faults += [f"{where}.{name} is missing" for name in shape.required_members if name not in present]
        for name, part in value.items():
            if name in known:
                faults += check(shape.members[known[name]], part, f"{where}.{name}")
        return faults
    if kind == "list":
        if not isinstance(value, list):
            return [f"{where} is {value!r}, not a list"]
        faults = in_range(shape, len(value), f"the length of {where}")
        return faults + [fault for at, part in enumerate(value) for fault in check(shape.member, part, f"{where}[{at}]")]
    if kind == "map":
        if not isinstance(value, dict):
            return [f"{where} is {value!r}, not a map"]
        faults = in_range(shape, len(value), f"the size of {where}")
        return faults + [fault for key, part in value.items()
                         for fault in check(shape.key, key, where) + check(shape.value, part, f"{where}[{key}]")]
    return check_scalar(shape, value, where)


def check_scalar(shape, value, where):
    kind = shape.type_name
    if kind in ("integer", "long", "float", "double"):
        wanted = int if kind in ("integer", "long") else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool):
            return [f"{where} is {value!r}, not a number"]
        return in_range(shape, value, where)
    if kind == "boolean":
        return [] if isinstance(value, bool) else [f"{where} is {value!r}, not a boolean"]
    if kind == "timestamp":
        return [] if isinstance(value, (int, float)) or is_time(value) else [f"{where} is {value!r}, not a time"]
    if not isinstance(value, str):
        return [f"{where} is {value!r}, not text"]
    if kind == "blob":
        return [] if is_base64(value) else [f"{where} is not base64"]
    faults = in_range(shape, len(value), f"the length of {where}")
    enum = getattr(shape, "enum", None)
    if enum and value not in enum:
        faults.append(f"{where} is {value!r}, none of {', '.join(enum)}")
    pattern = compiled(shape.metadata.get("pattern"))
    if pattern and not pattern.search(value):
        faults.append(f"{where} is {value!r}, which does not match {pattern.pattern}")
    return faults


def in_range(shape, number, where):
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and number < low:
        return [f"{where} is {number}, at least {low} is needed"]
    if high is not None and number > high:
        return [f"{where} is {number}, at most {high} is allowed"]
    return []


@functools.cache
def compiled(pattern):
    """The models use another regular expression syntax; patterns that Python cannot compile are not checked."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error:
        return None


def is_time(text):
    try:
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return True
    except (ValueError, AttributeError):
        return False


def is_base64(text):
    try:
        base64.b64decode(text, validate=True)
        return True
    except binascii.Error:
        return False
