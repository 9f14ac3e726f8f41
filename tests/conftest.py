"""What all tests share."""

import os

from hypothesis import HealthCheck, settings

# Machines that run the tests are shared and noisy: a slow example is no failure, and the same
# examples come every time, so that a red run can be run again.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
