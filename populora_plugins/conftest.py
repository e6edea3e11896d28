"""The fixtures of tests/ and the marks that they bring, for the tests that lie beside plug-ins."""

from conftest import (  # noqa: F401
    copy_of,
    finished,
    finished_solo,
    finished_with_a_past,
    nobody_cuts_the_power,
    pytest_itemcollected,
    sandbox,
    shared_folder,
)
from small_study import small  # noqa: F401
