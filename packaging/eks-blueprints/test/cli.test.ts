import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";

const PACKAGE = join(__dirname, "../..");

it("cdk synth of the guide's program, with charts staged", () => {
    const output = mkdtempSync(join(tmpdir(), "karpenter-eks-blueprints-"));
    const cdk = join(PACKAGE, "node_modules/.bin/cdk");
    const app = `node ${join(__dirname, "app.js")}`;
    const result = spawnSync(cdk, ["synth", "--app", app, "--output", output, "--no-notices", "--quiet"], {
        cwd: PACKAGE,
        encoding: "utf8",
        // No account and no way to one: nothing may be looked up.
        env: { ...process.env, AWS_EC2_METADATA_DISABLED: "true", CDK_DISABLE_CLI_TELEMETRY: "true" },
    });
    assert.equal(result.status, 0, result.stderr);
    assert.match(result.stderr + result.stdout, /no images of Amazon Linux 2 for Kubernetes/);
    const template = JSON.parse(readFileSync(join(output, "my-stack-name.template.json"), "utf8"));
    const types = Object.values<{ Type: string }>(template.Resources).map((resource) => resource.Type);
    assert.equal(types.filter((type) => type === "AWS::Events::Rule").length, 5);
    const assets = JSON.parse(readFileSync(join(output, "my-stack-name.assets.json"), "utf8"));
    const folders = Object.values<{ source: { path: string } }>(assets.files).map((file) =>
        join(output, file.source.path),
    );
    const chart = folders.find((folder) => existsSync(join(folder, "Chart.yaml")));
    assert.ok(chart !== undefined, "the chart is an asset");
    assert.match(readFileSync(join(chart, "Chart.yaml"), "utf8"), /^name: karpenter$/m);
    assert.equal(existsSync(join(chart, "ci")), false);
    rmSync(output, { recursive: true });
});
