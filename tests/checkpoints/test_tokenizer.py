"""Tokenizers of folders and GGUF files, held against those that they were written from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from npuflow.base.errors import ModelError
from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import CheckpointTokenizer, is_stored, restored, stored, tokenizer
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES

tokenizers = pytest.importorskip("tokenizers")

CORPUS = [*topics.values()][:12]
TEXTS = [
    "The capital of France is", " two  spaces, a tab\tand\r\n\r\nlines \n",
    "def f(x):\n    return x**2 + 12345.678",
    "it's we'LL; naïve café, ½ and ﬁ", "日本語 and emoji 🙂!", "", " ", "<|end|>x<|end|>",
]
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def splits(name: str) -> Any:
    """What models of these names have in their tokenizer.json."""
    make = tokenizers.pre_tokenizers
    bytes_ = make.ByteLevel(add_prefix_space=False, use_regex=False)
    if name == "smollm":
        return make.Sequence([make.Digits(True), make.ByteLevel(add_prefix_space=False)])
    pattern = {"gpt-2": GPT2, "llama-bpe": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", "")}[name]
    return make.Sequence([make.Split(tokenizers.Regex(pattern), "isolated"), bytes_])


def trained(name: str) -> Any:
    """A byte-level tokenizer with two added tokens."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=name == "llama-bpe"))
    made.pre_tokenizer, made.decoder = splits(name), tokenizers.decoders.ByteLevel()
    if name == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|begin|>", "<|end|>"], initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def into_gguf(library: Any, name: str, **changes: Any) -> Callable[[Any], None]:
    """Writes the tokens as llama.cpp's converter does."""
    held = json.loads(library.to_str())["model"]
    tokens = sorted(held["vocab"], key=held["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in held["merges"]]

    def more(writer: Any) -> None:
        writer.add_tokenizer_model(changes.get("model", "gpt2"))
        if name:
            writer.add_tokenizer_pre(name)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
        writer.add_token_merges(merges)
        writer.add_bos_token_id(changes.get("begin", 0))
        writer.add_eos_token_id(1)
        writer.add_chat_template(TEMPLATE)

    return more


def of_gguf(folder: Path, more: Callable[[Any], None]) -> CheckpointTokenizer:
    return tokenizer(opened(write(FAMILIES / "llama", folder / "net.gguf", more=more)))


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_a_gguf_files_bytes_are_joined_as_the_original_does(name: str, tmp_path: Path) -> None:
    library = trained(name)
    found = of_gguf(tmp_path, into_gguf(library, name))
    assert found.tokens == library.get_vocab_size() and found.stops == (1,)
    for text in [*TEXTS, *CORPUS]:
        ids = found.encode(text, begin=False)
        assert ids == library.encode(text).ids, text
        assert found.decode(ids) == library.decode(ids)
    assert found.encode("a", begin=True)[:1] == ([0] if name == "llama-bpe" else found.encode("a", False)[:1])


def test_a_folders_tokenizer_is_the_librarys_file(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "llama", tmp_path / "net")
    library = trained("gpt-2")
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    library.save(str(tmp_path / "net" / "tokenizer.json"))
    about = {"bos_token": {"content": "<|begin|>"}, "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (tmp_path / "net" / "tokenizer_config.json").write_text(json.dumps(about))
    (tmp_path / "net" / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 1]}))
    found = tokenizer(opened(tmp_path / "net"))
    assert found.stops == (7, 1) and found.parts.named["bos_token"] == "<|begin|>"
    for text in TEXTS:
        assert found.encode(text) == library.encode(text).ids
        assert found.encode(text, begin=False) == library.encode(text, add_special_tokens=False).ids
    said = [{"role": "user", "content": "Hi"}]
    assert found.chat_text(said) == "<|user|>Hi<|end|><|assistant|>"
    assert found.chat_text(said, answer=False) == "<|user|>Hi<|end|>"
    assert found.chat(said) == library.encode(found.chat_text(said), add_special_tokens=False).ids


@pytest.mark.parametrize("spaced", [True, False])
def test_sentencepieces_pairs_are_joined_by_score(spaced: bool, tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"), model_prefix=str(tmp_path / "spm"), vocab_size=600,
        model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=spaced, minloglevel=2, num_threads=1,
    )
    original = spm.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    count = original.get_piece_size()

    def more(writer: Any) -> None:
        types = [
            2 if original.is_unknown(i) else 3 if original.is_control(i) else 6 if original.is_byte(i) else 1
            for i in range(count)
        ]
        writer.add_tokenizer_model("llama")
        writer.add_token_list([original.id_to_piece(i) for i in range(count)])
        writer.add_token_scores([original.get_score(i) for i in range(count)])
        writer.add_token_types(types)
        writer.add_bos_token_id(original.bos_id())
        writer.add_eos_token_id(original.eos_id())
        writer.add_unk_token_id(original.unk_id())
        writer.add_add_space_prefix(spaced)

    own = of_gguf(tmp_path, more)
    for found in (own, through_a_file(own, tmp_path)):
        for text in [*TEXTS[:5], *CORPUS]:
            ids = original.encode(text)
            assert found.encode(text) == [original.bos_id(), *ids], text
            assert found.decode(ids) == original.decode(ids)


def through_a_file(own: CheckpointTokenizer, folder: Path) -> CheckpointTokenizer:
    """The same tokenizer as a build stores it beside the program."""
    path = folder / "tokenizer.json"
    path.write_text(stored(own), encoding="utf-8")
    assert is_stored(path)
    return restored(path)


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_a_stored_tokenizer_is_the_checkpoint_s(name: str, tmp_path: Path) -> None:
    library = trained(name)

    def more(writer: Any) -> None:
        into_gguf(library, name)(writer)
        writer.add_chat_template(TEMPLATE)

    own = of_gguf(tmp_path, more)
    found = through_a_file(own, tmp_path)
    assert found.parts == own.parts and found.tokens == own.tokens
    for text in [*TEXTS, *CORPUS]:
        ids = own.encode(text)
        assert found.encode(text) == ids and found.decode(ids) == own.decode(ids)
    said = [{"role": "user", "content": "Hi"}]
    assert found.chat(said) == own.chat(said)


def test_a_file_that_no_build_stored_is_told_apart(tmp_path: Path) -> None:
    """That of a checkpoint's folder has the same name."""
    own, path = tmp_path / "tokenizer.json", tmp_path / "broken" / "tokenizer.json"
    trained("gpt-2").save(str(own))
    assert not is_stored(own) and not is_stored(tmp_path / "nothing.json")
    path.parent.mkdir()
    path.write_text('{"version":1,"parts":{"before":[]},"library":"{}"}')
    assert is_stored(path)
    found = fault(lambda: restored(path))
    assert found.code == "NF-MODEL-467" and "npuflow build" in str(found.hint)


def fault(make: Callable[[], Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        make()
    assert caught.value.where.file
    return caught.value


def test_an_unknown_way_of_splitting_is_an_error(tmp_path: Path) -> None:
    library = trained("gpt-2")
    found = fault(lambda: of_gguf(tmp_path, into_gguf(library, "smolm")))
    assert found.code == "NF-MODEL-469" and '"smolm"' in found.message and '"smollm"' in found.hint
    found = fault(lambda: of_gguf(tmp_path, into_gguf(library, "")))
    assert found.code == "NF-MODEL-469" and "does not say" in found.message


def test_what_is_no_tokenizer_is_an_error(tmp_path: Path) -> None:
    library = trained("gpt-2")
    assert fault(lambda: of_gguf(tmp_path, lambda writer: None)).code == "NF-MODEL-468"
    assert fault(lambda: of_gguf(tmp_path, into_gguf(library, "gpt-2", model="t5"))).code == "NF-MODEL-468"
    assert fault(lambda: of_gguf(tmp_path, into_gguf(library, "gpt-2", begin=9999))).code == "NF-MODEL-467"
    assert fault(lambda: tokenizer(opened(FAMILIES / "llama"))).code == "NF-MODEL-468"
    shutil.copytree(FAMILIES / "llama", tmp_path / "net")
    (tmp_path / "net" / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    assert fault(lambda: tokenizer(opened(tmp_path / "net"))).code == "NF-MODEL-467"


@pytest.mark.parametrize("key", ["tokens", "token_type", "merges", "bos_token_id"])
@pytest.mark.parametrize("value", [3, "x", [1.5], ["a b", 4], []])
def test_damaged_lists_are_one_error(key: str, value: object, tmp_path: Path) -> None:
    from npuflow.checkpoints.tokenizer.from_gguf import parts

    path = write(FAMILIES / "llama", tmp_path / "net.gguf", more=into_gguf(trained("gpt-2"), "gpt-2"))
    held = {**opened(path).metadata, f"tokenizer.ggml.{key}": value}
    if (key, value) in (("bos_token_id", 3), ("token_type", [])):
        parts(held, "net.gguf")
        return
    assert fault(lambda: parts(held, "net.gguf")).code in ("NF-MODEL-467", "NF-MODEL-468")


def test_a_template_reaches_nothing_of_python(tmp_path: Path) -> None:
    library = trained("gpt-2")
    found = of_gguf(tmp_path, into_gguf(library, "gpt-2"))
    said = fault(lambda: found.chat_text([{"role": "system", "content": "x"}]))
    assert said.code == "NF-MODEL-470" and "no system" in said.because
    from npuflow.checkpoints.tokenizer.tokenizer import written

    bad = ("{{ ''.__class__.__mro__ }}", "{% include '/etc/passwd' %}", "{{ messages.append(1) }}", "{%")
    for template in bad:
        assert fault(lambda template=template: written(template, [], {}, True, "f")).code == "NF-MODEL-470"


def test_a_checkpoint_without_a_template_says_so(tmp_path: Path) -> None:
    shutil.copytree(FAMILIES / "llama", tmp_path / "net")
    trained("gpt-2").save(str(tmp_path / "net" / "tokenizer.json"))
    found = tokenizer(opened(tmp_path / "net"))
    assert fault(lambda: found.chat([{"role": "user", "content": "x"}])).code == "NF-MODEL-465"
