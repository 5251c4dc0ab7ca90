import { Annotations } from "aws-cdk-lib";
import type { IConstruct } from "constructs";

/** Warnings have ids, so that people can acknowledge them. */
export function warn(scope: IConstruct, id: string, text: string): void {
    Annotations.of(scope).addWarningV2(`karpenter:${id}`, text);
}
