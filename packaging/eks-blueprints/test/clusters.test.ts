import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as blueprints from "@aws-quickstart/eks-blueprints";
import * as eks from "aws-cdk-lib/aws-eks";
import * as eksv2 from "aws-cdk-lib/aws-eks-v2";
import { Construct } from "constructs";
import { KarpenterAddOn, KarpenterV1AddOn } from "../src";
import { checkNoTerminationHandler } from "../src/conflicts";
import { CLUSTER, failure, synth, vpcCni } from "./support";

describe("other add-ons", () => {
    it("VPC CNI must come before", async () => {
        const expected = `Missing a dependency for VpcCniAddOn for ${CLUSTER}`;
        assert.equal(await failure([new KarpenterAddOn()]), expected);
        assert.equal(await failure([new KarpenterAddOn(), vpcCni()]), expected);
        assert.equal(await failure([vpcCni(), new KarpenterAddOn()]), "");
        assert.equal(await failure([new KarpenterAddOn({ requireVpcCni: false })]), "");
        // Later generations did without it.
        assert.equal(await failure([new KarpenterAddOn({ nodePoolSpec: {} })]), "");
        assert.equal(await failure([new KarpenterV1AddOn({ requireVpcCni: true })]), expected);
    });

    it("the cluster autoscaler cannot be there, whichever comes first", async () => {
        const autoscaler = () => new blueprints.addons.ClusterAutoScalerAddOn();
        const conflict = (name: string) => `Deploying ${CLUSTER} failed due to conflicting add-on: ${name}.`;
        for (const karpenter of [() => new KarpenterAddOn(), () => new KarpenterV1AddOn()]) {
            assert.equal(await failure([vpcCni(), autoscaler(), karpenter()]), conflict("ClusterAutoScalerAddOn"));
            assert.equal(await failure([vpcCni(), karpenter(), autoscaler()]), conflict("KarpenterAddOn"));
        }
    });

    it("the termination handler is not needed, except by versions that had no handling of their own", async () => {
        const expected =
            "Karpenter supports native interruption handling, so Node Termination Handler will not be necessary.";
        const handler = () => new blueprints.addons.AwsNodeTerminationHandlerAddOn();
        const clusterProvider = () =>
            new blueprints.AsgClusterProvider({ id: "nodes", version: eks.KubernetesVersion.V1_32 });
        const run = (...addOns: blueprints.ClusterAddOn[]) => failure(addOns, { clusterProvider: clusterProvider() });
        assert.equal(await run(vpcCni(), handler(), new KarpenterAddOn()), expected);
        assert.equal(await run(handler(), new KarpenterV1AddOn()), expected);
        assert.equal(await run(vpcCni(), handler(), new KarpenterAddOn({ compatVersion: "0.18.0" })), "");
    });

    it("the termination handler is seen however it is known", async () => {
        const made = await synth([]);
        const clusterInfo = made.stack.getClusterInfo();
        checkNoTerminationHandler(clusterInfo);
        clusterInfo.addProvisionedAddOn("AwsNodeTerminationHandlerAddOn", new Construct(made.stack, "handler"));
        assert.throws(() => checkNoTerminationHandler(clusterInfo), /native interruption handling/);
    });
});

describe("clusters", () => {
    it("that are imported cannot be changed as needed", async () => {
        const clusterProvider = new blueprints.ImportClusterProvider({
            clusterName: "imported",
            version: eks.KubernetesVersion.V1_32,
            clusterEndpoint: "https://example.com",
            clusterCertificateAuthorityData: "data",
            kubectlRoleArn: "arn:aws:iam::111122223333:role/kubectl",
        });
        assert.equal(
            await failure([new KarpenterV1AddOn()], { clusterProvider }),
            "KarpenterAddOn cannot be used with imported clusters as it requires changes to the cluster authentication.",
        );
    });

    it("in Auto Mode have it already", async () => {
        for (const [addOn, name] of [
            [new KarpenterAddOn(), "KarpenterAddOn"],
            [new KarpenterV1AddOn(), "KarpenterV1AddOn"],
        ] as const) {
            const clusterProvider = new blueprints.AutomodeClusterProvider({ version: eks.KubernetesVersion.V1_32 });
            assert.equal(
                await failure([addOn], { clusterProvider }),
                `Deploying ${CLUSTER} failed. Add-on ${name} is already available on the cluster with EKS Auto Mode`,
            );
        }
    });

    it("of the second generation let nodes in by an access entry", async () => {
        const clusterProvider = new blueprints.GenericClusterProviderV2({
            version: eks.KubernetesVersion.V1_32,
            defaultCapacityType: eksv2.DefaultCapacityType.NODEGROUP,
            managedNodeGroups: [{ id: "nodes" }],
        });
        const made = await synth([new KarpenterV1AddOn({ namespace: "karpenter" })], { clusterProvider });
        const entries = made.of("AWS::EKS::AccessEntry").filter((entry) => entry.Type === "EC2_LINUX");
        assert.ok(entries.some((entry) => entry.PrincipalArn.includes("karpenternoderole")));
        assert.equal(made.manifest("Namespace").metadata.name, "karpenter");
        assert.equal(made.values().settings.clusterName, CLUSTER);
    });

    it("that do not read aws-auth let nodes in by an access entry", async () => {
        const clusterProvider = new blueprints.GenericClusterProvider({
            version: eks.KubernetesVersion.V1_32,
            authenticationMode: eks.AuthenticationMode.API,
            managedNodeGroups: [{ id: "nodes" }],
        });
        const made = await synth([new KarpenterV1AddOn()], { clusterProvider });
        const entries = made.of("AWS::EKS::AccessEntry").filter((entry) => entry.Type === "EC2_LINUX");
        assert.ok(entries.some((entry) => entry.PrincipalArn.includes("karpenternoderole")));
    });
});
