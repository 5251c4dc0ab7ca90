/** Versions of the original add-on for which properties were written; unrelated to the version of this package. */

/** The version of the original add-on that this package matches. */
export const COMPAT_VERSION = "1.14.1";

/** By Kubernetes minor version: the first version of the original add-on that supports it. */
const MINIMUM: [minor: number, version: string][] = [
    [23, "0.21.0"],
    [25, "0.25.0"],
    [26, "0.28.0"],
    [28, "0.31.0"],
    [29, "0.34.0"],
    [30, "0.37.5"],
    [32, "1.2.0"],
    [33, "1.5.0"],
    [34, "1.6.0"],
];

/** Whether the version is the other one or a later one. A leading v counts for nothing. */
export function isAtLeast(version: string, other: string): boolean {
    const [left, right] = [numbers(version), numbers(other)];
    for (let index = 0; index < 3; index++) {
        const difference = (left[index] ?? 0) - (right[index] ?? 0);
        if (difference !== 0) {
            return difference > 0;
        }
    }
    return true;
}

function numbers(version: string): number[] {
    const parts = /^v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?$/.exec(version);
    if (!parts) {
        throw new Error(`"${version}" is not a version such as 0.32.0`);
    }
    return parts.slice(1).map((part) => Number(part ?? 0));
}

/** Undefined if Kubernetes is older than the table; newer versions count as its last entry. */
export function minimumFor(kubernetes: string): string | undefined {
    const minor = numbers(kubernetes)[1] ?? 0;
    return MINIMUM.filter(([since]) => since <= minor).at(-1)?.[1];
}
