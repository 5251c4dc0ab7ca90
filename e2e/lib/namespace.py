"""A network namespace in which the host names of AWS resolve to loopback, and certificates for these names by a certificate
authority of the test. Needs root and iproute2."""

import datetime
import os
import pathlib
import shutil
import subprocess
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

INSIDE = "KARPENTER_MOTO_NAMESPACE"
# The address of the EKS Pod Identity agent.
POD_IDENTITY = "169.254.170.23"


def enter(hosts):
    """Runs this program again inside the namespace and exits with its status. Returns if this process is inside already."""
    if os.environ.get(INSIDE):
        return
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("e2e/moto: a network namespace needs root and `ip` (apt-get install iproute2)", file=sys.stderr)
        sys.exit(77)
    name = f"karpenter-moto-{os.getpid()}"
    folder = pathlib.Path("/etc/netns") / name
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        folder.mkdir(parents=True)
        (folder / "hosts").write_text("127.0.0.1 localhost " + " ".join(hosts) + "\n")
        # Without name servers, a name that is not in the hosts file does not resolve.
        (folder / "resolv.conf").write_text("")
        for command in (["link", "set", "lo", "up"], ["addr", "add", f"{POD_IDENTITY}/32", "dev", "lo"]):
            subprocess.run(["ip", "-n", name, *command], check=True)
        inside = subprocess.run(["ip", "netns", "exec", name, sys.executable, *sys.argv], env={**os.environ, INSIDE: name})
        sys.exit(inside.returncode)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def certificates(folder, hosts):
    """Two files: the certificate of the authority, and a key with a certificate for the names."""
    now = datetime.datetime.now(datetime.timezone.utc)
    own_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of e2e/moto")])

    def built(subject, public_key, *extensions):
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(own_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority = built(issuer, own_key.public_key(), (x509.BasicConstraints(True, None), True))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aws")])
    leaf = built(subject, key.public_key(), (x509.BasicConstraints(False, None), True),
                 (x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), False))
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.pem").write_bytes(authority)
    (folder / "aws.pem").write_bytes(secret + leaf)
    return folder / "ca.pem", folder / "aws.pem"
