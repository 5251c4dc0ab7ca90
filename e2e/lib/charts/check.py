"""Looks at what e2e/charts rendered: check.py FOLDER. Status 1 and a list of findings if anything is not as it must be."""

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
        kit.findings.append(f"{chart}: a check could not go on: {error!r}, line {error.__traceback__.tb_next.tb_lineno}")
if (folder / "help").exists():
    controller.check_variables(kit.load(folder, "karpenter"), (folder / "help").read_text())
for case, line, holds in controller.check_notes(folder / "notes"):
    if not holds:
        kit.findings.append(f"karpenter/{case}: the notes lack: {line}")
kit.finish(count)
