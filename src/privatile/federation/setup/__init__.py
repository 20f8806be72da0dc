"""Before a run: the organizer's folder, invitations and enrolments, certificates, and the embedded broker."""

from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.setup.broker_configuration import BrokerSettings
from privatile.federation.setup.check import check
from privatile.federation.setup.directory import Directory, add_client, admit, initialize, renew, revoke
from privatile.federation.setup.invitation import Enrolment, Invitation, read_enrolment, read_invitation

__all__ = [
    "BrokerSettings",
    "Directory",
    "EmbeddedBroker",
    "Enrolment",
    "Invitation",
    "add_client",
    "admit",
    "check",
    "initialize",
    "read_enrolment",
    "read_invitation",
    "renew",
    "revoke",
]
