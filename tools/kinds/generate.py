#!/usr/bin/env python3
"""Writes the table of built-in Kubernetes kinds for karpenter-apiserver.

    tools/kinds/generate.py "$(go env GOMODCACHE)/k8s.io" [--check]

The argument is a directory that holds the Go modules named in MODULES, in the
layout of the Go module cache (`go mod download k8s.io/kubernetes@v1.35.4 ...`).
It is run by hand when the Kubernetes version changes; the result is checked in.

Three descriptions of the same API are joined, because each lacks something that
the others have:

* kubernetes/api/openapi-spec/v3: fields, types, list types and keys, merge
  keys, required fields, defaults. Descriptions are not taken.
* kubernetes/api/discovery: resources, short names, categories, subresources,
  verbs, and the order of groups.
* the Go type declarations (types.go): field tags, which hold the protobuf field
  numbers, and how Go's encoder treats an empty field. Fields of embedded
  structs are flattened; their protobuf number becomes a path of two numbers.

Only group versions that are served by default are written: the stable ones.

The output is text, one fact per line, so that a new Kubernetes version can be
reviewed as a diff:

    source MODULE VERSION
    package ALIAS OPENAPI-PREFIX
    group GROUP VERSION...                 in the order of discovery; "-" is the core group
    kind GROUP VERSION KIND TYPE PLURAL SINGULAR SCOPE VERBS [short=a,b] [categories=a,b] [hash=H]
    sub NAME GROUP/VERSION/KIND VERBS      a subresource of the kind above
    type ALIAS.NAME SPECIAL [atomic] [gvk=GROUP/VERSION/KIND]
     NAME TYPE PROTOBUF FLAGS [key=value]  a field of the type above, indented by one space

SPECIAL is "struct" or names a type with its own encoding ("time", "quantity",
...). A field's TYPE is a letter (s string, y base64 bytes, i int32, l int64,
d double, b boolean), "[" and "{" before a type make a list or a string-keyed
map of it, anything else refers to a type. PROTOBUF is a number, a path "2.1",
or "-". FLAGS are letters: r required, p a Go pointer, o omitempty, z omitzero;
"-" for none. Keys: list (atomic, set, or the key fields of a map list), map
(atomic), merge (merge key), strategy, go (the Go name of a plain type that has
one of its own), default (JSON, without spaces).
"""

import argparse
import json
import pathlib
import re
import sys

MODULES = {
    "kubernetes": "v1.35.4",
    "api": "v0.35.4",
    "apimachinery": "v0.35.4",
    "apiextensions-apiserver": "v0.35.4",
    "kube-aggregator": "v0.35.4",
}
OUTPUT = pathlib.Path(__file__).parents[2] / "crates/karpenter-apiserver/data/kinds.txt"

# Types whose JSON form differs from their Go fields.
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": "duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "fields",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch": "patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "json",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": "schemaorarray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "schemaorbool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
}
# Types that a server needs in addition to the kinds in discovery.
EXTRA = [
    "io.k8s.apimachinery.pkg.apis.meta.v1." + name
    for name in ("APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Status", "WatchEvent")
]


class GoTypes:
    """Struct declarations of Go packages, by import path and name."""

    def __init__(self, root):
        self.root = root
        self.packages = {}

    def directory(self, import_path):
        module, _, rest = import_path.removeprefix("k8s.io/").partition("/")
        if module not in MODULES:
            return None
        return self.root / f"{module}@{MODULES[module]}" / rest

    def package(self, import_path):
        if import_path not in self.packages:
            structs = {}
            directory = self.directory(import_path)
            for file in sorted(directory.glob("*.go")) if directory else []:
                if not re.search(r"_test\.go$|^zz_|generated", file.name):
                    self.parse(file, structs)
            self.packages[import_path] = structs
        return self.packages[import_path]

    @staticmethod
    def parse(file, structs):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
        imports = {}
        for block in re.findall(r"^import (?:\((.*?)^\)|(.*?)$)", text, flags=re.S | re.M):
            for alias, path in re.findall(r'^\s*(\w+)?\s*"([^"]+)"', "".join(block), flags=re.M):
                imports[alias or path.rsplit("/", 1)[-1]] = path
        for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, flags=re.S | re.M):
            fields = []
            for line in body.splitlines():
                match = re.match(r"\s*(?:(\w+)\s+)?([\w.*\[\]]+)\s+`([^`]*)`", line)
                if match:
                    go_name, go_type, tags = match.groups()
                    fields.append((go_name, go_type, dict(re.findall(r'(\w+):"([^"]*)"', tags))))
            structs[name] = (imports, fields)

    def fields(self, import_path, name):
        """JSON name -> (protobuf path, is a pointer, JSON options, Go type), embedded structs flattened."""
        found = {}
        structs = self.package(import_path)
        if name not in structs:
            return None
        imports, declared = structs[name]
        for go_name, go_type, tags in declared:
            json_name, *options = tags.get("json", "").split(",")
            number = tags["protobuf"].split(",")[1] if "," in tags.get("protobuf", "") else None
            if json_name == "-":
                continue
            if json_name == "":
                package, _, type_name = go_type.lstrip("*").rpartition(".")
                path = imports[package] if package else import_path
                for inner, (numbers, *rest) in self.fields(path, type_name).items():
                    found[inner] = ([number] + numbers if number and numbers else [], *rest)
                continue
            package = import_path.rsplit("/", 1)[-1]
            bare = re.sub(r"(?<![\w.])([A-Z])", rf"{package}.\1", go_type.lstrip("*"))
            found[json_name] = ([number] if number else [], go_type.startswith("*"), options, bare)
        return found


class Schemas:
    """All OpenAPI schemas, and short names for their packages."""

    def __init__(self, directory):
        self.all = {}
        for file in sorted(directory.glob("*.json")):
            self.all.update(json.loads(file.read_text()).get("components", {}).get("schemas", {}))
        self.kinds = {}
        for name, schema in self.all.items():
            for gvk in schema.get("x-kubernetes-group-version-kind", []):
                self.kinds[gvk["group"], gvk["version"], gvk["kind"]] = name

    @staticmethod
    def alias(package):
        *_, group, version = package.split(".")
        return group if version == "v1" else group + version

    def short(self, name):
        package, _, kind = name.rpartition(".")
        return f"{self.alias(package)}.{kind}"


def import_path(package):
    module, _, rest = package.removeprefix("io.k8s.").partition(".")
    return f"k8s.io/{module}/{rest.replace('.', '/')}"


def reference(schema):
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    if "allOf" in schema:
        (only,) = schema["allOf"]
        return only["$ref"].rsplit("/", 1)[-1]
    return None


def type_text(schemas, schema, wanted):
    target = reference(schema)
    if target:
        wanted.append(target)
        return schemas.short(target)
    kind, form = schema["type"], schema.get("format")
    if kind == "array":
        return "[" + type_text(schemas, schema["items"], wanted)
    if kind == "object":
        return "{" + type_text(schemas, schema["additionalProperties"], wanted)
    return {
        ("string", None): "s", ("string", "byte"): "y", ("integer", "int32"): "i", ("integer", "int64"): "l",
        ("number", "double"): "d", ("boolean", None): "b",
    }[kind, form]


def field_line(schemas, name, schema, go, required, wanted):
    numbers, pointer, options, go_type = go
    flags = "".join(
        letter
        for letter, holds in (
            ("r", required), ("p", pointer), ("o", "omitempty" in options), ("z", "omitzero" in options),
        )
        if holds
    )
    parts = [name, type_text(schemas, schema, wanted), ".".join(numbers) or "-", flags or "-"]
    listing = schema.get("x-kubernetes-list-type")
    if listing == "map":
        listing = ",".join(schema["x-kubernetes-list-map-keys"])
    for key, value in (
        ("list", listing), ("map", schema.get("x-kubernetes-map-type")),
        ("merge", schema.get("x-kubernetes-patch-merge-key")), ("strategy", schema.get("x-kubernetes-patch-strategy")),
    ):
        if value:
            parts.append(f"{key}={value}")
    # Only named plain types, also as elements, and named maps; the type shows the rest.
    if "." in go_type and ("." not in parts[1] or parts[1][0] in "[{" and "]" not in go_type):
        parts.append(f"go={go_type}")
    if "default" in schema:
        parts.append("default=" + json.dumps(schema["default"], separators=(",", ":")))
    line = " ".join(parts)
    if line.count(" ") != len(parts) - 1:
        raise ValueError(f"a part contains a space: {line}")
    return line


def type_lines(schemas, go_types, name, wanted):
    schema = schemas.all[name]
    head = ["type", schemas.short(name), SPECIAL.get(name, "struct")]
    if "x-kubernetes-map-type" in schema:
        head.append(schema["x-kubernetes-map-type"])
    gvks = schema.get("x-kubernetes-group-version-kind", [])
    if len(gvks) == 1:
        head.append("gvk={}/{version}/{kind}".format(gvks[0]["group"] or "-", **gvks[0]))
    lines = [" ".join(head)]
    package, _, kind = name.rpartition(".")
    go = None if name in SPECIAL else go_types.fields(import_path(package), kind)
    for field, property_schema in sorted(schema.get("properties", {}).items()):
        if go is None or field not in go:
            raise ValueError(f"{name}.{field} has no Go declaration")
        required = field in schema.get("required", [])
        lines.append(" " + field_line(schemas, field, property_schema, go[field], required, wanted))
    return lines


def served_versions(directory):
    """Groups in discovery order with their stable versions."""
    yield "", ["v1"]
    for group in json.loads((directory / "apis.json").read_text())["groups"]:
        versions = [version["version"] for version in group["versions"] if re.fullmatch(r"v\d+", version["version"])]
        if versions:
            yield group["name"], versions


def kind_lines(schemas, directory, group, version, wanted):
    file = f"apis__{group}__{version}.json" if group else f"api__{version}.json"
    for resource in json.loads((directory / file).read_text())["resources"]:
        own_group = resource.get("group", group)
        own_version = resource.get("version", version)
        name = schemas.kinds.get((own_group, own_version, resource["kind"]))
        if name:
            wanted.append(name)
            list_name = schemas.kinds.get((own_group, own_version, resource["kind"] + "List"))
            wanted.extend([list_name] if list_name else [])
        plural, _, subresource = resource["name"].partition("/")
        verbs = ",".join(resource["verbs"])
        if subresource:
            yield f"sub {subresource} {own_group or '-'}/{own_version}/{resource['kind']} {verbs}"
            continue
        parts = [
            "kind", group or "-", version, resource["kind"], schemas.short(name), plural, resource["singularName"],
            "namespaced" if resource["namespaced"] else "cluster", verbs,
        ]
        for key, value in (
            ("short", ",".join(resource.get("shortNames", []))), ("categories", ",".join(resource.get("categories", []))),
            ("hash", resource.get("storageVersionHash")),
        ):
            if value:
                parts.append(f"{key}={value}")
        yield " ".join(parts)


def generate(root):
    kubernetes = root / f"kubernetes@{MODULES['kubernetes']}" / "api"
    schemas = Schemas(kubernetes / "openapi-spec/v3")
    go_types = GoTypes(root)
    wanted = list(EXTRA)
    head = [f"source k8s.io/{module} {version}" for module, version in sorted(MODULES.items())]
    groups, kinds = [], []
    for group, versions in served_versions(kubernetes / "discovery"):
        groups.append(" ".join(["group", group or "-", *versions]))
        for version in versions:
            kinds.extend(kind_lines(schemas, kubernetes / "discovery", group, version, wanted))
    types = {}
    while wanted:
        name = wanted.pop()
        if name not in types:
            types[name] = None
            types[name] = type_lines(schemas, go_types, name, wanted)
    packages = {}
    for name in types:
        package = name.rpartition(".")[0]
        if packages.setdefault(schemas.alias(package), package) != package:
            raise ValueError(f"two packages have the alias {schemas.alias(package)}")
    head.extend(f"package {alias} {package}" for alias, package in sorted(packages.items()))
    body = [line for _, lines in sorted(types.items()) for line in lines]
    return "\n".join(head + groups + kinds + body) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", type=pathlib.Path, help="directory with the k8s.io modules")
    parser.add_argument("--check", action="store_true", help="compare with the checked-in file, write nothing")
    arguments = parser.parse_args()
    text = generate(arguments.modules)
    if arguments.check:
        if OUTPUT.read_text() != text:
            sys.exit(f"{OUTPUT.name} differs from the sources")
        return
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text)
    print(f"{OUTPUT.name}: {len(text)} bytes, {text.count(chr(10))} lines")


if __name__ == "__main__":
    main()
