"""Physics of the simulated cluster. Shares nothing with the tuner's analytic prior, which would else grade itself."""
