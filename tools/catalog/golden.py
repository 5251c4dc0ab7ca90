#!/usr/bin/env python3
"""Extracts test data from the provider's published instance-type page.

The page (website/content/en/docs/reference/instance-types.md of
github.com/aws/karpenter-provider-aws) lists the labels and the allocatable
resources that the provider computed for AL2023 nodes without block device
mappings or kubelet settings. It comes from live EC2 data and from the
provider's own code, so it checks both our facts and our arithmetic. The values
are taken as they stand; nothing is recomputed here.
"""

import argparse
import csv
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "crates" / "karpenter-catalog" / "testdata" / "aws_golden.csv"

# At least one type of every category, architecture, hypervisor, accelerator kind and storage kind,
# and the smallest and largest sizes, where rounding shows.
SELECTED = """
a1.medium a1.metal c1.medium c3.large c4.8xlarge c5.large c5d.metal c5n.18xlarge c6gn.16xlarge c6in.32xlarge
c7a.medium c7g.metal c7gd.8xlarge c7i-flex.large c8gn.48xlarge d2.8xlarge d3en.12xlarge f2.48xlarge g4dn.metal
g5.48xlarge g5g.xlarge g6.12xlarge g6e.48xlarge g6f.large gr6f.4xlarge h1.16xlarge hpc6id.32xlarge hpc7g.16xlarge
i2.xlarge i3.large i3en.24xlarge i4g.16xlarge i7ie.48xlarge i8g.metal-24xl im4gn.4xlarge inf1.24xlarge inf2.48xlarge
is4gen.medium m1.small m4.16xlarge m5.xlarge m5zn.12xlarge m6a.48xlarge m6idn.metal m7i-flex.8xlarge m8g.metal-48xl
m9g.large p4d.24xlarge p4de.24xlarge p5.48xlarge p5en.48xlarge p6-b200.48xlarge r5b.metal r8g.24xlarge t1.micro
t2.nano t3.micro t3a.2xlarge t4g.small trn1.32xlarge trn1n.32xlarge trn2.48xlarge u-6tb1.56xlarge u7i-12tb.224xlarge
vt1.24xlarge x1e.32xlarge x2gd.metal x2iezn.12xlarge z1d.metal dl2q.24xlarge
""".split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path, help="the page's Markdown file")
    parser.add_argument("--all", action="store_true", help="take every type of the page, for a one-off full comparison")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    arguments = parser.parse_args()

    page = read_page(arguments.page.read_text())
    names = sorted(page) if arguments.all else sorted(SELECTED)
    keys = sorted({key for name in names for key in page[name]})
    with arguments.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["type"] + keys)
        for name in names:
            writer.writerow([name] + [page[name].get(key, "-") for key in keys])
    print(f"{len(names)} types, {len(keys)} labels and resources")


def read_page(text):
    """Type name to label or resource to value; what the page does not list is absent."""
    page = {}
    for section in re.split(r"^### `", text, flags=re.M)[1:]:
        rows = re.findall(r"^ \|([^|]+)\|([^|]*)\|$", section, re.M)
        page[section.split("`")[0]] = {key: value for key, value in rows if key.strip() not in ("Label", "Resource", "--")}
    return page


if __name__ == "__main__":
    main()
