# Amazon Linux 2023. nodeadm writes containerd's and the kubelet's files from the NodeConfig beside this script and starts
# both after this script, which only has to configure the snapshotter.
# SOCI_ROOT is prepended to every path that is read or written; tests set it.
root=${SOCI_ROOT:-}
units=$root/etc/systemd/system

say() { echo "soci: $*"; }

dnf install -y fuse
modprobe fuse

program=/usr/bin/soci-snapshotter-grpc
if [ "$install" = download ] || { [ "$install" = auto ] && [ ! -x "$root$program" ]; }; then
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
elif [ ! -x "$root$program" ]; then
  say "the AMI has no $program, and soci.install does not allow a download"
  exit 1
fi

mkdir -p "$root/etc/soci-snapshotter-grpc" "$units/containerd.service.d" "$units/soci-snapshotter.service.d"
snapshotter_config >"$root/etc/soci-snapshotter-grpc/config.toml"

# The unit of the AMI listens through a socket unit. It is kept; only its program is replaced.
if [ ! -f "$units/soci-snapshotter.service" ] && [ ! -f "$root/usr/lib/systemd/system/soci-snapshotter.service" ]; then
  cat >"$units/soci-snapshotter.service" <<UNIT
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
elif [ "$program" = /usr/local/bin/soci-snapshotter-grpc ] && ! grep -qs "^ExecStart=$program\$" "$units/soci-snapshotter.service"; then
  cat >"$units/soci-snapshotter.service.d/10-program.conf" <<UNIT
[Service]
ExecStart=
ExecStart=$program --address fd://
UNIT
fi

# containerd 2.2.3 unpacks the pause image through the snapshotter, and would wait for it forever.
cat >"$units/containerd.service.d/10-soci.conf" <<'UNIT'
[Unit]
Requires=soci-snapshotter.service
After=soci-snapshotter.service
UNIT
cat >"$units/soci-pause-image.service" <<'UNIT'
[Unit]
Description=Pause image in the SOCI snapshotter
Requires=containerd.service
After=containerd.service
Before=kubelet.service
ConditionPathExists=/etc/eks/pause.tar

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/usr/bin/ctr --namespace k8s.io images import --snapshotter soci /etc/eks/pause.tar

[Install]
WantedBy=kubelet.service
UNIT
systemctl daemon-reload
systemctl enable --now soci-snapshotter
systemctl enable soci-pause-image
systemctl is-active soci-snapshotter
