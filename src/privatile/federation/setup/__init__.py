"""Before a run: the organizer's folder, and the files that organizer and sites send each other.

directory              the organizer's folder; admit, revoke and add clients, renew certificates
check                  everything that is wrong with the folder, at once
invitation             invitations and enrolments
certificates           the broker's certificate and its private authority
broker_configuration   what each party may publish and subscribe to
broker_binary          which nats-server is started
broker                 the embedded broker
peer_roster            without a coordinator: enrolments of peers, and the roster that all build from them
peer_folder            the folder of one peer, which stands where an organizer's stands
cluster_configuration  the configuration of a peer's server of the cluster
files                  small files, written in one piece
"""

__all__ = [
    "broker",
    "broker_binary",
    "broker_configuration",
    "certificates",
    "check",
    "cluster_configuration",
    "directory",
    "files",
    "invitation",
    "peer_folder",
    "peer_roster",
]
