"""For all tests: Hypothesis tries the same examples every time, unless it is told to look further.

    python3 tests/run.py --hypothesis-profile explore      # new examples, and ten times as many where none is named
"""

from hypothesis import settings

# No deadline in either: a machine that is busy with something else makes no test fail.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("steady")
