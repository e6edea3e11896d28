"""A base that somebody else made is data: odd settings end with a sentence, and its chat template within bounds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from populora_core.config.sections import BaseSection
from populora_core.model import chat
from populora_core.model.base import load_vocabulary
from populora_core.problems.dialects.instruct import InstructDialect
from populora_core.support.errors import BaseModelError


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the tiny base to tamper with."""
    shutil.copytree(BaseSection().folder(), tmp_path / "base")
    return tmp_path / "base"


def test_a_base_with_an_adapter_beside_it_is_refused(base: Path, tmp_path: Path) -> None:
    (base / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(tmp_path / "other")})
    )
    with pytest.raises(BaseModelError, match="holds an adapter"):
        load_vocabulary(base)


@pytest.mark.parametrize("end", ["<eos>", [[1]], {"a": 1}, -1, 10**12])
def test_a_base_with_an_odd_end_token_ends_no_command_with_a_traceback(base: Path, end: object) -> None:
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    try:
        assert load_vocabulary(base).stop_ids
    except BaseModelError:
        return


ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "one multiplication": "{{ 7 ** (9 ** 9) }}",
    "two gigabytes": "{{ 'x' * 2000000000 }}",
    "a long text": "{{ 'x' * 20000000 }}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_chat_template_without_end_ends_with_a_sentence(
    base: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(chat, "CPU_SECONDS", 1.0)
    (base / "chat_template.jinja").write_text(ENDLESS[name])
    with pytest.raises(BaseModelError, match=r"chat template of the base model .* takes too much"):
        load_vocabulary(base)


def test_a_chat_template_that_never_ends_for_some_prompts_ends_for_them_and_renders_others(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "CPU_SECONDS", 1.0)
    text = (
        "{% if 'trap' in messages[0].content %}" + ENDLESS["loops"] + "{% endif %}{{ messages[0].content }}"
    )
    (base / "chat_template.jinja").write_text(text)
    tokenizer, dialect = load_vocabulary(base).tokenizer, InstructDialect()
    with pytest.raises(BaseModelError, match="1 CPU seconds"):
        dialect.encode(tokenizer, "a trap")
    assert dialect.encode(tokenizer, "x+1")


def test_a_chat_template_that_fails_is_told_with_its_words(base: Path) -> None:
    (base / "chat_template.jinja").write_text("{{ raise_exception('no user here') }}")
    with pytest.raises(BaseModelError, match="no user here"):
        InstructDialect().encode(load_vocabulary(base).tokenizer, "x+1")


def test_a_chat_template_is_rendered_as_transformers_does(base: Path) -> None:
    (base / "chat_template.jinja").write_text(
        "{{ eos_token }}{% for m in messages %}\n  {%- generation %}<{{ m['role'] }}>{% endgeneration %}"
        "{{ m | tojson }}{% if loop.last %}{% break %}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}!{% endif %}"
    )
    turns = [{"role": "user", "content": "<é>\n"}, {"role": "assistant", "content": "2"}]
    ours, theirs = load_vocabulary(base).tokenizer, AutoTokenizer.from_pretrained(base)
    given = {"add_generation_prompt": True, "tokenize": False}
    assert ours.apply_chat_template(turns, **given) == theirs.apply_chat_template(turns, **given)


def test_a_chat_template_is_told_one_day_for_ever(base: Path) -> None:
    (base / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}")
    turns = [{"role": "user", "content": "x"}]
    assert load_vocabulary(base).tokenizer.apply_chat_template(turns, tokenize=False) == "26 Jul 2024"
