"""Code closures and registries: entries that code names, and the methods of theirs that it can call."""

from __future__ import annotations

from packages import Write, closure_of

from npuflow.base import code

REGISTRY = "from npuflow.base.registry import Registry\nOPS = Registry('toy ops', 'pk.ops')"
ENTRY = """
    from pk.reg import OPS
    @OPS.entry
    class Silu:
        size = 1
        def infer(self, x): return self.half(x)
        def half(self, x): return x / 2
        def lower(self, x): return emit(x)
    def emit(x): return x
"""
PLUGGED = {"pk/reg.py": REGISTRY, "pk/ops/__init__.py": "", "pk/ops/silu.py": ENTRY, "pk/ops/relu.py": ENTRY}


def test_stops_at_registries_but_follows_constant_names(write: Write) -> None:
    found = closure_of(write, "from pk.reg import OPS\ndef run(n): return OPS[n].infer(1)", PLUGGED)
    assert set(found.definitions) == {"pk.stage:run"}
    found = closure_of(write, "from pk import reg\ndef run(): return reg.OPS['silu'].infer(1)", PLUGGED)
    assert set(found.definitions) == {"pk.stage:run"} and found.entries == {"toy ops/silu"}
    found = closure_of(write, "from pk.reg import OPS\ndef run(): return OPS.names()", PLUGGED)
    assert set(found.definitions) == {"pk.stage:run", "toy ops/"}


def test_all_entries_of_a_registry_count_with_the_methods_that_are_named(write: Write) -> None:
    source = "from pk.reg import OPS\ndef run(): return [one().infer(1) for one in OPS.every().values()]"
    found = closure_of(write, source, PLUGGED)
    methods = {f"pk.ops.{n}:Silu{m}" for n in ("relu", "silu") for m in ("", ".infer", ".half")}
    assert set(found.definitions) == {"pk.stage:run", "toy ops/", *methods}
    assert found.entries == {"toy ops/relu", "toy ops/silu"}
    write({"pk/ops/relu.py": ENTRY.replace("emit(x)\n", "emit(x + 1)\n")})
    assert code.definition_closure("pk.stage", "run").digest == found.digest
    write({"pk/ops/relu.py": ENTRY.replace("x / 2", "x / 3")})
    assert code.definition_closure("pk.stage", "run").digest != found.digest


def test_facets_leave_other_methods_out(write: Write) -> None:
    write({"pk/__init__.py": "", **PLUGGED})
    infer = code.entry_closure("pk.ops.silu", None, ("infer",))
    whole = code.entry_closure("pk.ops.silu")
    assert set(infer.definitions) == {"pk.ops.silu:Silu", "pk.ops.silu:Silu.infer", "pk.ops.silu:Silu.half"}
    write({"pk/ops/silu.py": ENTRY.replace("emit(x)\n", "emit(x + 1)\n")})
    assert code.entry_closure("pk.ops.silu", None, ("infer",)).digest == infer.digest
    assert code.entry_closure("pk.ops.silu").digest != whole.digest
    for old, new in [("x / 2", "x / 3"), ("size = 1", "size = 2"), ("self.half(x)", "self.half(x) + 1")]:
        write({"pk/ops/silu.py": ENTRY.replace(old, new)})
        assert code.entry_closure("pk.ops.silu", None, ("infer",)).digest != infer.digest


def test_facets_reach_inherited_methods_and_calls_from_outside_the_class(write: Write) -> None:
    base = "class Op:\n    def infer(self, x): return helper(self)\n    def cost(self): return 1\n"
    base += "    def lower(self): return 2\ndef helper(op): return op.cost()"
    entry = "from pk.reg import OPS\nfrom pk.base import Op\n@OPS.entry\nclass Add(Op):\n    n = 1"
    write({"pk/__init__.py": "", **PLUGGED, "pk/base.py": base, "pk/ops/add.py": entry})
    found = code.entry_closure("pk.ops.add", None, ("infer",))
    assert set(found.definitions) == {
        "pk.ops.add:Add", "pk.base:Op", "pk.base:Op.infer", "pk.base:Op.cost", "pk.base:helper",
    }
