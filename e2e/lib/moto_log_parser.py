"""Runs awslabs' LogParserForKarpenter on the log of a run, and checks its result for every node."""

import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

MODULE = "github.com/awslabs/LogParserForKarpenter@61d321d60040"
CANNOT_RUN_HERE = 77

# The columns of every node, and those that depend on the reason of its deletion.
OF_EVERY_NODE = (
    "Createdtime", "Nodepool", "Instancetypes", "Launchedtime", "Providerid", "Instancetype", "Zone", "Capacitytype",
    "Registeredtime", "K8snodename", "Initializedtime", "Annotationtime", "Annotation", "Tainttime", "Taint", "Deletedtime")
OF_DISRUPTED = ("Disruptiontime", "Disruptionreason", "Disruptiondecision", "Disruptednodecount", "Replacementnodecount",
                "Disruptedpodcount")
OF_INTERRUPTED = ("Interruptiontime", "Interruptionkind")


def find_program(given):
    """The given program, or one that Go builds from its module."""
    if given != "build":
        return pathlib.Path(given).resolve()
    if not shutil.which("go"):
        print("e2e/moto: there is no Go here to build LogParserForKarpenter with", file=sys.stderr)
        sys.exit(CANNOT_RUN_HERE)
    folder = pathlib.Path("target/log-parser").resolve()
    built = subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": str(folder)}, check=False)
    if built.returncode != 0:
        print(f"e2e/moto: {MODULE} cannot be built here", file=sys.stderr)
        sys.exit(CANNOT_RUN_HERE)
    return folder / "LogParserForKarpenter"


def parse(program, log):
    """The records that the program prints, by NodeClaim."""
    said = subprocess.run([program, log], check=True, capture_output=True, text=True)
    assert "error" not in said.stderr.lower(), said.stderr
    print(said.stdout, end="")
    names, *rows = csv.reader(said.stdout.splitlines())
    # Every column name ends with its number in brackets.
    names = [name.partition("[")[0] for name in names]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def log_parser_story(stage, program, interrupt, leave_nothing):
    """Three nodes are launched, one is interrupted and replaced, and all are deleted once their pods are deleted."""
    stage.start_controller()
    stage.apply_class_and_pool()
    # With a grace period nodeclaims are annotated. Of a command the program keeps the last node only: one node each.
    patch = {"spec": {"template": {"spec": {"terminationGracePeriod": "5m"}},
                      "disruption": {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "1"}]}}}
    stage.kubectl("patch", "nodepool", "default", "--type=merge", f"--patch={json.dumps(patch)}")
    stage.until("the class is ready", 120, stage.is_class_ready)
    stage.inflate(3, is_apart=True)
    stage.until("three pods run", 120, lambda: stage.running_pods() == 3)
    claims = {claim["metadata"]["name"]: claim for claim in stage.items("nodeclaims")}
    interrupted, lost = next((name, claim["status"]["providerID"].rsplit("/", 1)[1]) for name, claim in claims.items())
    interrupt(lost)
    stage.until("the interrupted machine is gone and three pods run", 120, lambda: stage.running_pods() == 3
                and lost not in [machine["InstanceId"] for machine in stage.machines()])
    claims.update((claim["metadata"]["name"], claim) for claim in stage.items("nodeclaims"))
    leave_nothing()
    records = parse(program, stage.folder / f"karpenter-{stage.controllers:03d}.log")
    missing = claims.keys() - records.keys()
    assert not missing, f"not found: {missing}"
    for name, record in records.items():
        wanted = OF_EVERY_NODE + (OF_INTERRUPTED if name == interrupted else OF_DISRUPTED)
        empty = [column for column in wanted if not record[column]]
        assert not empty, f"{name} has no {empty}"
        assert (record["Initialized"], record["Deleted"]) == ("true", "true"), record
        if name in claims:
            assert record["Providerid"] == claims[name]["status"]["providerID"].rsplit("/", 1)[1], record
            assert record["K8snodename"] == claims[name]["status"]["nodeName"], record
    assert records[interrupted]["Interruptionkind"] == "spot_interrupted", records[interrupted]
    print(f"{len(records)} nodes are complete in what LogParserForKarpenter reads")
