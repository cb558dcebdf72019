"""memory-proxy: a streaming, OpenAI-compatible reverse proxy that gives an application a memory."""

import os

__version__ = "0.1.0"

# onnxruntime's Linux wheels report every session to Microsoft (mobile.events.data.microsoft.com, by a device
# id that they keep in ~/.cache), and the model hub's client counts downloads. What runs here is nobody's
# business. Said before either can be imported; what an operator has set stands.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")
