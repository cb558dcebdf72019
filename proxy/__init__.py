"""memory-proxy: a streaming, OpenAI-compatible reverse proxy that gives an application a memory."""

import os

__version__ = "0.1.0"

# onnxruntime's Linux wheels report every session to Microsoft (mobile.events.data.microsoft.com, by a device
# id that they keep in ~/.cache), and the model hub's client counts downloads. What runs here is nobody's
# business. Said before either can be imported; what an operator has set stands.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")

# numpy's OpenBLAS starts a thread for every processor, and after each product that it shares out they all
# wait for the next one without sleeping, some 30 ms long: a request that needs 7 ms of one processor took 13
# of two, and 40 where its upstream thinks for a while. What a request multiplies takes microseconds on one
# thread. Read when numpy is imported; what an operator has set stands.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
