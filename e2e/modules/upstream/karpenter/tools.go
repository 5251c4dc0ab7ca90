//go:build tools

// Package tools names the command that e2e/compare-upstream builds, so that go.mod and go.sum pin all it needs.
package tools

import _ "sigs.k8s.io/karpenter/kwok"
