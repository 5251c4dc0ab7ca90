# shellcheck shell=bash
# Shared by the scripts of e2e: folders of binaries and clusters, and messages. Sourced, never run.

e2e_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Exit status for "this machine cannot run it", as opposed to "it ran and failed".
# shellcheck disable=SC2034  # used by the scripts that source this file
status_cannot_run_here=77

# Prints files without comment lines: a reworded comment must not rebuild anything.
without_comments() { sed -E '/^[[:space:]]*(#|\/\/)( |$)/d' "$@"; }

# Hash of everything that determines the binaries: the Go modules and the build script.
versions_hash() {
  local file
  for file in "$e2e_folder"/modules/{etcd,kubernetes,kwok}/* "$e2e_folder/build"; do
    printf '%s\n' "${file#"$e2e_folder"}"
    without_comments "$file"
  done | sha256sum | cut -c1-12
}

# One folder per hash, so that switching branches does not rebuild.
cache_folder() {
  printf '%s\n' "${KARPENTER_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/karpenter-e2e/$(versions_hash)}"
}

# The folder of a control plane: data, logs, process ids and kubeconfig.
default_run_folder() { printf '%s/karpenter-e2e-%s\n' "${TMPDIR:-/tmp}" "$(id -u)"; }
