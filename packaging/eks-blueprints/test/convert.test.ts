import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { converted } from "../src/pools/convert";
import { type Fields, type Manifest, present } from "../src/pools/objects";

/** Shared with the converter of the binary. */
const FIXTURES = join(__dirname, "../../../../crates/karpenter-legacy/tests/fixtures");
const ROLE_PLACEHOLDER = "$KARPENTER_NODE_ROLE";

function read(fixture: string, file: string): Manifest[] {
    return parseAllDocuments(readFileSync(join(FIXTURES, fixture, file), "utf8")).map((one) => one.toJS());
}

/** The add-on knows its profile, where the binary has to leave a placeholder. */
function withProfile(manifest: Manifest): Fields {
    const { role, ...spec } = manifest.spec;
    return role === ROLE_PLACEHOLDER ? { ...spec, instanceProfile: "profile" } : manifest.spec;
}

describe("conversion of the v1alpha5 API equals that of the binary", () => {
    for (const fixture of ["add-on-with-nulls", "inline-ids", "inline-tags", "configuration-chart"]) {
        it(fixture, () => {
            const inputs = read(fixture, "input.yaml").map((one) => ({ ...one, spec: present(one.spec) }));
            const expected = read(fixture, "expected.yaml");
            const find = (kind: string, name: string) =>
                expected.find((one) => one.kind === kind && one.metadata.name === name);
            const provisioners = inputs.filter((one) => one.kind === "Provisioner");
            assert.ok(provisioners.length > 0);
            for (const provisioner of provisioners) {
                const name = provisioner.spec.providerRef?.name;
                const template = inputs.find((one) => one.kind === "AWSNodeTemplate" && one.metadata.name === name);
                const made = converted(
                    { provisioner, ...(template === undefined ? {} : { template }) },
                    { defaultInstanceProfile: "profile", ipv6: false },
                );
                assert.deepEqual(made.pool.spec, find("NodePool", provisioner.metadata.name)?.spec);
                const nodeClass = find("EC2NodeClass", name ?? provisioner.metadata.name);
                assert.ok(nodeClass !== undefined);
                assert.deepEqual(made.nodeClass?.spec, withProfile(nodeClass));
            }
        });
    }

    it("says what v1 cannot do", () => {
        const provisioner = (provider: Fields, spec: Fields = {}): Manifest => ({
            apiVersion: "karpenter.sh/v1alpha5",
            kind: "Provisioner",
            metadata: { name: "x" },
            spec: { ...spec, provider: { securityGroupSelector: { a: "b" }, subnetSelector: { a: "b" }, ...provider } },
        });
        const options = { defaultInstanceProfile: "profile", ipv6: false };
        const mixed = provisioner({ subnetSelector: { "aws-ids": "subnet-1", a: "b" } });
        assert.throws(
            () => converted({ provisioner: mixed }, options),
            /subnetSelector: v1 cannot ask for ids and tags/,
        );
        const many = provisioner({ subnetSelector: { a: "1,2,3,4,5,6", b: "1,2,3,4,5,6" } });
        assert.throws(() => converted({ provisioner: many }, options), /36 combinations; v1 allows 30/);
        const gone = provisioner(
            {},
            { requirements: [{ key: "karpenter.k8s.aws/instance-pods", operator: "Gt", values: ["9"] }] },
        );
        const made = converted({ provisioner: gone }, options);
        assert.match(made.warnings.join(), /no longer carry the label karpenter.k8s.aws\/instance-pods/);
        assert.equal(JSON.stringify(made.pool).includes("instance-pods"), false);
    });

    it("omits what v1 rejects and the v1alpha5 API ignored", () => {
        const manifest: Manifest = {
            apiVersion: "karpenter.sh/v1alpha5",
            kind: "Provisioner",
            metadata: { name: "x" },
            spec: {
                taints: [{ key: "a", value: "", effect: "NoSchedule" }],
                provider: { subnetSelector: { a: "b" }, securityGroupSelector: { a: "b" }, metadataOptions: {} },
            },
        };
        const made = converted({ provisioner: manifest }, { defaultInstanceProfile: "p", ipv6: true });
        assert.deepEqual(made.pool.spec.template.spec.taints, [{ key: "a", effect: "NoSchedule" }]);
        // EC2's defaults applied, without regard to the cluster.
        assert.deepEqual(made.nodeClass?.spec.metadataOptions, {
            httpEndpoint: "enabled",
            httpProtocolIPv6: "disabled",
            httpPutResponseHopLimit: 1,
            httpTokens: "optional",
        });
    });

    it("combines alternatives with the first key varying fastest", () => {
        const manifest: Manifest = {
            apiVersion: "karpenter.sh/v1alpha5",
            kind: "Provisioner",
            metadata: { name: "x" },
            spec: { provider: { subnetSelector: { b: "1,2", a: "x, y" }, securityGroupSelector: { a: "*" } } },
        };
        const { nodeClass } = converted({ provisioner: manifest }, { defaultInstanceProfile: "p", ipv6: false });
        assert.deepEqual(
            nodeClass?.spec.subnetSelectorTerms.map((term: Fields) => `${term.tags.a}${term.tags.b}`),
            ["x1", "y1", "x2", "y2"],
        );
    });
});
