"""A federation over a NATS broker: set-up, keys, the site's policy, the two services, release and audit."""
