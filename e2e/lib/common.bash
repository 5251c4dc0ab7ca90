# shellcheck shell=bash
# What e2e/build, e2e/up and e2e/down agree on: where binaries and clusters live, and how they speak to the user.
# Sourced, never run.

e2e_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Exit status with which a script says "this machine cannot do it", as against "it was tried and failed".
# shellcheck disable=SC2034  # used by the scripts that source this file
status_cannot_run_here=77

# Everything that decides what the binaries are: the modules they are built from and the script that builds them.
versions_hash() {
  local file
  for file in "$e2e_folder"/modules/{etcd,kubernetes,kwok}/* "$e2e_folder/build"; do
    printf '%s\n' "${file#"$e2e_folder"}"
    cat "$file"
  done | sha256sum | cut -c1-12
}

# Binaries of other versions lie beside these, so switching branches does not build anew.
cache_folder() {
  printf '%s\n' "${KARPENTER_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/karpenter-e2e/$(versions_hash)}"
}

# Where a running control plane keeps its data, logs, process ids and kubeconfig.
default_run_folder() { printf '%s/karpenter-e2e-%s\n' "${TMPDIR:-/tmp}" "$(id -u)"; }
