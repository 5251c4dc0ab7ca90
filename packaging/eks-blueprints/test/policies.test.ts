import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import * as blueprints from "@aws-quickstart/eks-blueprints";
import * as eks from "aws-cdk-lib/aws-eks";
import { KarpenterAddOn } from "../src";
import { ACCOUNT, CLUSTER, type Json, REGION, type Synthesized, synth, vpcCni } from "./support";

/** What `karpenter bootstrap aws` prints, with parts left open; a test of the binary holds the two together. */
const BOOTSTRAP = join(__dirname, "../../../terraform/policies.json");
/** What upstream's template allows, made by tools/policies/generate.py. */
const UPSTREAM = join(__dirname, "../../../../crates/karpenter-aws/testdata/upstream-policies.json");
/** IAM counts everything but white space. */
const LENGTH_MAX = 6144;

/** Statements by id, in one order. */
function statements(documents: Json[]): Record<string, Json> {
    const found: Json[] = documents.flatMap((document) => document.Statement);
    return Object.fromEntries(
        found.map(({ Sid, Action, Resource, Effect, Condition }) => [
            Sid,
            { Effect, Action: [Action].flat().sort(), Resource: [Resource].flat().sort(), Condition: Condition ?? {} },
        ]),
    );
}

function documents(made: Synthesized): Json[] {
    return made.of("AWS::IAM::ManagedPolicy", "blueprintsaddonkarpenter").map((policy) => policy.PolicyDocument);
}

function nodeRole(made: Synthesized): string {
    const [id] = made.all("AWS::IAM::Role").find(([name]) => name.includes("karpenternoderole")) ?? [];
    return `<${id}.Arn>`;
}

/** A file with cluster, account, partition and region left open, filled in for what was made. */
function filledIn(file: string, made: Synthesized): Json {
    const text = readFileSync(file, "utf8")
        .replaceAll(`arn:$\{partition}:iam::$\{account}:role/KarpenterNodeRole-$\{cluster}`, nodeRole(made))
        .replaceAll("$" + "{cluster}", CLUSTER)
        .replaceAll("$" + "{partition}", "aws")
        .replaceAll("$" + "{region}", REGION)
        .replaceAll("$" + "{account}", ACCOUNT);
    return JSON.parse(text);
}

describe("policies of the controller", () => {
    it("are those of karpenter bootstrap aws", async () => {
        const made = await synth([vpcCni(), new KarpenterAddOn({ interruptionHandling: true })]);
        const expected = statements(Object.values(filledIn(BOOTSTRAP, made)));
        assert.equal(Object.keys(expected).length, 18);
        assert.deepEqual(statements(documents(made)), expected);
    });

    it("are upstream's, statement by statement", async () => {
        const made = await synth([vpcCni(), new KarpenterAddOn({ interruptionHandling: true })]);
        const upstream: Record<string, Json> = filledIn(UPSTREAM, made);
        const ours = statements(documents(made));
        assert.deepEqual(Object.keys(ours).sort(), Object.keys(upstream).sort());
        for (const [sid, { effect, actions, resources, conditions }] of Object.entries(upstream)) {
            const Condition = Object.fromEntries(
                Object.entries<Json>(ours[sid].Condition).map(([operator, keys]) => [
                    operator,
                    Object.fromEntries(Object.entries<Json>(keys).map(([key, value]) => [key, [value].flat().sort()])),
                ]),
            );
            const expected = { Effect: effect, Action: actions, Resource: resources, Condition: conditions };
            assert.deepEqual({ ...ours[sid], Condition }, expected, sid);
        }
    });

    it("leave out the queue where there is none", async () => {
        const made = await synth([vpcCni(), new KarpenterAddOn()]);
        assert.deepEqual(made.of("AWS::SQS::Queue"), []);
        assert.deepEqual(made.of("AWS::Events::Rule"), []);
        assert.equal(JSON.stringify(documents(made)).includes("sqs:"), false);
        assert.equal(made.values().settings.interruptionQueue, undefined);
    });

    it("stay within IAM's limit with the longest name that a cluster can have", async () => {
        const clusterName = `n${"a".repeat(99)}`;
        const stackName = `s${"b".repeat(127)}`;
        const version = eks.KubernetesVersion.V1_32;
        const clusterProvider = new blueprints.GenericClusterProvider({
            version,
            clusterName,
            managedNodeGroups: [{ id: "nodes" }],
        });
        const addOn = new KarpenterAddOn({ interruptionHandling: true });
        const made = await synth([vpcCni(), addOn], { clusterProvider, stackName });
        assert.equal(made.values().settings.clusterName, clusterName);
        const lengths = documents(made).map((document) => JSON.stringify(document).length);
        assert.equal(lengths.length, 6);
        assert.ok(
            lengths.every((length) => length < LENGTH_MAX),
            `${lengths}`,
        );
        assert.ok(Math.max(...lengths) > 3000, "the name is in there");
        assert.equal(made.of("AWS::SQS::Queue")[0].QueueName, stackName.slice(0, 80));
        assert.equal(made.values().settings.interruptionQueue, stackName.slice(0, 80));
    });

    it("go to a role for Pod Identity where that is asked for", async () => {
        const made = await synth([vpcCni(), new KarpenterAddOn({ podIdentity: true })]);
        const [association] = made.of("AWS::EKS::PodIdentityAssociation");
        assert.equal(association.ServiceAccount, "blueprints-addon-karpenter");
        assert.equal(association.Namespace, "karpenter");
        const [role] = made.of("AWS::IAM::Role", "blueprintsaddonkarpenterrole");
        const actions = role.AssumeRolePolicyDocument.Statement.flatMap((one: Json) => one.Action);
        assert.ok(actions.includes("sts:AssumeRole") && actions.includes("sts:TagSession"));
        assert.equal(role.ManagedPolicyArns.length, 5);
        assert.deepEqual(made.values().serviceAccount, {
            create: true,
            name: "blueprints-addon-karpenter",
            annotations: {},
        });
        assert.equal(made.manifest("ServiceAccount"), undefined);
    });
});
