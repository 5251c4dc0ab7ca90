/** The values of the chart: those the add-on sets, those the program gives, and which of them count. */
import type { Values } from "@aws-quickstart/eks-blueprints";
import { SERVICE_ACCOUNT } from "./identity";
import { isAtLeast } from "./versions";

const ROLE_ARN = "eks.amazonaws.com/role-arn";

export interface Facts {
    readonly clusterName: string;
    readonly clusterEndpoint: string;
    /** Undefined without interruption handling. */
    readonly queueName: string | undefined;
    readonly profileName: string;
    /** Undefined with Pod Identity. */
    readonly roleArn: string | undefined;
    readonly legacyApi: boolean;
}

type Path = readonly string[];

/** One setting, in the places that charts have had for it. */
interface Setting {
    readonly today: Path;
    /** From 0.19 to 0.31. */
    readonly before32: Path;
    readonly before19: Path;
    readonly of: (facts: Facts) => string | undefined;
}

const SETTINGS: Setting[] = [
    {
        today: ["settings", "clusterName"],
        before32: ["settings", "aws", "clusterName"],
        before19: ["clusterName"],
        of: (facts) => facts.clusterName,
    },
    {
        today: ["settings", "clusterEndpoint"],
        before32: ["settings", "aws", "clusterEndpoint"],
        before19: ["clusterEndpoint"],
        of: (facts) => facts.clusterEndpoint,
    },
    {
        today: ["settings", "defaultInstanceProfile"],
        before32: ["settings", "aws", "defaultInstanceProfile"],
        before19: ["aws", "defaultInstanceProfile"],
        of: (facts) => facts.profileName,
    },
    {
        today: ["settings", "interruptionQueue"],
        before32: ["settings", "aws", "interruptionQueueName"],
        before19: ["settings", "aws", "interruptionQueueName"],
        of: (facts) => facts.queueName,
    },
];

const ACCOUNT: Path[] = [
    ["serviceAccount", "create"],
    ["serviceAccount", "name"],
    ["serviceAccount", "annotations", ROLE_ARN],
];

/** Keys that the program had better not give, with what becomes of each. */
export function reserved(given: Values, interruptionHandling: boolean): string[] {
    const settings = SETTINGS.filter((setting) => interruptionHandling || setting.today[1] !== "interruptionQueue")
        .flatMap((setting) => [setting.today, setting.before32, setting.before19])
        .filter((path, index, all) => all.findIndex((other) => other.join() === path.join()) === index);
    return [
        ...settings.filter((path) => has(given, path)).map((path) => text(path, "the given value is used")),
        ...ACCOUNT.filter((path) => has(given, path)).map((path) => text(path, "the given value is not used")),
    ];
}

function text(path: Path, outcome: string): string {
    return `values.${path.join(".")} is set by the Karpenter add-on and should not be given; ${outcome}.`;
}

export function chartValues(given: Values, facts: Facts, version: string): Values {
    const own: Values = {
        // The log command of old guides selects pods by it.
        podLabels: { karpenter: "controller" },
        ...(facts.legacyApi ? { legacyApi: { enabled: true } } : {}),
    };
    for (const setting of SETTINGS) {
        const value = setting.of(facts);
        const isGiven = [setting.today, setting.before32, setting.before19].some((path) => has(given, path));
        if (value !== undefined && !isGiven) {
            set(own, placeOf(setting, version), value);
        }
    }
    const values = merged(own, given);
    const { [ROLE_ARN]: _, ...annotations } = values.serviceAccount?.annotations ?? {};
    values.serviceAccount = {
        ...values.serviceAccount,
        // Pod Identity needs no annotation with a role, so the chart can create the service account.
        create: facts.roleArn === undefined,
        name: SERVICE_ACCOUNT,
        annotations: facts.roleArn === undefined ? annotations : { ...annotations, [ROLE_ARN]: facts.roleArn },
    };
    return values;
}

function placeOf(setting: Setting, version: string): Path {
    if (isAtLeast(version, "0.32.0")) {
        return setting.today;
    }
    return isAtLeast(version, "0.19.0") ? setting.before32 : setting.before19;
}

function has(values: Values, path: Path): boolean {
    let at: unknown = values;
    for (const key of path) {
        if (!isObject(at) || at[key] === undefined) {
            return false;
        }
        at = at[key];
    }
    return true;
}

function set(values: Values, [key, ...rest]: Path, value: string): void {
    if (key === undefined) {
        return;
    }
    if (rest.length === 0) {
        values[key] = value;
        return;
    }
    values[key] ??= {};
    set(values[key], rest, value);
}

/** Objects are merged, everything else is replaced. */
function merged(base: Values, over: Values): Values {
    const result = { ...base };
    for (const [key, value] of Object.entries(over)) {
        const below = result[key];
        result[key] = isObject(below) && isObject(value) ? merged(below, value) : value;
    }
    return result;
}

function isObject(value: unknown): value is Values {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
