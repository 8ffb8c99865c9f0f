"""What tests share is listed, so that nobody writes it again."""

from tests.architecture.shared import PAGE, page


def test_every_helper_is_on_the_page() -> None:
    assert PAGE.read_text() == page(), "python -m tests.architecture.shared writes it anew"
