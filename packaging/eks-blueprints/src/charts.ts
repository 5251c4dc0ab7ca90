/** The releases. Without a repository they are made from the charts that come with this package. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { ClusterInfo, Values } from "@aws-quickstart/eks-blueprints";
import type { Duration } from "aws-cdk-lib";
import type { HelmChartOptions } from "aws-cdk-lib/aws-eks";
import { Asset } from "aws-cdk-lib/aws-s3-assets";
import type { Construct } from "constructs";

export interface Release {
    readonly id: string;
    readonly chart: string;
    readonly release: string;
    readonly namespace: string;
    readonly repository?: string | undefined;
    readonly version?: string | undefined;
    readonly values: Values;
    readonly timeout: Duration;
}

export function addRelease({ cluster }: ClusterInfo, release: Release): Construct {
    const { id, chart, repository, version, ...rest } = release;
    const source: HelmChartOptions =
        repository === undefined
            ? { chartAsset: new Asset(cluster, `${chart}-chart`, { path: folderOf(chart), exclude: ["ci"] }) }
            : { chart, repository, ...(version === undefined ? {} : { version }) };
    return cluster.addHelmChart(id, { ...source, ...rest, wait: true, createNamespace: false });
}

/** In a published package next to its code, in the repository where charts are. */
function folderOf(chart: string): string {
    const packageFolder = join(__dirname, "..", "..");
    const candidates = [join(packageFolder, "charts", chart), join(packageFolder, "..", "..", "charts", chart)];
    const found = candidates.find((folder) => existsSync(join(folder, "Chart.yaml")));
    if (found === undefined) {
        throw new Error(`There is no chart ${chart} in this package: give a repository.`);
    }
    return found;
}
