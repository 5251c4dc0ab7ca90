//go:build tools

// Package tools names the command that e2e/metrics builds, so that go.mod and go.sum pin all it needs.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
