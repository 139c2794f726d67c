"""The tool that writes the generated pages says when one is stale, and writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import generate_docs


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generate_docs, "ROOT", tmp_path)
    for page in generate_docs.PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_missing_pages_are_stale_until_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_docs.main(["--check"]) == 1
    assert "docs/protocol.md is stale; run `make docs`" in capsys.readouterr().err
    assert generate_docs.main([]) == 0
    assert generate_docs.main(["--check"]) == 0
    assert (root / "docs/protocol.md").read_text(encoding="utf-8").startswith("# The protocol\n")


def test_an_edited_page_is_stale(root: Path) -> None:
    generate_docs.main([])
    page = root / "docs/settings.md"
    page.write_text(page.read_text(encoding="utf-8") + "by hand\n", encoding="utf-8")
    assert generate_docs.stale_pages() == ["docs/settings.md"]
    assert generate_docs.main([]) == 0
    assert generate_docs.stale_pages() == []


def test_the_page_of_metrics_has_no_words_that_only_its_authors_know() -> None:
    page = generate_docs.PAGES["docs/metrics.md"]()
    assert "seed" not in page.lower()
    assert "deferred" not in page.lower()


def test_an_unknown_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_docs.main(["--chek"]) == 2
    assert "--chek" in capsys.readouterr().err
