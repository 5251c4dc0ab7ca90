//go:build tools

// Package tools names the command that e2e/build-tofu builds, so that go.mod and go.sum pin all it needs.
package tools

import _ "github.com/opentofu/opentofu/cmd/tofu"
