"""How a model is made again: the file and class it is of, and what it was made with."""

import dataclasses
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tutti._error import Error
from tutti.config import from_dict, to_dict
from tutti.nn import Module

_FILE = "model.json"
_FORMAT = 1


# Files whose models are being made again.
_loading: list[str] = []


def refuse_while_loading(doing: str) -> None:
    """A script without a guard would do all it does once more, to have its class again."""
    if _loading:
        raise Error(
            f"{_loading[-1]} {doing} while its model is only being loaded: put what is to happen"
            ' when it is run under `if __name__ == "__main__":`',
            "invalid",
        )


class _CannotSay(Exception):
    """Something that JSON and a class's name do not describe."""


def save_recipe(model: Module, folder: Path, context: int) -> None:
    """Writes into the folder of a run how its model is made. What cannot be told is told there: a
    run without it can still be gone on with."""
    recipe: dict[str, Any] = {"format": _FORMAT, "context": context}
    try:
        arguments, keywords = model._made_with
        recipe |= _class_of(type(model))
        recipe["arguments"] = [_described(each) for each in arguments]
        recipe["keywords"] = {key: _described(each) for key, each in keywords.items()}
    except _CannotSay as why:
        recipe = {"format": _FORMAT, "why_not": str(why)}
    (folder / _FILE).write_text(json.dumps(recipe, indent=2) + "\n")


def load_recipe(folder: Path) -> tuple[Module, int]:
    """The model of a run, made anew, and the context it was trained with."""
    file = folder / _FILE
    try:
        recipe = json.loads(file.read_text())
    except OSError as error:
        raise Error(
            f"{file}: {error.strerror}; is {folder} the folder of a run (--out)?", "not_found"
        ) from None
    except ValueError as error:
        raise Error(f"{file}: {error}", "corrupt") from None
    if recipe.get("format") != _FORMAT:
        raise Error(f"{file}: not of this version of tutti", "unsupported")
    if "why_not" in recipe:
        raise Error(
            f"{folder}: its model cannot be made again, because {recipe['why_not']}; make it in"
            " Python and use tutti.Generator(model, …)",
            "unsupported",
        )
    try:
        module = _module(recipe["file"])
        kind = getattr(module, recipe["class"])
        arguments = [_made(each, module) for each in recipe["arguments"]]
        keywords = {key: _made(each, module) for key, each in recipe["keywords"].items()}
        return kind(*arguments, **keywords), int(recipe["context"])
    except (AttributeError, KeyError, TypeError) as error:
        raise Error(
            f"{file}: the model is no longer what it was: {error}; is {recipe.get('file')} still"
            " the file it was trained from?",
            "invalid",
        ) from error


def _class_of(kind: type) -> dict[str, str]:
    try:
        file = inspect.getsourcefile(kind)
    except (OSError, TypeError):
        file = None
    if file is None or not Path(file).is_file():
        raise _CannotSay(f"class {kind.__name__} is in no file")
    if "." in kind.__qualname__:
        raise _CannotSay(f"class {kind.__qualname__} is not at the top of its file")
    return {"file": str(Path(file).resolve()), "class": kind.__name__}


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _described(each) for key, each in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {**_class_of(type(value)), "values": to_dict(value)}
    raise _CannotSay(f"it was made with something of type {type(value).__name__}")


def _made(value: Any, module: ModuleType) -> Any:
    if isinstance(value, list):
        return [_made(each, module) for each in value]
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: _made(each, module) for key, each in value["dict"].items()}
    home = module if value["file"] == module.__file__ else _module(value["file"])
    return from_dict(getattr(home, value["class"]), value["values"])


def _module(file: str) -> ModuleType:
    """A Python file as a module; not as the main one, so that it does not begin to train."""
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == file and known.__name__ != "__main__":
            return known
    name = f"_tutti_run_{Path(file).stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise Error(f"{file}, which has the model, is not there", "not_found")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for what types are
    sys.path.append(str(Path(file).parent))  # what lies beside it may be imported
    _loading.append(file)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # half of it
        raise
    finally:
        _loading.pop()
        sys.path.pop()
    return module
