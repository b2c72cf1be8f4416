"""The tiny language model that tests of text serve: its checkpoint once for each file."""

from __future__ import annotations

import pytest

from tests.serve.texts import Texts


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    pytest.importorskip("tokenizers")
    from tests.checkpoints.texts import made

    return Texts(made(tmp_path_factory.mktemp("texts") / "net"))
