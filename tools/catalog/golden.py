#!/usr/bin/env python3
"""Extracts test data from upstream's instance-types page.

The page (website/content/en/docs/reference/instance-types.md of
github.com/aws/karpenter-provider-aws) lists the labels and the allocatable
resources that the provider computed for AL2023 nodes without block device
mappings or kubelet settings. It comes from live EC2 data and from the
provider's own code, so it checks both our data and our arithmetic. The values
are copied; nothing is recomputed here.
"""

import argparse
import csv
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "crates" / "karpenter-catalog" / "testdata" / "aws_golden.csv"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path, help="the page's Markdown file")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    arguments = parser.parse_args()

    page = read_page(arguments.page.read_text())
    names = sorted(page)
    keys = sorted({key for name in names for key in page[name]})
    with arguments.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["type"] + keys)
        for name in names:
            writer.writerow([name] + [page[name].get(key, "-") for key in keys])
    print(f"{len(names)} types, {len(keys)} labels and resources")


def read_page(text):
    """Values by type name and by label or resource; without what the page does not list."""
    page = {}
    for section in re.split(r"^### `", text, flags=re.M)[1:]:
        rows = re.findall(r"^ \|([^|]+)\|([^|]*)\|$", section, re.M)
        page[section.split("`")[0]] = {key: value for key, value in rows if key.strip() not in ("Label", "Resource", "--")}
    return page


if __name__ == "__main__":
    main()
