"""Write the committed graphs of the encoder, proxy/models/*-int8.onnx.

For developers, and only after `weights.layer_tensors` has changed (raise the layout's number there too):

    python -m venv /tmp/onnx && /tmp/onnx/bin/pip install onnx numpy
    /tmp/onnx/bin/python scripts/dev/make_graph.py

Every weight is an external-data reference into a packed file, so a graph holds no weights, and sessions share
the mapped pages. The operators that quantise and attend are onnxruntime's own (domain com.microsoft).

Three graphs: the encoder (token ids in; the unit vector and the last hidden states out); the encoder with
low-rank changes of every matrix, which are inputs: all heads that read two texts together run on one session;
and the small transformer of the relevance head, with all its weights as inputs.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.models import vocabulary, weights
from proxy.models.judge import BLOCKS as RELEVANCE_BLOCKS
from proxy.models.judge import HEADS as RELEVANCE_HEADS
from proxy.models.judge import RELEVANCE_GRAPH

MICROSOFT = "com.microsoft"
HEADS, EPSILON, WORD_ROWS = 12, 1e-12, 250_037
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """Collects nodes and initializers; every method returns the name of the value that it made.

    `changed`: every matrix has a low-rank change, NAME_down (inputs, rank) and NAME_up (rank, outputs).
    """

    def __init__(self, *, changed: bool = False, weights_inside: bool = True) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.changes: list[str] = []
        self._changed = changed
        self._names: set[str] = set()
        if not weights_inside:
            return
        self.add(weights.layer_tensors(), weights.PACKED_NAME)
        width = weights.WIDTH
        published = [np.empty((WORD_ROWS, width), np.int8), np.empty((WORD_ROWS, 1), np.float32)]
        self.add(zip(vocabulary.WORDS, published, strict=True), vocabulary.WORDS_NAME)

    def add(self, named: weights.Named, file: str) -> None:
        """Refer to the tensors of the packed file of this name."""
        placed = list(weights.place(named))
        self.initializers += [_external(tensor, file) for tensor in placed]
        self._names |= {tensor.name for tensor in placed}

    def constant(self, name: str, *values: int) -> str:
        self.initializers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def many(self, kind: str, inputs: list[str], outputs: int, domain: str = "", **options: Any) -> list[str]:
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **options))
        return names

    def op(self, kind: str, inputs: list[str], domain: str = "", **options: Any) -> str:
        return self.many(kind, inputs, 1, domain, **options)[0]

    def name(self, value: str, output: str) -> None:
        """Give the value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [output]))

    def linear(self, x: str, name: str) -> str:
        smooth = self.op("Mul", [x, name + "_smooth"]) if name + "_smooth" in self._names else x
        inputs = [smooth, name, name + "_scale", "", name + "_bias"]
        made = self.op("DynamicQuantizeMatMul", inputs, MICROSOFT)
        if not self._changed:
            return made
        down, up = f"{name}_down", f"{name}_up"
        self.changes += [down, up]
        return self.op("Add", [made, self.op("MatMul", [self.op("MatMul", [x, down]), up])])

    def normalised(self, x: str, name: str) -> str:
        return self.op("LayerNormalization", [x, name + "_gain", name + "_bias"], axis=-1, epsilon=EPSILON)

    def add_and_norm(self, x: str, residual: str, name: str) -> str:
        # Not SkipLayerNormalization, onnxruntime's own: not vectorised, it took a fifth of a query's time.
        return self.normalised(self.op("Add", [x, residual]), name)


def _external(tensor: weights.Placed, file: str) -> TensorProto:
    """Return a reference to the tensor's bytes in the packed file of this name."""
    kind = helper.np_dtype_to_tensor_dtype(tensor.array.dtype)
    proto = TensorProto(name=tensor.name, data_type=kind, dims=tensor.array.shape)
    proto.data_location = TensorProto.EXTERNAL
    facts = {"location": file, "offset": tensor.offset, "length": tensor.array.nbytes}
    for key, value in facts.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def embed(graph: Graph, ids: str, added: str = "") -> str:
    """Word rows, rescaled, plus positions 0…n and what is `added`; normalised."""
    rows = graph.op("Cast", [graph.op("Gather", ["word", ids])], to=FLOAT)
    words = graph.op("Mul", [rows, graph.op("Gather", ["word_scale", ids])])
    # Slice and not Range + Gather, which onnxruntime 1.31 rewrites wrongly.
    length, zero = graph.op("Shape", [ids], start=1, end=2), graph.constant("zero", 0)
    placed = graph.op("Add", [words, graph.op("Slice", ["position", zero, length, zero])])
    if added:
        placed = graph.op("Add", [placed, added])
    return graph.normalised(placed, "norm_in")


def layer(graph: Graph, x: str, i: int) -> str:
    """One transformer layer. Without a mask: every text is a run of its own."""
    query, key, value = graph.many("Split", [graph.linear(x, f"qkv{i}")], 3, axis=-1, num_outputs=3)
    attended = graph.op("MultiHeadAttention", [query, key, value], MICROSOFT, num_heads=HEADS)
    x = graph.add_and_norm(graph.linear(attended, f"attended{i}"), x, f"norm_attended{i}")
    widened = graph.op("Gelu", [graph.linear(x, f"up{i}")])
    return graph.add_and_norm(graph.linear(widened, f"down{i}"), x, f"norm_out{i}")


def encoder() -> ModelProto:
    """Return the model of one text: token ids in, unit vector and hidden states out."""
    graph = Graph()
    x = embed(graph, "input_ids")
    for i in range(weights.LAYERS):
        x = layer(graph, x, i)
    # The sum and the mean of the token vectors have the same direction.
    total = graph.op("ReduceSum", [x, graph.constant("one", 1)], keepdims=0)
    norm = graph.op("ReduceL2", [total, "one"], keepdims=1)
    graph.nodes.append(helper.make_node("Div", [total, norm], ["sentence_embedding"]))
    graph.name(x, "states")
    outputs = [
        _value("sentence_embedding", FLOAT, "batch", weights.WIDTH),
        _value("states", FLOAT, "batch", "tokens", weights.WIDTH),
    ]
    return built(graph, "encoder", [_value("input_ids", INT, "batch", "tokens")], outputs)


def pairs() -> ModelProto:
    """Return the model of two texts read together: token ids, what the second text's tokens have added, and
    the low-rank changes in; hidden states out."""
    graph = Graph(changed=True)
    x = embed(graph, "input_ids", "segments")
    for i in range(weights.LAYERS):
        x = layer(graph, x, i)
    graph.name(x, "states")
    width = weights.WIDTH
    inputs = [
        _value("input_ids", INT, "batch", "tokens"),
        _value("segments", FLOAT, "batch", "tokens", width),
        *(_value(name, FLOAT, None, None) for name in graph.changes),
    ]
    return built(graph, "pairs", inputs, [_value("states", FLOAT, "batch", "tokens", width)])


def relevance() -> ModelProto:
    """Return the blocks of the relevance head: tokens of both texts and which of them are there in, tokens
    out. Norms come before what they feed, as in training."""
    graph, inputs = Graph(weights_inside=False), []

    def linear(x: str, name: str) -> str:
        inputs.extend((_value(name + ".weight", FLOAT, None, None), _value(name + ".bias", FLOAT, None)))
        return graph.op("Add", [graph.op("MatMul", [x, name + ".weight"]), name + ".bias"])

    def norm(x: str, name: str) -> str:
        names = [name + ".weight", name + ".bias"]
        inputs.extend(_value(each, FLOAT, None) for each in names)
        return graph.op("LayerNormalization", [x, *names], axis=-1, epsilon=1e-5)

    x = "tokens"
    for n in range(RELEVANCE_BLOCKS):
        block = f"bl.{n}."
        parts = graph.many("Split", [linear(norm(x, block + "n1"), block + "qkv")], 3, axis=-1, num_outputs=3)
        read = graph.op("MultiHeadAttention", [*parts, "", "known"], MICROSOFT, num_heads=RELEVANCE_HEADS)
        x = graph.op("Add", [x, linear(read, block + "o")])
        wide = graph.op("Gelu", [linear(norm(x, block + "n3"), block + "up")])
        x = graph.op("Add", [x, linear(wide, block + "dn")])
    graph.name(x, "read")
    inputs += [_value("tokens", FLOAT, "memories", "length", None)]
    inputs += [_value("known", TensorProto.INT32, "memories", "length")]
    return built(graph, "relevance", inputs, [_value("read", FLOAT, "memories", "length", None)])


def _value(name: str, kind: int, *shape: int | str | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def built(graph: Graph, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> ModelProto:
    """Return the model of what the graph collected."""
    body = helper.make_graph(graph.nodes, name, inputs, outputs, graph.initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=9)


def main() -> None:
    graphs = {weights.GRAPH: encoder(), weights.PAIR_GRAPH: pairs(), RELEVANCE_GRAPH: relevance()}
    for target, made in graphs.items():
        content = made.SerializeToString(deterministic=True)
        target.write_bytes(content)
        print(f"{target.name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
