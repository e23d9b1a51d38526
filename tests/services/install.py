"""Makes sure that the servers which these tests start are installed; on Debian, as root, by apt-get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

SERVERS = {"sshd": "openssh-server"}


def find(program: str) -> str | None:
    """Where it is; servers often lie outside a user's PATH."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def main() -> int:
    """Install what is missing; a test fails, and is never skipped, where that does not help."""
    missing = [package for program, package in SERVERS.items() if find(program) is None]
    if not missing or shutil.which("apt-get") is None or os.geteuid() != 0:
        return 0
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], env=environment, check=False)
    return subprocess.run(["apt-get", "install", "-yq", "--no-install-recommends", *missing], env=environment,
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
