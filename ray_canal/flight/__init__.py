"""Arrow Flight: destinations over the network, for programs without Ray and without our code."""
