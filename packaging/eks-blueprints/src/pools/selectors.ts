/**
 * Converts v1alpha5 selectors, whose entries must all match, to v1 terms, of which any may match. A value with commas
 * meant alternatives, so one selector becomes the product of its alternatives.
 */
import type { Fields } from "./objects";

const TERMS_MAX = 30;
const ID_KEYS = ["aws-ids", "aws::ids"];

export type Selector = Record<string, string>;

/** Terms for subnets or security groups. */
export function resourceTerms(selector: Selector, field: string): Fields[] {
    const { ids, rest } = split(selector, field);
    return bounded(ids.length > 0 ? ids : combinations(rest).map((tags) => ({ tags })), field);
}

/** Terms for images: owners times names times tags, or ids alone. */
export function imageTerms(selector: Selector, field: string): Fields[] {
    const { ids, rest } = split(selector, field);
    if (ids.length > 0) {
        return bounded(ids, field);
    }
    const { "aws::owners": owners = ["self", "amazon"], "aws::name": names = [undefined], ...tags } = rest;
    const tagged = Object.keys(tags).length === 0 ? [{}] : combinations(tags).map((one) => ({ tags: one }));
    const terms = owners.flatMap((owner) =>
        names.flatMap((name) => tagged.map((term) => ({ ...term, owner, ...(name === undefined ? {} : { name }) }))),
    );
    return bounded(terms, field);
}

function split(selector: Selector, field: string): { ids: Fields[]; rest: Record<string, string[]> } {
    const parts = Object.keys(selector)
        .sort()
        .map((key) => [key, (selector[key] ?? "").split(",").map((part) => part.trim())] as const);
    const ids = parts.filter(([key]) => ID_KEYS.includes(key)).flatMap(([, values]) => values.map((id) => ({ id })));
    const rest = Object.fromEntries(parts.filter(([key]) => !ID_KEYS.includes(key)));
    if (ids.length > 0 && Object.keys(rest).length > 0) {
        throw new Error(`${field}: v1 cannot ask for ids and tags at once; give one of them.`);
    }
    return { ids, rest };
}

/** The first key varies fastest. */
function combinations(alternatives: Record<string, string[]>): Record<string, string>[] {
    return Object.entries(alternatives).reduce<Record<string, string>[]>(
        (found, [key, values]) => values.flatMap((value) => found.map((tags) => ({ ...tags, [key]: value }))),
        [{}],
    );
}

function bounded(terms: Fields[], field: string): Fields[] {
    if (terms.length > TERMS_MAX) {
        throw new Error(`${field}: ${terms.length} combinations; v1 allows ${TERMS_MAX} terms.`);
    }
    return terms;
}
