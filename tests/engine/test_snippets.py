"""Snippets written for TensorRT-LLM's ``LLM`` API run with only the import changed.

Each runs as a script of its own, against a hub cache that holds a tiny checkpoint under the published name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mmcore_qwen2vl.testing
import numpy as np
import pytest
from PIL import Image

SNIPPETS = {
    "basic": """
from PIL import Image
from tensorrt_llm import LLM
from tensorrt_llm.inputs import TextPrompt

llm = LLM(model="Qwen/Qwen2-VL-7B-Instruct")
image = Image.open("image.jpg")
prompt = TextPrompt(prompt="Describe this image in detail.", multi_modal_data={"image": [image]})
output = llm.generate(prompt)
print(output.text)
print(output[0].text)
""",
    "two pictures": """
from PIL import Image
from tensorrt_llm import LLM
from tensorrt_llm.inputs import TextPrompt

llm = LLM(model="Qwen/Qwen2-VL-7B-Instruct")
images = [Image.open("image.jpg"), Image.open("other.png")]
prompt = TextPrompt(prompt="What differs between these images?", multi_modal_data={"image": images})
output = llm.generate(prompt)
print(output.outputs[0].text)
""",
    "uuids": """
from PIL import Image
from tensorrt_llm import LLM
from tensorrt_llm.inputs import TextPrompt

llm = LLM(model="Qwen/Qwen2-VL-7B-Instruct")
image = Image.open("image.jpg")
prompt = TextPrompt(
    prompt="Describe this image in detail.",
    multi_modal_data={"image": [image]},
    multi_modal_uuids={"image": ["product-photo-17"]},
)
first = llm.generate(prompt)
again = llm.generate(prompt)
assert first.token_ids == again.token_ids
assert again.cached_tokens > 0
print(again.text)
""",
    "reuse off": """
from PIL import Image
from tensorrt_llm import LLM
from tensorrt_llm.inputs import TextPrompt
from tensorrt_llm.llmapi import KvCacheConfig

llm = LLM(
    model="Qwen/Qwen2-VL-7B-Instruct",
    kv_cache_config=KvCacheConfig(enable_block_reuse=False),
)
image = Image.open("image.jpg")
prompt = TextPrompt(prompt="Describe this image in detail.", multi_modal_data={"image": [image]})
llm.generate(prompt)
output = llm.generate(prompt)
assert output.cached_tokens == 0
print(output.text)
""",
    "raw prompt": """
from PIL import Image
from tensorrt_llm import LLM, SamplingParams
from tensorrt_llm.inputs import TextPrompt

llm = LLM(model="Qwen/Qwen2-VL-7B-Instruct")
prompt = TextPrompt(
    prompt=(
        "<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n<|im_start|>user\\n"
        "<|vision_start|><|image_pad|><|vision_end|>What is in this image?<|im_end|>\\n"
        "<|im_start|>assistant\\n"
    ),
    multi_modal_data={"image": [Image.open("image.jpg")]},
)
output = llm.generate(prompt, SamplingParams(max_tokens=64))
print(output.outputs[0].text)
""",
    "list of prompts": """
from PIL import Image
from tensorrt_llm import LLM, SamplingParams
from tensorrt_llm.inputs import TextPrompt

llm = LLM(model="Qwen/Qwen2-VL-7B-Instruct")
first, second = Image.open("image.jpg"), Image.open("other.png")
prompts = [
    TextPrompt(
        prompt="Describe this image.",
        multi_modal_data={"image": [first]},
        multi_modal_uuids={"image": ["first"]},
    ),
    TextPrompt(
        prompt="What is in this image?",
        multi_modal_data={"image": [second]},
        multi_modal_uuids={"image": ["second"]},
    ),
    TextPrompt(
        prompt="Compare these images.",
        multi_modal_data={"image": [first, second]},
        multi_modal_uuids={"image": ["first", "second"]},
    ),
]
outputs = llm.generate(prompts, SamplingParams(max_tokens=200, temperature=0.7))
for output in outputs:
    print(output.text)
""",
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache with one model, and two pictures to look at."""
    home = tmp_path_factory.mktemp("hub")
    model = home / "hub" / "models--Qwen--Qwen2-VL-7B-Instruct"
    revision = "0123456789abcdef0123456789abcdef01234567"
    mmcore_qwen2vl.testing.write_tiny_checkpoint(model / "snapshots" / revision)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(revision)
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(home / "image.jpg")
    Image.fromarray(pixels[:, :60]).save(home / "other.png")
    return home


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet(hub: Path, name: str) -> None:
    script = SNIPPETS[name].replace("from tensorrt_llm", "from mmcore")
    env = os.environ | {
        "HF_HOME": str(hub),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    env.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=hub,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""
