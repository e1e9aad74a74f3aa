"""Expected form of each answer, from the documentation of pydo.

The docstring of every pydo call has a template of its answers: field names, types, required fields and known values. `templates`
parses them, and `differences` compares an answer with a template.
"""

import re

TYPES = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": dict, "list": list}
BLOCK = re.compile(r"# response body for status code\(s\): ([\d, ]+)\n\s*response == (.*?)(?=\n\s*# response body|\Z)", re.S)


def templates(doc):
    """Templates of a docstring by status."""
    return {int(status): parse(text) for statuses, text in BLOCK.findall(doc or "") for status in statuses.split(",")}


def scalar(text):
    text = text.strip().rstrip(",")
    if text.startswith('"'):
        return "str"
    if text in ("bool", "True", "False"):
        return "bool"
    if re.fullmatch(r"-?\d+", text):
        return "int"
    return "float" if re.fullmatch(r"-?\d+\.\d+", text) else "any"


def node(text):
    """New node for the value at the beginning of the text, and whether its content follows."""
    value, _, note = text.partition("#")
    for bracket, type_ in (("{", "object"), ("[", "list")):
        if value.startswith(bracket) and value.strip().rstrip(",") not in ("{}", "[]"):
            return {"type": type_, "note": note, "fields": {}, "item": None}, True
    return {"type": scalar(value), "note": note}, False


def parse(text):
    root, is_open = node(text.split("\n")[0].strip())
    stack, last = [root], root
    for line in (line.strip() for line in text.split("\n")[1:] if is_open):
        top = stack[-1]
        field = re.match(r'"([^"]+)":\s*(.*)$', line)
        if line.rstrip(",") in ("}", "]"):
            last = stack.pop()
            if not stack:
                break
        elif field and top["type"] == "object" or line and top["type"] == "list" and top["item"] is None:
            last, is_nested = node(field[2] if top["type"] == "object" else line)
            if top["type"] == "object":
                top["fields"][field[1]] = last
            else:
                top["item"] = last
            stack += [last] * is_nested
        else:
            last["note"] += " " + line
    return root


def differences(value, template, path=""):
    """Sentences about everything in a value that does not match its template."""
    type_, note = template["type"], template["note"]
    if type_ == "any" or (value is None and "Required." not in note):
        return
    if not isinstance(value, TYPES[type_]) or (type_ in ("int", "float") and isinstance(value, bool)):
        yield f"{path}: {type(value).__name__} instead of {type_}"
        return
    known = re.search(r"Known values are:(.*?)\.(\s|$)", note)
    if type_ == "str" and known and value not in re.findall(r'"([^"]+)"', known[1]):
        yield f"{path}: {value!r} is not a known value"
    for item in value if type_ == "list" and template["item"] else []:
        yield from differences(item, template["item"], path + "[]")
    fields = template["fields"] if type_ == "object" else {}
    if not fields or set(fields) == {"str"}:
        return
    for name, field in fields.items():
        if name in value:
            yield from differences(value[name], field, f"{path}.{name}")
        elif "Required." in field["note"]:
            yield f"{path}.{name}: required, but missing"
    yield from (f"{path}.{name}: unknown" for name in value if name not in fields)
