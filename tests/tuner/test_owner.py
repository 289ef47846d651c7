from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuner.owner import is_gone, this_owner


def test_a_living_process_is_not_gone_and_one_that_was_killed_is_even_as_a_zombie() -> None:
    assert not is_gone(this_owner())
    code = "from tuner.owner import this_owner; print(this_owner(), flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    owner = process.stdout.readline().strip()
    assert not is_gone(owner)
    process.kill()
    # Dead, but not yet read by its parent.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner)
    process.communicate()
    assert is_gone(owner)


def test_a_process_id_that_was_given_to_another_process_does_not_pass_for_the_old_one() -> None:
    machine, _, process = this_owner().rpartition("/")
    pid = process.partition("-")[0]
    assert is_gone(f"{machine}/{pid}-1")


@pytest.mark.parametrize("owner", ["", "tests", "other-host/1234abcd-1/1-1", "x/y/z-z", f"{this_owner()}x"])
def test_nobody_of_whom_nothing_is_known_is_taken_for_gone(owner: str) -> None:
    assert not is_gone(owner)
