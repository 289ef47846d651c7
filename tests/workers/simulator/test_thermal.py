from __future__ import annotations

import numpy as np
import pytest

from tuner.hardware import Cluster
from workers.simulator.thermal import STEADY_BAND_K, settling_s, steady_temperature_c, temperature_after_c


def test_a_board_at_its_power_limit_reaches_60_to_75_degrees(cluster: Cluster) -> None:
    temperature = steady_temperature_c(cluster.gpu, np.array([700.0]), np.array([0.0]))
    assert 60 < temperature[0] < 75


@pytest.mark.parametrize("start", [30.0, 90.0])
def test_after_settling_the_temperature_is_just_within_the_band(start: float) -> None:
    after = temperature_after_c(start, 65.0, settling_s(start, 65.0))
    assert abs(after - 65.0) == pytest.approx(STEADY_BAND_K)


def test_a_board_that_is_warm_already_need_not_settle() -> None:
    assert settling_s(64.5, 65.0) == 0
