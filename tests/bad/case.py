"""A row: one bad input, and what rankc must say of it."""
from dataclasses import dataclass, field
from typing import Callable, Optional


@dataclass
class Row:
    id: str  # of the list of bad inputs, with a letter or word where one of its rows is several inputs
    make: Callable  # called with the directory of the case: writes files there, or gives the model (a proto or bytes)
    exit: int  # or several, where it depends on luck
    text: str = ""  # a regular expression that the error contains
    args: list = field(default_factory=list)  # of the compile, behind the model
    errors: Optional[int] = 1  # diagnostics of severity error; None: at least one
    place: Optional[str] = "m.onnx"  # a regular expression for what follows "-->"; None: there need be no place
    model: str = "m.onnx"
    verb: Optional[list] = None  # in place of "compile MODEL" and what a compile is given
    slow: bool = False  # left out of the quick run
    seconds: float = 2  # that it may take
    mebibytes: int = 512  # and that it may have resident
    uid: Optional[int] = None  # run as this user
    twin: bool = False  # with hostile names; the runner makes these
    makes: Optional[str] = None  # a regular expression for files that it may make or change
    before: Optional[Callable] = None  # called with the directory while the compile starts; ends it with the function it gives
