"""Frozen encoders: files, forward passes, and what was measured of them. The only room, with `adapters`, that may
import torch.

Invariant: nothing in here tells anybody anything. ONNX Runtime's builds for Linux report every process to their maker
and leave an identifier in the temporary directory, unless they are told not to before they are imported.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = os.environ["ORT_TELEMETRY_DISABLED"] = "1"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
