"""TLS with a broker: which authority to trust, and what a failure means."""

from __future__ import annotations

import ssl


def client_context(authority_pem: str) -> ssl.SSLContext:
    """TLS 1.3 towards a broker whose certificate this authority, and no other, has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority_pem)
    return context


def explain_tls(error: BaseException) -> str | None:
    """A TLS failure in words a site can act on; None when the error is not one."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    reason = (error.verify_message or "").lower()
    if "expired" in reason:
        return (
            "the broker's certificate has expired (or this machine's clock is ahead). The coordinator renews it with "
            "`privatile federation renew`; nothing is lost, this client goes on trying."
        )
    if "not yet valid" in reason:
        return (
            "the broker's certificate is not valid yet: this machine's clock is probably behind. Set the clock; "
            "nothing is lost, this client goes on trying."
        )
    if "mismatch" in reason or "not valid for" in reason:
        return (
            "the broker's certificate is for another host name. The coordinator adds the name with "
            "`privatile federation renew --host NAME`."
        )
    return (
        "the broker's certificate was not signed by the authority of the invitation: this is another broker, or "
        "someone intercepts the connection. Compare fingerprints with the coordinator before going on."
    )
