"""A privatile study over Flower: the two apps that `flwr run` looks for."""
