import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KarpenterAddOn } from "../src";
import { checkFlat, checkNested, checkV1 } from "../src/checks";
import type { FlatProps, NestedProps } from "../src/props";
import { shapeOf } from "../src/shape";
import { isAtLeast } from "../src/versions";
import { failure, synth, vpcCni } from "./support";

const TERMS = { subnetSelectorTerms: [{ id: "subnet-1" }], securityGroupSelectorTerms: [{ id: "sg-1" }] };

function text(run: () => unknown): string {
    try {
        run();
    } catch (error) {
        return (error as Error).message;
    }
    return "";
}

/** Version, properties, and the text; "" where nothing is wrong. */
const FLAT: [version: string, props: FlatProps, expected: string][] = [
    [
        "0.14.0",
        { consolidation: { enabled: true } },
        "The prop consolidation is only supported on versions v0.15.0 and later.",
    ],
    ["0.15.0", { consolidation: { enabled: true } }, ""],
    [
        "0.25.0",
        { consolidation: { enabled: true }, ttlSecondsAfterEmpty: 30 },
        "Consolidation and ttlSecondsAfterEmpty must be mutually exclusive.",
    ],
    ["0.25.0", { consolidation: { enabled: false }, ttlSecondsAfterEmpty: 30 }, ""],
    ["0.15.0", { weight: 20 }, "The prop weight is only supported on versions v0.16.0 and later."],
    ["v0.16.0", { weight: 20 }, ""],
    ["0.17.0", { repository: "https://charts.example.com" }, "Please provide the OCI repository."],
    ["0.17.0", { repository: "oci://registry.example.com/karpenter" }, ""],
    [
        "0.16.0",
        { repository: "oci://registry.example.com/karpenter" },
        "Please provide the older Karpenter repository url.",
    ],
    ["0.16.0", { repository: "https://charts.example.com" }, ""],
    [
        "0.18.1",
        { interruptionHandling: true },
        "Interruption handling is only supported on versions v0.19.0 and later.",
    ],
    ["0.19.0", { interruptionHandling: true }, ""],
];

const NESTED: [version: string, kubernetes: string, props: NestedProps, expected: string][] = [
    ["1.14.1", "1.22", {}, "Please upgrade your EKS Kubernetes version to start using Karpenter."],
    ["1.14.1", "1.41", {}, ""],
    ["0.20.0", "1.24", {}, "Please use Karpenter version 0.21.0 or above."],
    [
        "0.22.0",
        "1.24",
        { ec2NodeClassSpec: { detailedMonitoring: true, subnetSelector: {}, securityGroupSelector: {} } },
        "Detailed Monitoring is not available in this version of Karpenter. Please upgrade to at least 0.23.0.",
    ],
    [
        "0.33.0",
        "1.28",
        { nodePoolSpec: { disruption: { budgets: [{ nodes: "1" }] } } },
        "You cannot set disruption budgets for this version of Karpenter. Please upgrade to 0.34.0 or higher.",
    ],
    [
        "0.32.0",
        "1.28",
        { nodePoolSpec: { consolidation: { enabled: true } } },
        "Consolidation features are only available for previous versions of Karpenter.",
    ],
    [
        "1.14.1",
        "1.32",
        { nodePoolSpec: { ttlSecondsUntilExpired: 60 } },
        "Consolidation features are only available for previous versions of Karpenter.",
    ],
    [
        "0.34.0",
        "1.29",
        { nodePoolSpec: { disruption: { consolidationPolicy: "WhenUnderutilized", consolidateAfter: "30s" } } },
        "You cannot set consolidateAfter value if the consolidation policy is set to Underutilized.",
    ],
    ["0.34.0", "1.29", { ec2NodeClassSpec: TERMS }, "Please provide the AMI Family for your EC2NodeClass."],
    [
        "0.34.0",
        "1.29",
        { ec2NodeClassSpec: { amiFamily: "AL2", subnetSelectorTerms: [] } },
        "Please provide SecurityGroupTerm for your EC2NodeClass.",
    ],
    [
        "0.34.0",
        "1.29",
        { ec2NodeClassSpec: { amiFamily: "AL2", securityGroupSelectorTerms: [] } },
        "Please provide subnetGroupTerm for your EC2NodeClass.",
    ],
    [
        "0.31.0",
        "1.28",
        { nodePoolSpec: { disruption: { consolidationPolicy: "WhenEmpty" } } },
        "Disruption configuration is only supported on versions v0.32.0 and later.",
    ],
    [
        "0.31.0",
        "1.28",
        { nodePoolSpec: { consolidation: { enabled: true }, ttlSecondsAfterEmpty: 30 } },
        "Consolidation and ttlSecondsAfterEmpty must be mutually exclusive.",
    ],
    [
        "0.31.0",
        "1.28",
        { ec2NodeClassSpec: { subnetSelector: { a: "b" } } },
        "Please provide SecurityGroupTerm for your AWSNodeTemplate.",
    ],
    [
        "0.31.0",
        "1.28",
        { ec2NodeClassSpec: { securityGroupSelector: { a: "b" } } },
        "Please provide subnetGroupTerm for your AWSNodeTemplate.",
    ],
    ["0.34.0", "1.29", { ec2NodeClassSpec: { ...TERMS, amiFamily: "AL2" } }, ""],
];

const V1: [version: string, kubernetes: string, props: NestedProps, expected: string][] = [
    ["0.31.0", "1.32", {}, "Karpenter interruption handling requires version >= 0.32.0. Current version: 0.31.0"],
    [
        "1.14.1",
        "1.28",
        {},
        "Cluster version must be >= 1.29 for Karpenter interruption handling. Current version: 1.28",
    ],
    ["1.14.1", "1.32", { ec2NodeClassSpec: TERMS }, "Please provide amiSelectorTerms for your EC2NodeClass."],
    ["1.14.1", "1.32", { ec2NodeClassSpec: { ...TERMS, amiSelectorTerms: [{ alias: "al2023@latest" }] } }, ""],
];

describe("what the original refuses", () => {
    for (const [version, props, expected] of FLAT) {
        it(`flat, ${version}: ${expected || `${Object.keys(props)} is fine`}`, () => {
            assert.equal(
                text(() => checkFlat(props, version)),
                expected,
            );
        });
    }
    for (const [version, kubernetes, props, expected] of NESTED) {
        it(`nested, ${version} on ${kubernetes}: ${expected || "fine"}`, () => {
            assert.equal(
                text(() => checkNested(props, version, kubernetes)),
                expected,
            );
        });
    }
    for (const [version, kubernetes, props, expected] of V1) {
        it(`V1, ${version} on ${kubernetes}: ${expected || "fine"}`, () => {
            assert.equal(
                text(() => checkV1(props, version, kubernetes)),
                expected,
            );
        });
    }

    it("warns of a version that is too old for the cluster", async () => {
        const expected = (minimum: string) =>
            `Please use minimum Karpenter version for this Kubernetes Version: ${minimum}, ` +
            "otherwise you will run into compatibility issues.";
        for (const [kubernetes, minimum] of [
            ["1.25", "0.25.0"],
            ["1.27", "0.28.0"],
            ["1.28", "0.31.0"],
            ["1.29", "0.34.0"],
            ["1.31", "0.37.5"],
            ["1.32", "1.2.0"],
            ["1.33", "1.5.0"],
            ["1.35", "1.6.0"],
        ] as const) {
            assert.deepEqual(checkNested({}, "0.21.0", kubernetes), [expected(minimum)]);
            assert.deepEqual(checkNested({}, minimum, kubernetes), []);
        }
        const made = await synth([new KarpenterAddOn({ nodePoolSpec: {}, compatVersion: "0.37.5" })]);
        assert.ok(made.warnings().some((warning) => warning.startsWith(expected("1.2.0"))));
    });

    it("is refused by the add-on itself, with the version that was asked for", async () => {
        const old = new KarpenterAddOn({ interruptionHandling: true, compatVersion: "v0.18.0" });
        assert.equal(
            await failure([vpcCni(), old]),
            "Interruption handling is only supported on versions v0.19.0 and later.",
        );
        const nested = new KarpenterAddOn({ nodePoolSpec: { ttlSecondsAfterEmpty: 30 } });
        assert.equal(
            await failure([nested]),
            "Consolidation features are only available for previous versions of Karpenter.",
        );
    });

    it("includes names that no chart could have", () => {
        assert.throws(() => new KarpenterAddOn({ release: "r".repeat(54) }), /no more than 53 characters/);
        assert.throws(() => new KarpenterAddOn({ repository: "not a url" }), /URL/);
    });
});

describe("generations of properties", () => {
    it("are distinguished", () => {
        assert.equal(shapeOf({}), "flat");
        assert.equal(shapeOf({ interruptionHandling: true }), "flat");
        assert.equal(shapeOf({ weight: 1 }), "flat");
        assert.equal(shapeOf({ nodePoolSpec: { weight: 1 } }), "nested");
        assert.equal(shapeOf({ nodePoolSpec: { expireAfter: "24h" } }), "v1");
        assert.equal(
            shapeOf({ nodePoolSpec: {}, ec2NodeClassSpec: { amiSelectorTerms: [{ alias: "al2023@latest" }] } }),
            "v1",
        );
        assert.equal(
            shapeOf({ nodePoolSpec: {}, ec2NodeClassSpec: { amiSelectorTerms: [{ id: "ami-1" }] } }),
            "nested",
        );
    });

    it("cannot be mixed, and both sides are named", () => {
        assert.throws(
            () => new KarpenterAddOn({ weight: 1, nodePoolSpec: {} } as FlatProps),
            /weight \(flat\) and nodePoolSpec \(nested\)/,
        );
        assert.throws(
            () => new KarpenterAddOn({ nodePoolSpec: { expireAfter: "24h", ttlSecondsAfterEmpty: 30 } }),
            /nodePoolSpec.ttlSecondsAfterEmpty \(before v1\) and nodePoolSpec.expireAfter \(v1\)/,
        );
    });
});

it("versions are compared by their numbers", () => {
    assert.equal(isAtLeast("v0.32.10", "0.32.9"), true);
    assert.equal(isAtLeast("0.9.0", "0.17.0"), false);
    assert.equal(isAtLeast("1.0.0-rc.1", "1.0.0"), true);
    assert.throws(() => isAtLeast("newest", "1.0.0"), /"newest" is not a version/);
});
