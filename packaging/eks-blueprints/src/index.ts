export { KarpenterAddOn, KarpenterV1AddOn } from "./add-on";
export type { FlatProps, KarpenterAddOnProps, KarpenterV1AddOnProps, NestedProps } from "./props";
export { COMPAT_VERSION } from "./versions";
