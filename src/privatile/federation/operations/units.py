"""systemd units for `privatile serve` and `privatile join`: they restart after a crash, not after a refusal."""

import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path

HARDENING = """\
NoNewPrivileges=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
"""
"""What a service may not do. `deploy/` has units with the same lines, and homes out of reach."""

RESTARTS = """\
Restart=on-failure
RestartSec=30
# 2: something is wrong with the input or the ledger; 5: the site's limits refuse the study. A restart would not help.
RestartPreventExitStatus=2 5
KillSignal=SIGTERM
TimeoutStopSec=60
"""


def systemd_unit(what: str, arguments: Sequence[str], writes: Sequence[Path] = ()) -> str:
    """A unit that runs a privatile command for months, as the user who wrote it, whose keys the ledger needs.

    It may write the folders `writes` and nothing else.
    """

    def quote(text: str) -> str:
        plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        return f'"{plain}"'

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    command = " ".join(quote(text) for text in (sys.executable, "-m", "privatile", *arguments))
    # "-": a folder that is not there yet is no fault.
    paths = "".join(f"ReadWritePaths={quote(f'-{path.absolute()}').replace('$$', '$')}\n" for path in writes)
    return f"""[Unit]
Description=privatile {what}
Wants=network-online.target
After=network-online.target

[Service]
User={user}
ExecStart={command}
{RESTARTS}{paths}{HARDENING}
[Install]
WantedBy=multi-user.target
"""
