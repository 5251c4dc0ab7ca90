"""Lints the node scripts of karpenter-config and runs them below a folder: soci.py FOLDER, with the files that e2e/charts
rendered. Programs that change the node are stand-ins that log their calls; downloads are a real archive with a real checksum, and
the files that the scripts write are parsed as TOML, JSON or units.

This does not show that an EC2 instance boots with them."""

import hashlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tarfile
import tempfile
import tomllib

import config
import kit

SOCKET = "/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"
LOGGED = ["yum", "dnf", "modprobe", "systemctl", "ctr"]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
VERSIONS = ["", "1.4.9", "1.5.0", "v1.7.27", "1.7.27", "2.0.5", "2.2.3"]
OLD_CONTAINERD = "# as in the AMI\n"
runs = 0


def archive():
    """A release as published: two programs and a license."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ["LICENSE", "soci", "soci-snapshotter-grpc"]:
            data = f"{name}\n".encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


ARCHIVE = archive()
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


class Machine:
    """A folder as the root of a node, and stand-ins for its programs."""

    def __init__(self, scratch, machine, containerd):
        self.root = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.bin = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.log = self.bin / "log"
        for name in LOGGED:
            self.stand_in(name, "")
        self.stand_in("uname", f"echo {machine}", logged=False)
        says = f"echo containerd github.com/containerd/containerd {containerd} 0123abc" if containerd else "true"
        self.stand_in("containerd", says, logged=False)
        (self.bin / "archive").write_bytes(ARCHIVE)
        self.stand_in("curl", f'while [ "$1" != --output ]; do shift; done; cp {self.bin}/archive "$2"; echo "$3" >>{self.log}.urls',
                      logged=False)

    def stand_in(self, name, body, logged=True):
        line = f'echo "{name} $*" >>{self.log}\n' if logged else ""
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{line}{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def put(self, path, text, mode=0o644):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def run(self, script):
        global runs
        runs += 1
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "SOCI_ROOT": str(self.root), "TMPDIR": str(self.bin)}
        result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, cwd=self.bin)
        self.output = result.stdout + result.stderr
        return result.returncode

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def urls(self):
        path = pathlib.Path(f"{self.log}.urls")
        return path.read_text().splitlines() if path.exists() else []

    def files(self):
        return {str(path.relative_to(self.root)): path.read_text() for path in sorted(self.root.rglob("*")) if path.is_file()}

    def left_over(self):
        return [path.name for path in self.bin.iterdir() if path.name.startswith("tmp.")]


def expect(what, found, expected):
    if found != expected:
        kit.findings.append(f"{what}\n  found    {found}\n  expected {expected}")


def lint(name, script):
    result = subprocess.run(["shellcheck", "--shell=bash", "-"], input=script, capture_output=True, text=True)
    expect(f"{name}: shellcheck", result.stdout + result.stderr, "")


def with_digest(script):
    for line in ["sha256_amd64", "sha256_arm64"]:
        start = script.index(f"{line}='") + len(line) + 2
        script = script[:start] + DIGEST + script[start + 64:]
    return script


def snapshotter_config(mode, private, v1=False):
    parallel = {"enable": mode == "parallel"}
    if mode != "lazy":
        parallel |= {"experimental_parallel_pull_as_fallback": mode == "parallelFallback", "max_concurrent_downloads": -1,
                     "max_concurrent_downloads_per_image": 10, "concurrent_download_chunk_size": "8mb",
                     "max_concurrent_unpacks": -1, "max_concurrent_unpacks_per_image": 10, "discard_unpacked_layers": True}
    result = {"pull_modes": {"soci_v1": {"enable": v1}, "soci_v2": {"enable": mode != "parallel"},
                             "parallel_pull_unpack": parallel}}
    if private:
        result["cri_keychain"] = {"enable_keychain": True, "image_service_path": "/run/containerd/containerd.sock"}
    if mode != "lazy":
        result["content_store"] = {"type": "containerd"}
    return result


def containerd_config(schema, runtime, has_exports):
    proxy = {"type": "snapshot", "address": SOCKET}
    if has_exports:
        proxy["exports"] = {"root": "/var/lib/soci-snapshotter-grpc"}
    options = {"SystemdCgroup": True}
    if runtime == "nvidia":
        options["BinaryName"] = "/usr/bin/nvidia-container-runtime"
    runtimes = {runtime: {"runtime_type": "io.containerd.runc.v2", "options": options}}
    registry = {"config_path": "/etc/containerd/certs.d:/etc/docker/certs.d"}
    cni = {"bin_dir": "/opt/cni/bin", "conf_dir": "/etc/cni/net.d"}
    images = {"snapshotter": "soci", "disable_snapshot_annotations": False, "discard_unpacked_layers": True}
    if schema == 2:
        plugins = {"io.containerd.grpc.v1.cri": {
            "sandbox_image": "SANDBOX_IMAGE", "registry": registry, "cni": cni,
            "containerd": images | {"default_runtime_name": runtime, "runtimes": runtimes}}}
    else:
        plugins = {"io.containerd.cri.v1.images": images | {"pinned_images": {"sandbox": "SANDBOX_IMAGE"}, "registry": registry},
                   "io.containerd.cri.v1.runtime": {"containerd": {"default_runtime_name": runtime, "runtimes": runtimes}, "cni": cni}}
    return {"version": schema, "root": "/var/lib/containerd", "state": "/run/containerd",
            "grpc": {"address": "/run/containerd/containerd.sock"}, "proxy_plugins": {"soci": proxy}, "plugins": plugins}


def al2(scratch, name, script, runtime, mode, private):
    good = with_digest(script)
    for machine, arch in MACHINES.items():
        for version in VERSIONS:
            where = f"AL2 {name} {mode}, {machine}, containerd {version or '(none)'}"
            host = Machine(scratch, machine, version)
            host.put("etc/eks/containerd/containerd-config.toml", OLD_CONTAINERD)
            host.put("etc/kubernetes/kubelet/kubelet-config.json", '{\n  "kind": "KubeletConfiguration"\n}\n')
            before = host.files()
            expect(f"{where}: status\n{host.run(good) and host.output}", host.run(good), 0)
            if version in ["", "1.4.9"]:
                expect(f"{where}: no changes", (host.files(), host.calls(), host.urls()), (before, [], []))
                continue
            check_al2(where, host, arch, version.lstrip("v"), runtime, mode, private)

    host = Machine(scratch, "x86_64", "1.7.27")
    host.put("etc/eks/containerd/containerd-config.toml", OLD_CONTAINERD)
    expect(f"AL2 {name}: a wrong checksum is an error", host.run(script) != 0, True)
    expect(f"AL2 {name}: and containerd is unchanged", host.files(), {"etc/eks/containerd/containerd-config.toml": OLD_CONTAINERD})
    host = Machine(scratch, "riscv64", "1.7.27")
    expect(f"AL2 {name}: no build for the architecture", (host.run(good), "no build for riscv64" in host.output), (1, True))


def check_al2(where, host, arch, version, runtime, mode, private):
    files = host.files()
    for program in ["soci", "soci-snapshotter-grpc"]:
        expect(f"{where}: {program}", files.get(f"usr/local/bin/{program}"), f"{program}\n")
    expect(f"{where}: only the programs", "usr/local/bin/LICENSE" in files, False)
    expect(f"{where}: snapshotter", tomllib.loads(files["etc/soci-snapshotter-grpc/config.toml"]), snapshotter_config(mode, private))
    major, minor, patch = (int(part) for part in version.split("."))
    expect(f"{where}: containerd", tomllib.loads(files["etc/eks/containerd/containerd-config.toml"]),
           containerd_config(3 if major >= 2 else 2, runtime, (major, minor, patch) >= (1, 7, 16)))
    unit = files["etc/systemd/system/soci-snapshotter.service"].splitlines()
    for line in ["Type=notify", "Before=containerd.service", "Restart=always", "RestartSec=5", "WantedBy=multi-user.target",
                 "ExecStart=/usr/local/bin/soci-snapshotter-grpc"]:
        expect(f"{where}: unit has {line}", line in unit, True)
    kubelet = json.loads(files["etc/kubernetes/kubelet/kubelet-config.json"])
    expect(f"{where}: kubelet", kubelet.get("imageServiceEndpoint"), f"unix://{SOCKET}" if private else None)
    expect(f"{where}: kubelet keeps the rest", kubelet["kind"], "KubeletConfiguration")
    # The script ran twice.
    once = ["yum install -y fuse", "modprobe fuse", "systemctl daemon-reload", "systemctl enable --now soci-snapshotter",
            "systemctl is-active soci-snapshotter"]
    expect(f"{where}: calls", host.calls(), once * 2)
    url = f"https://github.com/awslabs/soci-snapshotter/releases/download/v0.15.0/soci-snapshotter-0.15.0-linux-{arch}.tar.gz"
    expect(f"{where}: downloads", host.urls(), [url] * 2)
    expect(f"{where}: left over", host.left_over(), [])


def al2023(scratch, script):
    good = with_digest(script)
    image = {"usr/bin/soci-snapshotter-grpc": ("of the image\n", 0o755),
             "etc/systemd/system/soci-snapshotter.service": ("# of the image\n", 0o644)}
    program, unit = "usr/local/bin/soci-snapshotter-grpc", "etc/systemd/system/soci-snapshotter.service"
    dropin = "etc/systemd/system/soci-snapshotter.service.d/10-program.conf"
    for machine, arch in MACHINES.items():
        for has_image in [True, False]:
            for install in ["auto", "download", "ami"]:
                where = f"AL2023, {machine}, {install}, program in the image: {has_image}"
                host = Machine(scratch, machine, "2.2.3")
                for path, (text, mode) in image.items() if has_image else []:
                    host.put(path, text, mode)
                status = host.run(good.replace("install='auto'", f"install='{install}'"))
                if install == "ami" and not has_image:
                    expect(f"{where}: status", (status, "does not allow a download" in host.output), (1, True))
                    continue
                expect(f"{where}: status {host.output}", status, 0)
                once = host.files()
                expect(f"{where}: second run", (host.run(good.replace("install='auto'", f"install='{install}'")), host.files()), (0, once))
                downloads = install == "download" or not has_image
                expect(f"{where}: downloads", [url.rsplit("-", 1)[1] for url in host.urls()],
                       [f"{arch}.tar.gz"] * (2 if downloads else 0))
                expect(f"{where}: program", program in once, downloads)
                expect(f"{where}: the unit of the image is kept", once[unit] == "# of the image\n", has_image)
                expect(f"{where}: another program with the socket of the image",
                       once.get(dropin), "[Service]\nExecStart=\nExecStart=/usr/local/bin/soci-snapshotter-grpc --address fd://\n"
                       if has_image and downloads else None)
                expect(f"{where}: snapshotter", tomllib.loads(once["etc/soci-snapshotter-grpc/config.toml"]),
                       snapshotter_config("parallelFallback", True, v1=True))
                expect(f"{where}: containerd waits", once["etc/systemd/system/containerd.service.d/10-soci.conf"],
                       "[Unit]\nRequires=soci-snapshotter.service\nAfter=soci-snapshotter.service\n")
                pause = once["etc/systemd/system/soci-pause-image.service"]
                expect(f"{where}: pause image", ("Before=kubelet.service" in pause, "--snapshotter soci /etc/eks/pause.tar" in pause),
                       (True, True))
                expect(f"{where}: calls", host.calls()[:6], [
                    "dnf install -y fuse", "modprobe fuse", "systemctl daemon-reload", "systemctl enable --now soci-snapshotter",
                    "systemctl enable soci-pause-image", "systemctl is-active soci-snapshotter"])
    host = Machine(scratch, "x86_64", "2.2.3")
    expect("AL2023: a wrong checksum is an error", (host.run(script) != 0, host.files(), host.calls()),
           (True, {}, ["dnf install -y fuse", "modprobe fuse"]))


def main():
    folder = pathlib.Path(sys.argv[1])
    lazy = kit.Rendered("soci-al2", folder / "soci-al2.yaml")
    parallel = kit.Rendered("soci-al2-parallel", folder / "soci-al2-parallel.yaml")
    newer = kit.Rendered("soci-al2023", folder / "soci-al2023.yaml")
    with tempfile.TemporaryDirectory() as scratch:
        for name, runtime in {"default": "runc", "gpu-default": "nvidia"}.items():
            for rendered, kind, mode, private in [(lazy, "EC2NodeClass", "lazy", True), (parallel, "AWSNodeTemplate", "parallel", False)]:
                script = config.parts(rendered.one(kind, name)["spec"]["userData"])[0][1]
                lint(f"{rendered.name} {name}", script)
                al2(scratch, name, script, runtime, mode, private)
        script = config.parts(newer.one("EC2NodeClass", "default")["spec"]["userData"])[1][1]
        lint(newer.name, script)
        al2023(scratch, script)
    for each in kit.findings:
        print(f"error: {each}", file=sys.stderr)
    print(f"node scripts: {runs} runs, {len(kit.findings)} findings")
    sys.exit(1 if kit.findings else 0)


if __name__ == "__main__":
    main()
