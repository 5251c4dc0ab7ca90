//go:build tools

// Package tools names the command that e2e/build-helm builds, so that go.mod and go.sum pin all it needs.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
