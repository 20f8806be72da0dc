"""Before a run: the organizer's folder, and the files that organizer and sites send each other.

directory              the organizer's folder; admit, revoke and add clients, renew certificates
check                  everything that is wrong with the folder, at once
invitation             invitations and enrolments
certificates           the broker's certificate and its private authority
broker_configuration   what each party may publish and subscribe to
broker_binary          which nats-server is started
broker                 the embedded broker
files                  small files, written in one piece
"""

__all__ = [
    "broker",
    "broker_binary",
    "broker_configuration",
    "certificates",
    "check",
    "directory",
    "files",
    "invitation",
]
