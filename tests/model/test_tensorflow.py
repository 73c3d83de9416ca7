"""TensorFlow models through the real tf2onnx: run where both are installed (wavefit[tensorflow])."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from wavefit.errors import InputError
from wavefit.model.source import resolve

pytest.importorskip("tf2onnx")
pytest.importorskip("tensorflow")
ort = pytest.importorskip("onnxruntime")

# In a process of its own: TensorFlow and protobuf of other versions do not share one well.
SCRIPT = """
import numpy as np, tensorflow as tf

class Net(tf.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.kernel = tf.Variable(rng.standard_normal((3, 3, 3, 4)).astype("float32"))
        self.head = tf.Variable(rng.standard_normal((144, 5)).astype("float32"))

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32, name="x"),
                                  tf.TensorSpec([None, 1], tf.float32, name="scale")])
    def run(self, x, scale):
        y = tf.nn.relu(tf.nn.conv2d(x, self.kernel, 1, "VALID"))
        return {"logits": tf.matmul(tf.reshape(y, [-1, 144]), self.head) * scale}

net = Net()
tf.saved_model.save(net, "saved", signatures={"serving_default": net.run})
open("net.tflite", "wb").write(tf.lite.TFLiteConverter.from_saved_model("saved").convert())
x = np.random.default_rng(1).standard_normal((3, 8, 8, 3)).astype("float32")
scale = np.array([[1], [2], [3]], "float32")
np.savez("answers.npz", x=x, scale=scale, logits=net.run(x, scale)["logits"].numpy())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tensorflow")
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=path, check=True, capture_output=True, timeout=300)
    return path


@pytest.mark.parametrize("name", ["saved", "net.tflite"])
def test_answers_as_tensorflow(folder, tmp_path, name):
    model = resolve(str(folder / name), (), tmp_path, lambda text: None)
    assert model.source == str(folder / name)
    assert model.name == name.removesuffix(".tflite")
    assert model.batch == "batch"
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    answers = np.load(folder / "answers.npz")
    feeds = {spec.name: answers["x" if len(spec.shape or ()) == 4 else "scale"] for spec in model.inputs}
    session = ort.InferenceSession(model.path, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feeds)[0], answers["logits"], rtol=1e-4, atol=1e-4)


def test_a_damaged_saved_model(folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes((folder / "saved" / "saved_model.pb").read_bytes()[:100])
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(InputError, match="tf2onnx could not convert it"):
        resolve(str(broken), (), work, lambda text: None)
    assert not list(work.iterdir())
