"""npuflow as a pass of Olive, which builds ONNX models for a target.

Noun: `NpuflowCompile`, a pass.
Public: `NpuflowCompile`, `package_config`.
Does not know: other passes; recipes' files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

import npuflow
from npuflow.base.errors import DataError, UsageError
from npuflow.base.extras import needs
from npuflow.ir.types import Array
from npuflow.runner.context_model import context_model

with needs(
    "npuflow.apps.olive needs the package olive-ai",
    kind=UsageError,
    hint="pip install 'npuflow[olive]'",
    code="NF-USAGE-463",
):
    from olive.common.config_utils import validate_config
    from olive.data.config import DataConfig
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.pass_config import PassConfigParam

EPCONTEXT, QDQ = "epcontext", "qdq"
LAST = {EPCONTEXT: "codegen", QDQ: "qdq"}   # the stage that makes each form


class NpuflowCompile(Pass):  # type: ignore[misc]
    """Builds an ONNX model for a target of npuflow.

    Its result is an ONNX model with EPContext nodes, which `npuflow.ort` runs with the bits of the program,
    or the quantised model in QDQ form, which onnxruntime and Olive's evaluators run.
    """

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, Any]:
        return {
            "target": PassConfigParam(
                type_=str | dict[str, Any], required=True,
                description="The target: a name, the path of a TOML file, or its tables.",
            ),
            "form": PassConfigParam(
                type_=str, default_value=EPCONTEXT,
                description="What it becomes: epcontext (compiled nodes) or qdq (the quantised model).",
            ),
            "data_config": PassConfigParam(
                type_=DataConfig | dict[str, Any], default_value=None,
                description="Calibration samples; without it, the table data of `tables`.",
            ),
            "tables": PassConfigParam(
                type_=dict[str, Any], default_value=None,
                description='Tables of a recipe by name, as {"calibrate": {"method": "mse"}}.',
            ),
            "external": PassConfigParam(
                type_=bool, default_value=False,
                description="Whether the context of EPContext nodes is a file beside the model.",
            ),
            "cache": PassConfigParam(
                type_=str, default_value=None, description="npuflow's cache; without it the user's.",
            ),
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:
        """The model that was built.

        Raises UsageError of another form, DataError where the data configuration gives nothing, and what
        `npuflow.compile` raises.
        """
        if config.form not in LAST:
            raise UsageError(
                f'the pass NpuflowCompile has no form "{config.form}"', hint=f"form: {' or '.join(LAST)}",
                code="NF-USAGE-464",
            )
        tables = dict(config.tables or {})
        data: Any = tables.pop("data", None)
        if config.data_config is not None:
            data = samples(model, config.data_config)
        path = Path(resolve_onnx_path(output_model_path))
        with TemporaryDirectory() as scratch:
            build = npuflow.compile(
                model.model_path, config.target, data=data, cache=config.cache, out=scratch,
                until=LAST[config.form], **tables,
            )
            write = _write_context if config.form == EPCONTEXT else _write_qdq
            write(build, path, bool(config.external))
        return ONNXModelHandler(model_path=str(path.parent), onnx_file_name=path.name)


def package_config() -> dict[str, Any]:
    """Olive's package configuration with npuflow's pass: `olive.workflows.run(..., package_config=...)`, or
    as JSON the file of `olive run --package-config`."""
    made: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text())
    made["passes"][NpuflowCompile.__name__] = {
        "module_path": f"{__name__}.{NpuflowCompile.__name__}",
        "supported_providers": ["*"], "supported_accelerators": ["*"],
        "supported_precisions": ["int4", "int8", "int16"], "supported_quantization_encodings": ["qdq"],
        "dataset": "dataset_optional",
    }
    return made


def samples(model: Any, data_config: Any) -> dict[str, Array]:
    """The samples of a data configuration, by input, along a new first axis. Batches larger than the model's
    own are taken apart."""
    io = model.io_config
    reader = validate_config(data_config, DataConfig).to_data_container().create_calibration_dataloader(
        model_path=model.model_path, io_config=io
    )
    sizes = dict(zip(io["input_names"], io["input_shapes"], strict=True))
    found: dict[str, list[Array]] = {name: [] for name in sizes}
    for batch in iter(reader.get_next, None):
        for name, array in batch.items():
            if name in found:
                found[name].extend(_parts(array, sizes[name]))
    lacking = [name for name, rows in found.items() if not rows]
    if lacking:
        raise DataError(
            f'the data configuration gives no samples of input "{lacking[0]}"',
            because=f"its batches are dictionaries by input, of {', '.join(sizes)}", code="NF-DATA-328",
        )
    return {name: np.stack(rows) for name, rows in found.items()}


def _parts(batch: Array, shape: Any) -> Iterator[Array]:
    """Samples in the model's shape, of a batch of them."""
    rows = shape[0] if shape and isinstance(shape[0], int) and shape[0] > 0 else 1
    if not shape or len(batch) == rows:
        yield batch
    else:
        yield from (batch[at : at + rows] for at in range(0, len(batch) - rows + 1, rows))


def _write_context(build: Any, path: Path, external: bool) -> None:
    beside = path.with_name(f"{path.stem}_context.npu")
    made = context_model(build.program, beside.name if external else "")
    if external:
        beside.write_bytes(made.context)
    path.write_bytes(made.model)


def _write_qdq(build: Any, path: Path, external: bool) -> None:
    products: Mapping[str, Path] = build.products
    model = onnx.load(str(products["qdq"]))
    onnx.save(model, str(path), save_as_external_data=external or "qdq_data" in products)

__all__ = ["NpuflowCompile", "package_config"]
