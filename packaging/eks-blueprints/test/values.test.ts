import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KarpenterAddOn } from "../src";
import { chartValues, type Facts, reserved } from "../src/values";
import { failure, synth, vpcCni } from "./support";

const FACTS: Facts = {
    clusterName: "demo",
    clusterEndpoint: "https://demo",
    queueName: "queue",
    profileName: "profile",
    roleArn: "arn",
    legacyApi: false,
};
const ACCOUNT = {
    create: false,
    name: "blueprints-addon-karpenter",
    annotations: { "eks.amazonaws.com/role-arn": "arn" },
};
const LABELS = { podLabels: { karpenter: "controller" } };

describe("values of the chart", () => {
    it("are where charts of the version look for them", () => {
        assert.deepEqual(chartValues({}, FACTS, "1.14.1"), {
            ...LABELS,
            settings: {
                clusterName: "demo",
                clusterEndpoint: "https://demo",
                defaultInstanceProfile: "profile",
                interruptionQueue: "queue",
            },
            serviceAccount: ACCOUNT,
        });
        assert.deepEqual(chartValues({}, FACTS, "0.25.0"), {
            ...LABELS,
            settings: {
                aws: {
                    clusterName: "demo",
                    clusterEndpoint: "https://demo",
                    defaultInstanceProfile: "profile",
                    interruptionQueueName: "queue",
                },
            },
            serviceAccount: ACCOUNT,
        });
        assert.deepEqual(chartValues({}, { ...FACTS, queueName: undefined }, "0.18.0"), {
            ...LABELS,
            clusterName: "demo",
            clusterEndpoint: "https://demo",
            aws: { defaultInstanceProfile: "profile" },
            serviceAccount: ACCOUNT,
        });
    });

    it("are the program's where it gives them, in whatever place", () => {
        const given = { replicas: 1, settings: { aws: { clusterName: "mine" }, featureGates: { nodeRepair: true } } };
        const values = chartValues(given, FACTS, "1.14.1");
        assert.equal(values.replicas, 1);
        assert.equal(values.settings.aws.clusterName, "mine");
        assert.equal(values.settings.clusterName, undefined);
        assert.equal(values.settings.clusterEndpoint, "https://demo");
        assert.deepEqual(values.settings.featureGates, { nodeRepair: true });
        assert.deepEqual(given, {
            replicas: 1,
            settings: { aws: { clusterName: "mine" }, featureGates: { nodeRepair: true } },
        });
    });

    it("are never the program's for the service account, other annotations apart", () => {
        const annotations = { team: "a", "eks.amazonaws.com/role-arn": "mine" };
        const given = { serviceAccount: { create: true, name: "mine", annotations } };
        assert.deepEqual(chartValues(given, FACTS, "1.14.1").serviceAccount, {
            ...ACCOUNT,
            annotations: { team: "a", ...ACCOUNT.annotations },
        });
        assert.deepEqual(chartValues(given, { ...FACTS, roleArn: undefined }, "1.14.1").serviceAccount, {
            create: true,
            name: ACCOUNT.name,
            annotations: { team: "a" },
        });
    });

    it("that the add-on sets are named if they are given", () => {
        const given = {
            clusterName: "a",
            aws: { defaultInstanceProfile: "b" },
            settings: { clusterEndpoint: "c", interruptionQueue: "d", aws: { interruptionQueueName: "e" } },
            serviceAccount: { create: true, annotations: { "eks.amazonaws.com/role-arn": "f", other: "g" } },
            replicas: 1,
        };
        const keys = (handled: boolean) => reserved(given, handled).map((text) => text.split(" ")[0]);
        const always = [
            "values.clusterName",
            "values.settings.clusterEndpoint",
            "values.aws.defaultInstanceProfile",
            "values.serviceAccount.create",
            "values.serviceAccount.annotations.eks.amazonaws.com/role-arn",
        ];
        const ofQueue = ["values.settings.interruptionQueue", "values.settings.aws.interruptionQueueName"];
        assert.deepEqual(keys(true).sort(), [...always, ...ofQueue].sort());
        // Without interruption handling the queue is the program's own business.
        assert.deepEqual(keys(false).sort(), always.sort());
    });

    it("are warned of, or refused if the program wants to be strict", async () => {
        const values = { settings: { clusterName: "mine" }, serviceAccount: { name: "mine" } };
        const made = await synth([vpcCni(), new KarpenterAddOn({ values })]);
        const warnings = made.warnings();
        assert.ok(
            warnings.some((text) => text.startsWith("values.settings.clusterName is set by the Karpenter add-on")),
        );
        assert.ok(
            warnings.some((text) => text.startsWith("values.serviceAccount.name is set by the Karpenter add-on")),
        );
        assert.equal(made.values().settings.clusterName, "mine");
        const text = await failure([vpcCni(), new KarpenterAddOn({ values, strictValues: true })]);
        assert.match(text, /^values\.settings\.clusterName is set/);
        assert.match(text, /values\.serviceAccount\.name is set/);
    });

    it("say so where a version has no effect", async () => {
        const image = { controller: { image: { repository: "registry.example.com/karpenter" } } };
        const made = await synth([vpcCni(), new KarpenterAddOn({ version: "v0.25.0", values: image })]);
        assert.deepEqual(
            made.warnings().map((text) => text.slice(0, 30)),
            ["version v0.25.0 is not used: w"],
        );
    });
});
