from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.render import figures, percent


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0931, "3.093"), (0.059, "0.05900"), (33.244, "33.24"), (12345.6, "12346"), (0.0, "0.000"), (999.96, "1000.0")],
)
def test_numbers_have_four_significant_figures_and_no_powers_of_ten(value: float, text: str) -> None:
    assert figures(value) == text


@given(st.floats(1e-6, 1e9))
def test_what_is_shown_is_the_number_to_four_figures(value: float) -> None:
    assert float(figures(value)) == pytest.approx(value, rel=1e-3)
    assert "e" not in figures(value)


@pytest.mark.parametrize(
    ("share", "text"), [(0.05, "+5.0%"), (-0.25, "-25.0%"), (-0.0, "+0.0%"), (-0.0004, "+0.0%"), (None, "")]
)
def test_shares_carry_their_sign_and_zero_is_never_negative(share: float | None, text: str) -> None:
    assert percent(share) == text
