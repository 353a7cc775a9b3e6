"""The other libraries, each wrapped in one function that parses a text. They are in the environment `bench`."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any, Literal

os.environ.setdefault("BAML_LOG", "off")

import pydantic
from baml_py import BamlRuntime

# The same three tools as `samples.OPENAI`, in BAML's language.
SOURCE = """
class GetWeather {
  city string
  unit "celsius" | "fahrenheit" | null
  days int?
  details string[]
}
class WriteFile {
  path string
  content string
}
class Row {
  id int
  name string
  price float?
  sold bool?
}
class AddRows {
  table string?
  rows Row[]
}
class CallGetWeather {
  tool "get_weather"
  arguments GetWeather
}
class CallWriteFile {
  tool "write_file"
  arguments WriteFile
}
class CallAddRows {
  tool "add_rows"
  arguments AddRows
}
client<llm> Nobody {
  provider openai
  options {
    model "none"
    api_key "none"
    base_url "http://127.0.0.1:9/v1"
  }
}
function AskOne(question: string) -> CallGetWeather {
  client Nobody
  prompt #"{{ question }}"#
}
function AskAny(question: string) -> CallGetWeather | CallWriteFile | CallAddRows {
  client Nobody
  prompt #"{{ question }}"#
}
"""


class GetWeather(pydantic.BaseModel):
    city: str
    unit: Literal["celsius", "fahrenheit"] | None = None
    days: int | None = None
    details: list[str] = []


class WriteFile(pydantic.BaseModel):
    path: str
    content: str


class Row(pydantic.BaseModel):
    id: int
    name: str
    price: float | None = None
    sold: bool | None = None


class AddRows(pydantic.BaseModel):
    table: str | None = None
    rows: list[Row]


class CallGetWeather(pydantic.BaseModel):
    tool: Literal["get_weather"]
    arguments: GetWeather


class CallWriteFile(pydantic.BaseModel):
    tool: Literal["write_file"]
    arguments: WriteFile


class CallAddRows(pydantic.BaseModel):
    tool: Literal["add_rows"]
    arguments: AddRows


def _module() -> types.ModuleType:
    """Return a module with the models, in place of the module that BAML's generator writes."""
    module = types.ModuleType("baml_types")
    for model in (GetWeather, WriteFile, Row, AddRows, CallGetWeather, CallWriteFile, CallAddRows):
        setattr(module, model.__name__, model)
    return module


def baml(function: Literal["AskOne", "AskAny"]) -> Callable[[str], Any]:
    """Return BAML's parser alone: its runtime parses a text into a function's return type, and nothing is sent.

    `AskOne` returns one class, the simplest case; `AskAny` returns a union of three, as with three tools.
    """
    runtime = BamlRuntime.from_files(".", {"bench.baml": SOURCE}, {})
    context = runtime.create_context_manager()
    module = _module()

    def read(text: str) -> Any:
        return runtime.parse_llm_response(function, text, module, module, module, False, context, None, None, {})

    return read
