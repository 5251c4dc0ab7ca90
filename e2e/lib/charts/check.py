"""Checks the objects that e2e/charts rendered: check.py FOLDER. Prints findings; the status is 1 if there are any."""

import pathlib
import sys

import config
import controller
import definitions
import kit

folder = pathlib.Path(sys.argv[1])
root = pathlib.Path(__file__).resolve().parents[3]
count = 0
for chart, check in {"karpenter": controller.check, "karpenter-crd": definitions.check, "karpenter-config": config.check}.items():
    cases = kit.load(folder, chart)
    count += len(cases)
    try:
        check(cases, root)
    except (KeyError, LookupError, ValueError, TypeError) as error:
        kit.findings.append(f"{chart}: a check failed with an exception: {error!r}, line {error.__traceback__.tb_next.tb_lineno}")
if (folder / "help").exists():
    controller.check_variables(kit.load(folder, "karpenter"), (folder / "help").read_text())
for case, line, holds in controller.check_notes(folder / "notes"):
    if not holds:
        kit.findings.append(f"karpenter/{case}: missing in the notes: {line}")
kit.finish(count)
