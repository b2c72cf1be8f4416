"""What a worker has to answer before it is given work: whether it would do the same as the driver."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from npuflow.base.code import definition_closure, open_memo
from npuflow.flow import store_files as files


class Question(NamedTuple):
    """What a worker has to answer before it is given work."""

    root: str
    token: str
    stages: Mapping[str, tuple[str, str, str]]
    """Step -> the module of its function, its name there, the digest of its code."""
    plugins: Mapping[str, str]
    """Selected plug-ins and their code."""
    libraries: Mapping[str, str]


def ask(question: Question) -> list[str]:
    """Run on a worker: what differs here from the driver, or nothing."""
    from importlib import import_module, metadata

    from npuflow.flow.processor import processor

    faults: list[str] = []
    open_memo(Path(question.root) / "memo")
    for name, (module, attribute, wanted) in question.stages.items():
        try:
            import_module(module)
            found = definition_closure(module, attribute).digest
        except Exception as fault:  # whatever keeps a stage from being imported there is the answer
            faults.append(f"stage {name} cannot be imported ({fault}): install the same packages there")
            continue
        if found != wanted:
            faults.append(f"the code of stage {name} differs: install the same npuflow and plug-ins there")
    for label, wanted in question.plugins.items():
        from npuflow.flow.keys import plugin_code, split

        try:
            found = plugin_code(*split(label)).digest
        except Exception as fault:  # as above
            faults.append(f"plug-in {label} is not there ({fault}): install it on the worker")
            continue
        if found != wanted:
            faults.append(f"the code of plug-in {label} differs: install the same version there")
    for library, wanted in question.libraries.items():
        # stages of float results: the feature class that their keys state
        if library == "cpu":
            if processor() != wanted:
                faults.append(f"its processor ({processor()}) computes floats unlike the driver's ({wanted})")
            continue
        with suppress(metadata.PackageNotFoundError):
            if metadata.version(library) == wanted:
                continue
            faults.append(
                f"it has {library} {metadata.version(library)}, not {wanted}: pip install {library}=={wanted}"
            )
            continue
        faults.append(f"it has no {library}: pip install {library}=={wanted}")
    probe = Path(question.root) / "tmp" / question.token
    try:
        seen = probe.read_text()
        made = files.fresh(probe.parent, question.token + "-answer")
        made.write_text(seen)
        made.unlink()
    except OSError as fault:
        hint = "mount the cache there at the same path, or choose another with --cache"
        faults.append(f"it cannot use the cache {question.root} ({fault.strerror}): {hint}")
        return faults
    if seen != question.token:
        faults.append(f"it reads another folder at {question.root}: mount the driver's cache there")
    return faults
