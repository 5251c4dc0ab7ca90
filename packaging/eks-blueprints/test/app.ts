/** The guide's program with the two lines that it needs today: a version for the cluster, and one for the network. */
import * as blueprints from "@aws-quickstart/eks-blueprints";
import * as cdk from "aws-cdk-lib";
import { KarpenterAddOn } from "../src";
import { documentProps } from "./document";

const app = new cdk.App();

const vpcCniAddOn = new blueprints.addons.VpcCniAddOn({ version: "v1.20.4-eksbuild.2" });
const karpenterAddOn = new KarpenterAddOn(documentProps);
const addOns: Array<blueprints.ClusterAddOn> = [vpcCniAddOn, karpenterAddOn];

blueprints.EksBlueprint.builder()
    .version("auto")
    .addOns(...addOns)
    .build(app, "my-stack-name");
