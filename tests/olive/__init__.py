import os

os.environ.setdefault("OLIVE_DISABLE_TELEMETRY", "1")
