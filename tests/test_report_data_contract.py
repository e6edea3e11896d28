"""The page on the data contract says what is declared."""

from __future__ import annotations

from pathlib import Path

from data_contract_page import render

PAGE = Path(__file__).parent.parent / "docs" / "data-contract.md"


def test_the_data_contract_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run: python tests/data_contract_page.py docs/data-contract.md"
    )
