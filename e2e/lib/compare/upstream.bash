# shellcheck shell=bash
# Upstream's controller with its kwok provider, built from the Go module pinned in modules/upstream. Sourced, never run.

upstream_module=$e2e_folder/modules/upstream/karpenter
upstream_version=$(awk '$1 == "require" && $2 == "sigs.k8s.io/karpenter" { print $3 }' "$upstream_module/go.mod")

# Prints the folder with the program "karpenter-kwok", its CRDs in "crds", its instance types in "instance_types.json" and the
# templates of its chart's roles in "roles".
# An existing build is kept. This module needs a newer Go than the control plane does, so it has a build of its own.
build_upstream() {
  local folder cache module need started=$SECONDS
  cache=${KARPENTER_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/karpenter-e2e}
  folder=$cache/upstream-$(without_comments "$upstream_module"/* "$e2e_folder/lib/compare/upstream.bash" | sha256sum | cut -c1-12)
  if [[ ! -f $folder/complete ]]; then
    command -v go >/dev/null || { say "Go is not installed, so there is nothing to compare with"; exit "$status_cannot_run_here"; }
    need=$(awk '$1 == "go" { print $2 }' "$upstream_module/go.mod")
    # A Go that is older fetches the right one, if it may.
    export GOTOOLCHAIN=go$need+auto
    say "karpenter $upstream_version: building with Go $need or newer (5 minutes the first time)"
    mkdir -p "$folder"/{crds,roles}
    (
      cd "$upstream_module"
      CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags '-s -w' -o "$folder/karpenter-kwok" \
        sigs.k8s.io/karpenter/kwok
    ) || fail "karpenter $upstream_version: go build failed"
    module=$(cd "$upstream_module" && go list -mod=readonly -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
    cp "$module"/kwok/charts/crds/*.yaml "$module"/kwok/apis/crds/*.yaml "$folder/crds"
    cp "$module"/kwok/charts/templates/*role*.yaml "$folder/roles"
    cp "$module/kwok/cloudprovider/instance_types.json" "$folder"
    chmod -R u+w "$folder"
    touch "$folder/complete"
    say "karpenter $upstream_version: built in $((SECONDS - started)) s"
  fi
  printf '%s\n' "$folder"
}
