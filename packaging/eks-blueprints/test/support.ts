/** Stacks in this process, without an account: nothing is looked up and nothing is staged. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import * as blueprints from "@aws-quickstart/eks-blueprints";
import { App } from "aws-cdk-lib";
import { Annotations, Match, Template } from "aws-cdk-lib/assertions";
import { type IpFamily, KubernetesVersion } from "aws-cdk-lib/aws-eks";

// After a dozen stacks Node 20 begins to optimise one of CDK's largest functions, takes minutes for it, and does not end before.
setFlagsFromString("--no-turbo-escape");

// biome-ignore lint/suspicious/noExplicitAny: templates are JSON
export type Json = any;

// One per stack is for cleaning up, and not a leak.
process.setMaxListeners(100);

export const REGION = "eu-west-1";
export const ACCOUNT = "111122223333";
export const CLUSTER = "my-stack-name";

export interface SynthOptions {
    readonly version?: KubernetesVersion | "auto";
    readonly ipFamily?: IpFamily;
    readonly clusterProvider?: blueprints.ClusterProvider;
    readonly stackName?: string;
    readonly env?: { readonly account: string; readonly region: string };
}

/** With a version, because it would ask EKS for one. */
export function vpcCni(): blueprints.ClusterAddOn {
    return new blueprints.addons.VpcCniAddOn({ version: "v1.20.4-eksbuild.2" });
}

function newApp(): App {
    const outdir = mkdtempSync(join(tmpdir(), "karpenter-eks-blueprints-"));
    process.on("exit", () => rmSync(outdir, { recursive: true, force: true }));
    return new App({
        outdir,
        context: { "aws:cdk:disable-asset-staging": true, "aws:cdk:bundling-stacks": [] },
    });
}

export async function synth(addOns: blueprints.ClusterAddOn[], options: SynthOptions = {}): Promise<Synthesized> {
    let builder = blueprints.EksBlueprint.builder().version(options.version ?? KubernetesVersion.V1_32);
    if (options.ipFamily !== undefined) {
        builder = builder.ipFamily(options.ipFamily);
    }
    if (options.clusterProvider !== undefined) {
        builder = builder.clusterProvider(options.clusterProvider);
    }
    const { env, stackName } = options;
    const props = { ...(env === undefined ? {} : { env }), ...(stackName === undefined ? {} : { stackName }) };
    try {
        return new Synthesized(await builder.addOns(...addOns).buildAsync(newApp(), CLUSTER, props));
    } catch (error) {
        // Errors of CDK have the whole tree of constructs with them, and a test runner that prints one never ends.
        throw new Error((error as Error).message);
    }
}

/** A template with its references resolved for a fixed account. */
export class Synthesized {
    readonly template: Json;

    constructor(readonly stack: blueprints.EksBlueprint) {
        this.template = Template.fromStack(stack).toJSON();
    }

    all(type: string): [id: string, properties: Json][] {
        return Object.entries<Json>(this.template.Resources)
            .filter(([, resource]) => resource.Type === type)
            .map(([id, resource]) => [id, resource.Properties ?? {}]);
    }

    /** Properties of the resources of a type whose logical id contains a text. */
    of(type: string, part = ""): Json[] {
        return this.all(type)
            .filter(([id]) => id.toLowerCase().includes(part))
            .map(([, properties]) => this.plain(properties));
    }

    /** Names of what a resource waits for. */
    dependencies(part: string): string[] {
        const found = Object.entries<Json>(this.template.Resources).find(([id]) => id.includes(part));
        return found?.[1].DependsOn ?? [];
    }

    manifests(): Json[] {
        return this.of("Custom::AWSCDK-EKS-KubernetesResource").flatMap((resource) => JSON.parse(resource.Manifest));
    }

    manifest(kind: string): Json {
        return this.manifests().find((manifest) => manifest.kind === kind);
    }

    release(name: string): Json {
        return this.of("Custom::AWSCDK-EKS-HelmChart").find((chart) => chart.Release === name);
    }

    values(name = "karpenter"): Json {
        return JSON.parse(this.release(name).Values);
    }

    warnings(): string[] {
        return (
            Annotations.fromStack(this.stack)
                .findWarning("*", Match.anyValue())
                .map((message) => String(message.entry.data))
                // CDK has some of its own.
                .filter((text) => text.includes("[ack: karpenter:"))
        );
    }

    /** With references replaced by their values. */
    plain(value: Json): Json {
        if (Array.isArray(value)) {
            return value.map((one) => this.plain(one));
        }
        if (typeof value !== "object" || value === null) {
            return value;
        }
        if (value.Ref !== undefined) {
            return this.reference(value.Ref);
        }
        if (value["Fn::GetAtt"] !== undefined) {
            return this.attribute(value["Fn::GetAtt"][0], value["Fn::GetAtt"][1]);
        }
        if (typeof value["Fn::Sub"] === "string") {
            return value["Fn::Sub"].replaceAll(/\$\{([^}]+)\}/g, (_, id: string) => this.reference(id));
        }
        if (value["Fn::Join"] !== undefined) {
            const [separator, parts] = value["Fn::Join"];
            return this.plain(parts).join(separator);
        }
        return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, this.plain(one)]));
    }

    private reference(id: string): string {
        const known: Record<string, string> = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
        };
        const resource = this.template.Resources[id];
        return known[id] ?? (isCluster(resource) ? this.clusterName(resource) : `<${id}>`);
    }

    private attribute(id: string, attribute: string): Json {
        const resource = this.template.Resources[id];
        if (resource?.Type === "Custom::AWSCDKCfnJson") {
            return JSON.parse(this.plain(resource.Properties.Value));
        }
        if (isCluster(resource) && attribute === "Arn") {
            return `arn:aws:eks:${REGION}:${ACCOUNT}:cluster/${this.clusterName(resource)}`;
        }
        if (resource?.Type === "AWS::SQS::Queue") {
            const name = resource.Properties.QueueName;
            return attribute === "Arn" ? `arn:aws:sqs:${REGION}:${ACCOUNT}:${name}` : name;
        }
        return `<${id}.${attribute}>`;
    }

    private clusterName(resource: Json): string {
        return resource.Properties.Config?.name ?? resource.Properties.Name;
    }
}

function isCluster(resource: Json): boolean {
    return ["Custom::AWSCDK-EKS-Cluster", "AWS::EKS::Cluster"].includes(resource?.Type);
}

/** The text of the error that a blueprint ends with. */
export async function failure(addOns: blueprints.ClusterAddOn[], options: SynthOptions = {}): Promise<string> {
    try {
        await synth(addOns, options);
    } catch (error) {
        return (error as Error).message;
    }
    return "";
}
