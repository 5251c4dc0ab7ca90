// Pins the modules with upstream's CRDs for e2e/validation. They are not compiled.
module e2e/crds

go 1.24.0

require (
	github.com/aws/karpenter-provider-aws v1.14.1
	sigs.k8s.io/karpenter v1.15.0
)
