# Amazon Linux 2. Runs before bootstrap.sh, which puts the sandbox image into the file written here and restarts containerd.
# Any failure happens before containerd's configuration is changed: the node then works without the snapshotter.
# SOCI_ROOT is prepended to every path that is written; tests set it.
root=${SOCI_ROOT:-}
socket=/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock

say() { echo "soci: $*"; }
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

containerd_version=$(containerd --version | awk '{ print $3 }') || containerd_version=
containerd_version=${containerd_version#v}
if [ -z "$containerd_version" ] || ! at_least "$containerd_version" 1.5.0; then
  say "containerd ${containerd_version:-(no version)} is not changed: 1.5.0 or later is needed"
  exit 0
fi

yum install -y fuse
modprobe fuse

program=/usr/bin/soci-snapshotter-grpc
if [ "$install" = ami ]; then
  if [ ! -x "$root$program" ]; then
    say "the AMI has no $program, and soci.install does not allow a download"
    exit 1
  fi
else
  # AL2 AMIs never include it.
  program=/usr/local/bin/soci-snapshotter-grpc
  case $(uname -m) in
    x86_64) arch=amd64 sha256=$sha256_amd64 ;;
    aarch64) arch=arm64 sha256=$sha256_arm64 ;;
    *)
      say "there is no build for $(uname -m)"
      exit 1
      ;;
  esac
  archive=soci-snapshotter-$version-linux-$arch.tar.gz
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  curl --fail --silent --show-error --location --retry 10 --retry-delay 1 \
    --output "$scratch/$archive" "$base_url/v$version/$archive"
  echo "$sha256  $scratch/$archive" | sha256sum --check --quiet -
  mkdir -p "$root/usr/local/bin"
  tar --extract --gzip --file "$scratch/$archive" --directory "$root/usr/local/bin" soci soci-snapshotter-grpc
fi

mkdir -p "$root/etc/soci-snapshotter-grpc" "$root/etc/systemd/system" "$root/etc/eks/containerd"
snapshotter_config >"$root/etc/soci-snapshotter-grpc/config.toml"
cat >"$root/etc/systemd/system/soci-snapshotter.service" <<UNIT
[Unit]
Description=SOCI snapshotter for containerd
After=network.target
Before=containerd.service

[Service]
Type=notify
ExecStart=$program
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now soci-snapshotter
systemctl is-active soci-snapshotter

options='SystemdCgroup = true'
if [ "$runtime" = nvidia ]; then
  options="$options
BinaryName = \"/usr/bin/nvidia-container-runtime\""
fi
exports=
if at_least "$containerd_version" 1.7.16; then
  exports='
[proxy_plugins.soci.exports]
root = "/var/lib/soci-snapshotter-grpc"'
fi

common() {
  cat <<TOML
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[proxy_plugins.soci]
type = "snapshot"
address = "$socket"
$exports

TOML
}
schema_2() {
  echo 'version = 2'
  common
  cat <<TOML
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "SANDBOX_IMAGE"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "$runtime"
discard_unpacked_layers = true
snapshotter = "soci"
disable_snapshot_annotations = false

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.$runtime]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.$runtime.options]
$options

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d:/etc/docker/certs.d"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
TOML
}
schema_3() {
  echo 'version = 3'
  common
  cat <<TOML
[plugins."io.containerd.cri.v1.images"]
snapshotter = "soci"
disable_snapshot_annotations = false
discard_unpacked_layers = true

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "SANDBOX_IMAGE"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d:/etc/docker/certs.d"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "$runtime"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.$runtime]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.$runtime.options]
$options

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
TOML
}

# The kubelet asks the snapshotter for images, which so learns the credentials they are pulled with.
kubelet=$root/etc/kubernetes/kubelet/kubelet-config.json
if $private_registries && [ -f "$kubelet" ] && ! grep -q imageServiceEndpoint "$kubelet"; then
  sed -i "0,/{/s//{\n  \"imageServiceEndpoint\": \"unix:\/\/${socket//\//\\/}\",/" "$kubelet"
fi

schema=schema_2
if at_least "$containerd_version" 2.0; then schema=schema_3; fi
say "containerd $containerd_version gets a file of ${schema/_/ }"
"$schema" >"$root/etc/eks/containerd/containerd-config.toml"
