"""What tests share is listed, so that nobody writes it again."""

from tests.architecture import diagram
from tests.architecture.shared import PAGE, page


def test_every_helper_is_on_the_page() -> None:
    assert PAGE.read_text() == page(), "python -m tests.architecture.shared writes it anew"


def test_the_diagram_of_places_is_the_table() -> None:
    assert diagram.PAGE.read_text() == diagram.page(), "make format writes it anew"
