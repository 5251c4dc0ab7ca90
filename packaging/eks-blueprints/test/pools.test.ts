import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { IpFamily, KubernetesVersion } from "aws-cdk-lib/aws-eks";
import { KarpenterAddOn, type KarpenterAddOnProps, KarpenterV1AddOn } from "../src";
import { type PoolOptions, poolOf } from "../src/pool";
import type { Pool } from "../src/pools/objects";
import { shapeOf } from "../src/shape";
import { COMPAT_VERSION } from "../src/versions";
import { documentProps } from "./document";
import { synth, vpcCni } from "./support";

const OPTIONS: PoolOptions = {
    defaultInstanceProfile: "profile",
    nodeRoleName: "role",
    ipv6: false,
    kubernetes: "1.32",
};
const TAGS = { subnetTags: { a: "b" }, securityGroupTags: { c: "d" } };
const TERMS = { subnetSelectorTerms: [{ id: "subnet-1" }], securityGroupSelectorTerms: [{ id: "sg-1" }] };

function pool(props: KarpenterAddOnProps, options: Partial<PoolOptions> = {}): Pool | undefined {
    const version = props.compatVersion ?? COMPAT_VERSION;
    return poolOf(props, shapeOf(props), version, { ...OPTIONS, ...options });
}

describe("flat properties", () => {
    it("make a pool only with both tag sets", () => {
        assert.equal(pool({ subnetTags: { a: "b" } }), undefined);
        assert.equal(pool({ securityGroupTags: { a: "b" } }), undefined);
        assert.equal(pool({ ...TAGS, subnetTags: {} }), undefined);
        assert.equal(pool(TAGS)?.pool.kind, "NodePool");
    });

    it("take the earlier provisionerSpecs", () => {
        const made = pool({ ...TAGS, provisionerSpecs: { "kubernetes.io/arch": ["amd64", "arm64"] } });
        assert.deepEqual(made?.pool.spec.template.spec.requirements[0], {
            key: "kubernetes.io/arch",
            operator: "In",
            values: ["amd64", "arm64"],
        });
    });

    it("have the defaults of the v1alpha5 API", () => {
        const spec = pool(TAGS)?.pool.spec ?? {};
        assert.equal(spec.template.spec.expireAfter, "Never");
        assert.equal(spec.disruption.consolidationPolicy, "WhenEmpty");
        assert.equal(spec.disruption.consolidateAfter, "Never");
        assert.equal(pool({ ...TAGS, ttlSecondsAfterEmpty: 300 })?.pool.spec.disruption.consolidateAfter, "5m");
    });

    it("take what later versions added", () => {
        const made = pool({
            ...TAGS,
            labels: { team: "a", "beta.kubernetes.io/arch": "arm64" },
            annotations: { "karpenter.sh/do-not-consolidate": "true" },
            startupTaints: [{ key: "warming", effect: "NoSchedule" }],
            limits: { resources: { cpu: 100 } },
            amiFamily: "Bottlerocket",
            amiSelector: { "aws::name": "mine-*" },
            tags: { team: "a", "karpenter.sh/nodepool": "x" },
            blockDeviceMappings: [{ deviceName: "/dev/xvdb", ebs: { volumeSize: "50Gi", kmsKeyId: "key" } }],
        });
        assert.deepEqual(made?.pool.spec.template.metadata, {
            labels: { team: "a", "kubernetes.io/arch": "arm64" },
            annotations: { "karpenter.sh/do-not-disrupt": "true" },
        });
        assert.deepEqual(made?.pool.spec.template.spec.startupTaints, [{ key: "warming", effect: "NoSchedule" }]);
        assert.deepEqual(made?.pool.spec.limits, { cpu: 100 });
        // The label says which architecture, so the default does not.
        assert.equal(JSON.stringify(made?.pool.spec.template.spec.requirements).includes("arch"), false);
        assert.deepEqual(made?.nodeClass?.spec.amiSelectorTerms, [
            { owner: "self", name: "mine-*" },
            { owner: "amazon", name: "mine-*" },
        ]);
        assert.equal(made?.nodeClass?.spec.amiFamily, "Bottlerocket");
        assert.deepEqual(made?.nodeClass?.spec.tags, { team: "a" });
        assert.deepEqual(made?.nodeClass?.spec.blockDeviceMappings, [
            { deviceName: "/dev/xvdb", ebs: { volumeSize: "50Gi", kmsKeyID: "key" } },
        ]);
        assert.match(made?.warnings.join() ?? "", /tag karpenter.sh\/nodepool itself/);
    });

    it("need images for Ubuntu", () => {
        assert.throws(() => pool({ ...TAGS, amiFamily: "Ubuntu" }), /no Ubuntu images by itself/);
        const made = pool({ ...TAGS, amiFamily: "Ubuntu", amiSelector: { "aws-ids": "ami-1, ami-2" } });
        assert.deepEqual(made?.nodeClass?.spec.amiSelectorTerms, [{ id: "ami-1" }, { id: "ami-2" }]);
        assert.equal(made?.nodeClass?.spec.amiFamily, "AL2");
        assert.equal(made?.nodeClass?.spec.blockDeviceMappings[0].deviceName, "/dev/sda1");
    });

    it("can stay a Provisioner, without nulls", async () => {
        const made = await synth([vpcCni(), new KarpenterAddOn({ ...documentProps, api: "v1alpha5" })]);
        const provisioner = made.manifest("Provisioner");
        assert.equal(provisioner.apiVersion, "karpenter.sh/v1alpha5");
        assert.equal(provisioner.metadata.name, "default");
        assert.deepEqual(provisioner.spec, {
            taints: documentProps.taints,
            requirements: documentProps.requirements.map(({ key, op, vals }) => ({ key, operator: op, values: vals })),
            consolidation: { enabled: true },
            ttlSecondsUntilExpired: 2592000,
            weight: 20,
            provider: {
                amiFamily: "AL2",
                subnetSelector: documentProps.subnetTags,
                securityGroupSelector: documentProps.securityGroupTags,
            },
        });
        assert.equal(made.manifest("NodePool"), undefined);
        assert.deepEqual(made.values().legacyApi, { enabled: true });
        // The old definitions are in that chart only.
        assert.deepEqual(made.values("karpenter-crd"), { legacy: true });
        assert.match(made.dependencies("chartkarpenter0").join(), /karpentercrd/);
    });
});

describe("nested properties", () => {
    it("before 0.32 become what their Provisioner would", () => {
        const props = {
            compatVersion: "0.31.0",
            nodePoolSpec: { consolidation: { enabled: true }, limits: { cpu: 10 } },
            ec2NodeClassSpec: {
                subnetSelector: { "aws-ids": "subnet-1,subnet-2" },
                securityGroupSelector: { a: "b,c" },
                metadataOptions: { httpPutResponseHopLimit: 3 },
                userData: "echo",
            },
        };
        const made = pool(props);
        assert.equal(made?.pool.metadata.name, "default-provisioner");
        assert.equal(made?.pool.spec.template.spec.nodeClassRef.name, "default-nodetemplate");
        assert.deepEqual(made?.pool.spec.limits, { cpu: 10 });
        assert.equal(made?.nodeClass?.metadata.name, "default-nodetemplate");
        assert.deepEqual(made?.nodeClass?.spec.subnetSelectorTerms, [{ id: "subnet-1" }, { id: "subnet-2" }]);
        assert.deepEqual(made?.nodeClass?.spec.securityGroupSelectorTerms, [
            { tags: { a: "b" } },
            { tags: { a: "c" } },
        ]);
        // Given in part: EC2's own defaults filled the gaps.
        assert.deepEqual(made?.nodeClass?.spec.metadataOptions, {
            httpEndpoint: "enabled",
            httpProtocolIPv6: "disabled",
            httpPutResponseHopLimit: 3,
            httpTokens: "optional",
        });
        const old = pool({ ...props, api: "v1alpha5" });
        assert.equal(old?.nodeClass?.kind, "AWSNodeTemplate");
        assert.equal(old?.pool.spec.providerRef.name, "default-nodetemplate");
    });

    it("from 0.32 on become v1, with the defaults of their time", () => {
        const made = pool({ nodePoolSpec: {}, ec2NodeClassSpec: { ...TERMS, amiFamily: "AL2023" } });
        assert.deepEqual(made?.pool.metadata, { name: "default-nodepool" });
        assert.deepEqual(made?.pool.spec, {
            template: {
                spec: {
                    nodeClassRef: { group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default-ec2nodeclass" },
                    expireAfter: "720h",
                    requirements: [],
                },
            },
            disruption: {
                consolidationPolicy: "WhenEmptyOrUnderutilized",
                consolidateAfter: "0s",
                budgets: [{ nodes: "10%" }],
            },
        });
        assert.deepEqual(made?.nodeClass?.spec, {
            amiSelectorTerms: [{ alias: "al2023@latest" }],
            role: "role",
            ...TERMS,
            metadataOptions: {
                httpEndpoint: "enabled",
                httpProtocolIPv6: "disabled",
                httpPutResponseHopLimit: 2,
                httpTokens: "required",
            },
        });
    });

    it("keep images, profile and times that are given", () => {
        const made = pool({
            nodePoolSpec: {
                disruption: { consolidationPolicy: "WhenEmpty", consolidateAfter: "30s", expireAfter: "Never" },
            },
            ec2NodeClassSpec: {
                ...TERMS,
                amiFamily: "Bottlerocket",
                amiSelectorTerms: [{ id: "ami-1" }],
                instanceProfile: "mine",
                instanceStorePolicy: "RAID0",
            },
        });
        assert.equal(made?.pool.spec.template.spec.expireAfter, "Never");
        assert.equal(made?.pool.spec.disruption.consolidateAfter, "30s");
        assert.equal(made?.nodeClass?.spec.instanceProfile, "mine");
        assert.equal(made?.nodeClass?.spec.role, undefined);
        assert.equal(made?.nodeClass?.spec.amiFamily, "Bottlerocket");
        assert.equal(made?.nodeClass?.spec.instanceStorePolicy, "RAID0");
    });

    it("make no class without a pool, and may leave the class to others", () => {
        assert.equal(pool({ ec2NodeClassSpec: { ...TERMS, amiFamily: "AL2023" } }), undefined);
        assert.equal(pool({ nodePoolSpec: {} })?.nodeClass, undefined);
    });

    it("cannot become what there never was", () => {
        assert.throws(() => pool({ nodePoolSpec: {}, api: "v1alpha5" }), /below 0\.32\.0/);
    });
});

describe("V1", () => {
    const props = {
        nodePoolSpec: {
            labels: { team: "a" },
            taints: [{ key: "workload", value: "test", effect: "NoSchedule" }],
            requirements: [{ key: "karpenter.sh/capacity-type", operator: "In", values: ["spot"] }],
            expireAfter: "20m",
            disruption: { consolidationPolicy: "WhenUnderutilized", consolidateAfter: "1m", budgets: [{ nodes: "5" }] },
            weight: 20,
        },
        ec2NodeClassSpec: { ...TERMS, amiSelectorTerms: [{ alias: "bottlerocket@latest" }] },
    };

    it("is copied, with the current name of the consolidation policy", async () => {
        const made = await synth([new KarpenterV1AddOn(props)]);
        const { metadata, spec } = made.manifest("NodePool");
        assert.equal(metadata.name, "default-nodepool");
        assert.deepEqual(spec.template.metadata, { labels: { team: "a" } });
        assert.equal(spec.template.spec.expireAfter, "20m");
        assert.deepEqual(spec.disruption, {
            ...props.nodePoolSpec.disruption,
            consolidationPolicy: "WhenEmptyOrUnderutilized",
        });
        const nodeClass = made.manifest("EC2NodeClass");
        assert.equal(nodeClass.metadata.name, "default-ec2nodeclass");
        assert.match(nodeClass.spec.role, /karpenternoderole/);
        assert.equal(nodeClass.spec.amiFamily, undefined);
        // In kube-system, which is not created, and with the CRDs as a separate release.
        assert.equal(made.release("karpenter").Namespace, "kube-system");
        assert.equal(made.manifest("Namespace"), undefined);
        assert.deepEqual(made.values("karpenter-crd"), { legacy: false });
    });

    it("is known by its properties to the other class too", async () => {
        const made = await synth([new KarpenterAddOn(props)]);
        assert.equal(made.manifest("NodePool").spec.template.spec.expireAfter, "20m");
    });

    it("takes charts from a repository", async () => {
        const made = await synth([
            new KarpenterV1AddOn({
                repository: "oci://registry.example.com/karpenter",
                crdRepository: "oci://registry.example.com/karpenter-crd",
                version: "1.14.1",
            }),
        ]);
        const release = made.release("karpenter");
        assert.equal(release.Repository, "oci://registry.example.com/karpenter");
        assert.equal(release.Version, "1.14.1");
        assert.equal(made.release("karpenter-crd").Version, "1.14.1");
        assert.deepEqual(made.warnings(), []);
    });
});

it("IPv6 clusters get addresses and a metadata service to match", async () => {
    const addOn = new KarpenterAddOn({ nodePoolSpec: {}, ec2NodeClassSpec: { ...TERMS, amiFamily: "AL2023" } });
    const made = await synth([addOn], { ipFamily: IpFamily.IP_V6 });
    assert.equal(made.manifest("EC2NodeClass").spec.metadataOptions.httpProtocolIPv6, "enabled");
    const [policy] = made.of("AWS::IAM::Policy", "karpenternodeipv6policy");
    assert.ok(JSON.stringify(policy.PolicyDocument).includes("ec2:AssignIpv6Addresses"));
    assert.equal(pool(TAGS, { ipv6: true })?.nodeClass?.spec.metadataOptions.httpProtocolIPv6, "enabled");
});

it("AL2 is warned of only where it has no images", async () => {
    assert.deepEqual(pool(TAGS)?.warnings, []);
    assert.match(pool(TAGS, { kubernetes: "1.33" })?.warnings.join() ?? "", /Amazon Linux 2/);
    const made = await synth([vpcCni(), new KarpenterAddOn(TAGS)], { version: KubernetesVersion.V1_33 });
    assert.match(made.warnings().join(), /Amazon Linux 2/);
});
