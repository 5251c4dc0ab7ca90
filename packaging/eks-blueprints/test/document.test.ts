import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { KarpenterAddOn } from "../src";
import { documentProps } from "./document";
import { CLUSTER, type Json, REGION, type Synthesized, synth, vpcCni } from "./support";

/** Shared with the converter of the binary. */
const FIXTURE = join(__dirname, "../../../../crates/karpenter-legacy/tests/fixtures/add-on-with-nulls/expected.yaml");
const PROFILE = `KarpenterNodeInstanceProfile-50e11d08a974bc938cac17563b7b64e0-${REGION}`;

describe("the example of the guide", () => {
    let made: Synthesized;
    before(async () => {
        made = await synth([vpcCni(), new KarpenterAddOn(documentProps)], { version: "auto" });
    });

    it("makes a role that nodes can join the cluster with", () => {
        const [role] = made.of("AWS::IAM::Role", "karpenternoderole");
        assert.equal(role.AssumeRolePolicyDocument.Statement[0].Principal.Service, "ec2.amazonaws.com");
        assert.deepEqual(
            role.ManagedPolicyArns.map((arn: string) => arn.split("/").at(-1)),
            [
                "AmazonEKSWorkerNodePolicy",
                "AmazonEKS_CNI_Policy",
                "AmazonEC2ContainerRegistryReadOnly",
                "AmazonSSMManagedInstanceCore",
            ],
        );
        const [roleId] = made.all("AWS::IAM::Role").find(([id]) => id.includes("karpenternoderole")) ?? [];
        const mapped = JSON.parse(made.manifest("ConfigMap").data.mapRoles);
        assert.deepEqual(
            mapped.find((entry: Json) => entry.rolearn === `<${roleId}.Arn>`),
            {
                rolearn: `<${roleId}.Arn>`,
                username: "system:node:{{EC2PrivateDNSName}}",
                groups: ["system:bootstrappers", "system:nodes"],
            },
        );
        assert.deepEqual(made.of("AWS::IAM::InstanceProfile"), [
            { InstanceProfileName: PROFILE, Path: "/", Roles: [`<${roleId}>`] },
        ]);
        const outputs = made.plain(made.template.Outputs);
        assert.equal(outputs.KarpenterInstanceNodeRole.Value, `<${roleId}>`);
        assert.match(outputs.KarpenterInstanceNodeRole.Export.Name, /KarpenterNodeRoleName$/);
        assert.equal(outputs.KarpenterInstanceProfilename.Value, PROFILE);
        assert.match(outputs.KarpenterInstanceProfilename.Export.Name, /KarpenterInstanceProfileName$/);
    });

    it("makes a queue and the rules that fill it", () => {
        assert.deepEqual(made.of("AWS::SQS::Queue"), [
            { QueueName: CLUSTER, MessageRetentionPeriod: 300, SqsManagedSseEnabled: true },
        ]);
        const [policy] = made.of("AWS::SQS::QueuePolicy");
        const statements: Json[] = policy.PolicyDocument.Statement;
        assert.equal(statements.length, 2);
        const allowed = statements.find((one) => one.Effect === "Allow");
        assert.equal(allowed.Sid, "EC2InterruptionPolicy");
        assert.deepEqual(allowed.Principal.Service, ["sqs.amazonaws.com", "events.amazonaws.com"]);
        assert.equal(allowed.Action, "sqs:SendMessage");
        const denied = statements.find((one) => one.Effect === "Deny");
        assert.deepEqual(denied.Condition, { Bool: { "aws:SecureTransport": "false" } });

        const rules = made.of("AWS::Events::Rule");
        assert.deepEqual(
            rules.map((rule) => [rule.EventPattern.source[0], rule.EventPattern["detail-type"][0]]).sort(),
            [
                ["aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"],
                ["aws.ec2", "EC2 Instance Rebalance Recommendation"],
                ["aws.ec2", "EC2 Instance State-change Notification"],
                ["aws.ec2", "EC2 Spot Instance Interruption Warning"],
                ["aws.health", "AWS Health Event"],
            ],
        );
        for (const rule of rules) {
            assert.deepEqual(
                rule.Targets.map((target: Json) => target.Arn),
                [`arn:aws:sqs:${REGION}:111122223333:${CLUSTER}`],
            );
        }
    });

    it("makes a service account with a role of its own", () => {
        assert.equal(made.manifest("Namespace").metadata.name, "karpenter");
        const account = made.manifest("ServiceAccount");
        assert.equal(account.metadata.name, "blueprints-addon-karpenter");
        assert.equal(account.metadata.namespace, "karpenter");
        const [role] = made.of("AWS::IAM::Role", "blueprintsaddonkarpentersa");
        assert.equal(role.AssumeRolePolicyDocument.Statement[0].Action, "sts:AssumeRoleWithWebIdentity");
        assert.equal(
            Object.values(role.AssumeRolePolicyDocument.Statement[0].Condition.StringEquals).includes(
                "system:serviceaccount:karpenter:blueprints-addon-karpenter",
            ),
            true,
        );
        assert.equal(role.ManagedPolicyArns.length, 6);
    });

    it("installs the package's chart with the values that it documents", () => {
        const release = made.release("karpenter");
        assert.equal(release.Namespace, "karpenter");
        assert.equal(release.Wait, true);
        assert.equal(release.Timeout, "300s");
        assert.equal(release.Repository, undefined);
        assert.match(release.ChartAssetURL, /^s3:\/\//);
        const values = made.values();
        assert.equal(values.settings.clusterName, CLUSTER);
        assert.match(values.settings.clusterEndpoint, /\.Endpoint>$/);
        assert.equal(values.settings.interruptionQueue, CLUSTER);
        assert.equal(values.settings.defaultInstanceProfile, PROFILE);
        assert.equal(values.serviceAccount.create, false);
        assert.equal(values.serviceAccount.name, "blueprints-addon-karpenter");
        const account = made.manifest("ServiceAccount");
        assert.deepEqual(values.serviceAccount.annotations, account.metadata.annotations);
        assert.deepEqual(values.podLabels, { karpenter: "controller" });
    });

    it("makes the pool that the binary's converter makes of the same Provisioner", () => {
        const [pool, nodeClass] = parseAllDocuments(readFileSync(FIXTURE, "utf8")).map((one) => one.toJS());
        assert.deepEqual(made.manifest("NodePool").spec, pool.spec);
        const { role: _, ...expected } = nodeClass.spec;
        assert.deepEqual(made.manifest("EC2NodeClass").spec, { ...expected, instanceProfile: PROFILE });
    });

    it("takes things away in an order that ends machines first", () => {
        const names = (part: string) => made.dependencies(part).join(" ");
        assert.match(names("manifestdefaultpool"), /manifestdefaultnodetemplate/);
        assert.match(names("manifestdefaultpool"), /chartkarpenter/);
        assert.match(names("manifestdefaultnodetemplate"), /chartkarpenter/);
        for (const first of [
            "blueprintsaddonkarpentersaRole",
            "karpenternoderole",
            "Nodegroup",
            "karpenterqueue",
            "vpccni",
        ]) {
            assert.match(names("chartkarpenter"), new RegExp(first));
        }
    });

    it("lists changed behaviour", () => {
        const warnings = made.warnings().join("\n");
        assert.match(warnings, /no images of Amazon Linux 2 for Kubernetes 1\.35/);
        assert.match(warnings, /ttlSecondsUntilExpired becomes expireAfter/);
        assert.match(warnings, /values\.controller\.image\.repository is not set/);
    });
});

it("the profile's name is the original's where the region is known", async () => {
    const env = { account: "111122223333", region: "us-west-2" };
    const made = await synth([vpcCni(), new KarpenterAddOn()], { env });
    // md5 of my-stack-nameus-west-2, worked out with md5sum.
    assert.equal(
        made.of("AWS::IAM::InstanceProfile")[0].InstanceProfileName,
        "KarpenterNodeInstanceProfile-625c4beb79d7b0b4fc93729080ff85af",
    );
});
