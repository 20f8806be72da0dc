"""Before a run: the organizer's folder, and the files that organizer and sites send each other.

folder        the organizer's folder; go on without a client; admit, revoke and add clients; renew certificates
check         everything that is wrong with the folder, at once
invitation    invitations and enrolments
permissions   what each party may publish and subscribe to
broker        which nats-server is started, and how
"""

__all__ = ["broker", "check", "folder", "invitation", "permissions"]
